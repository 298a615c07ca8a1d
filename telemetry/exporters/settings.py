"""Where our own spans go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """Where our own spans go. Empty endpoint: nowhere."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    otlp_endpoint: str = ""
    """OTLP/gRPC, such as http://127.0.0.1:4317."""
    sample_ratio: float = 1.0
    """Share of traces that start here; a caller's own trace follows the caller's choice."""
    queue_spans: int = 2048
    """Spans that may wait for a slow receiver; more are dropped and counted."""

    def __post_init__(self) -> None:
        """ValueError naming every value out of range."""
        problems = []
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            problems.append(f"otlp_endpoint: expected http://host:port, not {self.otlp_endpoint!r}")
        if not 0.0 <= self.sample_ratio <= 1.0:
            problems.append("sample_ratio: expected 0 to 1")
        if self.queue_spans < 1:
            problems.append("queue_spans: expected at least 1")
        if problems:
            raise ValueError("\n".join(problems))
