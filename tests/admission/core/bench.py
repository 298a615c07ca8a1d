"""A controller on a test bench: short words for inputs, and the events of one kind."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from admission.core.controller import Controller, ControllerConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Completion, Event, Reading, Ticket, TicketId
from admission.core.saved import SavedState
from admission.vocabulary import Mode, Outcome, PriorityClass, SignalKind, Source

E = TypeVar("E")


class Bench:
    """Time starts at 100 s and moves when told."""

    def __init__(self, *, saved: SavedState | None = None, **settings: Any) -> None:
        settings.setdefault("mode", Mode.ENFORCE)
        self.now = 100.0
        self.config = ControllerConfig(**settings)
        self.core = Controller(self.config, random=random.Random(1), now=self.now, saved=saved)
        self.no = 0

    def ticket(
        self, owner: str = "s", priority: PriorityClass = PriorityClass.INTERACTIVE, **fields: Any
    ) -> Ticket:
        """A new ticket of 100 prompt tokens, unless told otherwise."""
        self.no += 1
        fields.setdefault("prompt_tokens", 100)
        return Ticket(TicketId(owner, self.no), priority, **fields)

    def submit(self, ticket: Ticket | None = None, **fields: Any) -> list[Event]:
        """Submit a ticket now."""
        return self.core.submit(ticket or self.ticket(**fields), self.now)

    def admit(self, **fields: Any) -> Ticket:
        """Submit a ticket that must be admitted at once."""
        ticket = self.ticket(**fields)
        events = self.core.submit(ticket, self.now)
        assert ticket.id in self.core.target.ledger.permits, events
        return ticket

    def finish(self, ticket: Ticket, outcome: Outcome = Outcome.OK, **truth: Any) -> list[Event]:
        """End a ticket."""
        return self.core.finish(ticket.id, Completion(outcome, **truth), self.now)

    def fill(self, tokens: int = 100_000) -> Ticket:
        """Admit one that takes the whole limit, with its first token seen at a rate of 8,000 tokens a second."""
        ticket = self.admit(prompt_tokens=tokens, max_tokens=1)
        self.now += tokens / 8_000
        self.core.first_token(ticket.id, self.now)
        return ticket

    def observe(
        self, kind: SignalKind, value: float, member: str = "m", source: Source = Source.SCRAPE
    ) -> list[Event]:
        """One reading of now."""
        return self.core.observe(Reading(kind, value, self.now, source, member), self.now)

    def scrape(
        self, running: float = 0, waiting: float = 0, kv: float | None = None, capacity: float | None = None
    ) -> list[Event]:
        """A whole scrape."""
        events = self.observe(SignalKind.ENGINE_UP, 1)
        if capacity is not None:
            events += self.observe(SignalKind.KV_CAPACITY_TOKENS, capacity)
        if kv is not None:
            events += self.observe(SignalKind.KV_USAGE_RATIO, kv)
        events += self.observe(SignalKind.RUNNING, running)
        return events + self.observe(SignalKind.WAITING, waiting)

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass, waking the core whenever it asked."""
        until, events = self.now + seconds, []
        while (at := self.core.next_wakeup()) is not None and at <= until:
            self.now = max(self.now, at)
            events += self.core.wake(self.now)
        self.now = until
        return events


def only(kind: type[E], events: list[Event]) -> E:
    """The one event of that kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


def some(kind: type[E], events: list[Event]) -> list[E]:
    """The events of that kind."""
    return [event for event in events if isinstance(event, kind)]


FULL_AT_100K = FixedConfig(limit_tokens=100_000)
