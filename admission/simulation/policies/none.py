"""Nobody is ever refused: what an engine does alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from admission.core.model import Admitted, Completion, Event, Reading, Sample, Ticket, TicketId
from admission.simulation.policies.base import Look, policy


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneConfig:
    """It has no settings."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


class AdmitAll:
    """Admits at once and remembers only who runs."""

    def __init__(self) -> None:
        self._tokens = 0
        self._running: dict[TicketId, int] = {}

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """Admitted."""
        self._running[ticket.id] = ticket.prompt_tokens
        self._tokens += ticket.prompt_tokens
        return [Admitted(ticket, 0.0, ticket.prompt_tokens)]

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Its caller left."""
        self._tokens -= self._running.pop(id, 0)
        return []

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """It ended."""
        return self.cancel(id, now)

    def first_token(self, id: TicketId, now: float) -> list[Event]:
        """Nothing follows."""
        return []

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """Nothing follows."""
        return []

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """Nothing follows."""
        return []

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """Nothing follows."""
        return []

    def wake(self, now: float) -> list[Event]:
        """Nothing waits."""
        return []

    def next_wakeup(self) -> float | None:
        """Never."""
        return None

    def look(self, now: float) -> Look:
        """No limit; use in prompt tokens."""
        return Look(math.inf, self._tokens, len(self._running), 0)


@policy("none", NoneConfig)
def admit_all(config: NoneConfig, seed: int, now: float) -> AdmitAll:  # noqa: ARG001 - every builder takes them
    """The policy."""
    return AdmitAll()
