"""A limit that an operator sets and nobody moves: in tokens, and in requests if wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from admission.core.limits.base import Load, algorithm
from admission.core.model import Why
from admission.vocabulary import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    """Tokens that may be in flight."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    algorithm: Literal["fixed"] = "fixed"
    """A limit that stands still."""
    limit_tokens: int = 100_000
    """The limit, in KV tokens of prompt and predicted output."""
    limit_requests: int | None = None
    """A second limit, in requests; unset: tokens alone are counted."""

    def __post_init__(self) -> None:
        if self.limit_tokens < 1:
            raise ValueError(f"limit_tokens must be at least 1, not {self.limit_tokens}")
        if self.limit_requests is not None and self.limit_requests < 1:
            raise ValueError(f"limit_requests must be at least 1, not {self.limit_requests}")


@algorithm("fixed", FixedConfig)
class Fixed:
    """Stands still."""

    name = "fixed"
    adapts = False

    def __init__(self, config: FixedConfig) -> None:
        self.value = config.limit_tokens
        self._chosen = config.limit_tokens
        self.requests = config.limit_requests

    @property
    def good(self) -> int:
        """What was chosen."""
        return self._chosen

    def on_tick(self, load: Load, now: float) -> Why | None:
        """Never moves; only goes back to what was chosen when an operator's other value has ended."""
        if self.value == self._chosen or load.frozen:
            return None
        self.value = self._chosen
        return Why("back to the configured limit", self._chosen, 0.0, "tokens", Source.OPERATOR)

    def override(self, value: int) -> None:
        """Go on from this value."""
        self.value = max(1, value)

    def reconfigure(self, config: FixedConfig) -> None:
        """The operator's new value."""
        self.value = self._chosen = config.limit_tokens
        self.requests = config.limit_requests

    def after_outage(self) -> None:
        """An outage says nothing about a limit that was chosen by hand."""
