"""Refuses everything while an operator (or SIGTERM) empties the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from admission.core.gates.base import Hold, QuietGate, Refuse, gate
from admission.core.model import GateView, Ticket, Why
from admission.vocabulary import Reason, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """Seconds after which a refused caller may come back."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    retry_after_s: float = 10.0
    """What the refused are told, before jitter."""

    def __post_init__(self) -> None:
        if not self.retry_after_s > 0:
            raise ValueError(f"retry_after_s must be over 0, not {self.retry_after_s}")


@gate("drain", DrainConfig)
class Drain(QuietGate):
    """Open, or draining."""

    name = "drain"

    def __init__(self, config: DrainConfig) -> None:
        self._config = config
        self.draining = False
        self._last_fired_at: float | None = None

    def check(self, ticket: Ticket, *, idle: bool, now: float) -> Hold | Refuse | None:
        """Refuses while draining."""
        if not self.draining:
            return None
        self._last_fired_at = now
        return Refuse(Reason.DRAINING, self._why, self._config.retry_after_s)

    def reconfigure(self, config: DrainConfig) -> None:
        """Go on with other settings."""
        self._config = config

    def view(self) -> GateView:
        """What to show."""
        state = "draining" if self.draining else "open"
        return GateView(self.name, state, self._why, self._last_fired_at)

    @property
    def _why(self) -> Why:
        return Why("the target is draining" if self.draining else "", source=Source.OPERATOR)
