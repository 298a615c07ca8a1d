"""So many requests a minute for each client, the rest refused at once: what most public APIs do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from admission.core.model import Event, Rejected, Ticket, Why
from admission.simulation.policies.base import policy
from admission.simulation.policies.none import AdmitAll
from admission.vocabulary import Reason

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RpmConfig:
    """The limit."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    per_minute: int = 20
    """Requests of one client that are let through within any 60 s; refused ones do not count."""

    def __post_init__(self) -> None:
        if self.per_minute < 1:
            raise ValueError(f"per_minute must be at least 1, not {self.per_minute}")


class Rpm(AdmitAll):
    """Looks at nothing but the clock and who asks."""

    def __init__(self, config: RpmConfig) -> None:
        super().__init__()
        self._most = config.per_minute
        self._admitted_at: dict[str, deque[float]] = {}

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """Admitted, unless its client had its share of the last minute."""
        admitted_at = self._admitted_at.setdefault(ticket.flow.tenant, deque(maxlen=self._most))
        if len(admitted_at) == self._most and now - admitted_at[0] <= MINUTE_S:
            why = Why(f"{self._most} in the last minute", self._most, self._most, "requests")
            return [Rejected(ticket, Reason.QUOTA, MINUTE_S - (now - admitted_at[0]), why)]
        admitted_at.append(now)
        return super().submit(ticket, now)


@policy("rpm", RpmConfig)
def rpm(config: RpmConfig, seed: int, now: float) -> Rpm:  # noqa: ARG001 - every builder takes them
    """The policy."""
    return Rpm(config)
