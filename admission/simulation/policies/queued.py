"""The front queue that every published limiter gets: first come first served, bounded, with a deadline.

A `Limiter` says how many may be on the engine at once; who waits, for how long, and what the limiter hears of each
request is the same for all of them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    LimitChanged,
    Queued,
    Reading,
    Rejected,
    Sample,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.core.settings import ClassConfig, default_classes
from admission.core.slo import SloConfig
from admission.simulation.policies.base import Look
from admission.simulation.policies.limiter import Latency, Limiter, LimiterSample
from admission.vocabulary import Outcome, PriorityClass, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """The queue before the engine. No place in it (`queue_tickets: 0`) is the published limiters' own reject-now."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    queue_tickets: int = 512
    """Requests that may wait; more are refused with QUEUE_FULL."""
    deadline_s: float | None = None
    """A request that waited so long is refused with DEADLINE, unless it brought a patience of its own. None: three
    quarters of the interactive TTFT target (1.5 s of 2 s), as in the product, for every class: the order is one."""
    retry_after_s: float = 1.0
    """What a refused caller is told, in seconds."""

    def __post_init__(self) -> None:
        if self.queue_tickets < 0:
            raise ValueError(f"queue_tickets must not be negative, not {self.queue_tickets}")
        for name in ("deadline_s", "retry_after_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be over 0, not {value}")

    def patience_s(self, slos: Mapping[PriorityClass, SloConfig]) -> float:
        """How long a request may wait, in seconds; without a target 10 s, as in the product."""
        if self.deadline_s is not None:
            return self.deadline_s
        slo = slos.get(PriorityClass.INTERACTIVE)
        return ClassConfig().patience if slo is None else ClassConfig(slo=slo).patience


def default_slos() -> dict[PriorityClass, SloConfig]:
    """The targets of the three classes as the product has them."""
    return {rank: settings.slo for rank, settings in default_classes().items()}


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: Ticket
    arrived_at: float
    deadline_at: float


@dataclass(slots=True, eq=False)
class _Running:
    ticket: Ticket
    waited_s: float
    admitted_at: float
    in_flight: int
    first_token_at: float | None = None
    chunks: int = 0
    tokens: int | None = None
    """Of the whole answer, once it has ended."""

    def tpot_s(self, now: float) -> float | None:
        """Seconds per token after the first, of an answer that ends now."""
        if self.first_token_at is None or self.tokens is None or self.tokens < 2:
            return None
        return (now - self.first_token_at) / (self.tokens - 1)


class QueuedLimiter:
    """A limiter behind the front queue: a `Policy`.

    With `latency` "ttft" the limiter gets a request's sample at its first token, with "total" at its end. Where no
    request has ever shown a first token (nothing streams), "ttft" falls back to the total.
    """

    def __init__(
        self, limiter: Limiter, front: FrontConfig, slos: Mapping[PriorityClass, SloConfig], latency: Latency
    ) -> None:
        self.limiter = limiter
        self._front = front
        self._patience_s = front.patience_s(slos)
        self._early = latency == "ttft"
        self._sees_streams = False
        self._waiters: OrderedDict[TicketId, _Waiter] = OrderedDict()
        self._deadlines: list[tuple[float, int, _Waiter]] = []
        self._sequence = 0
        self._running: dict[TicketId, _Running] = {}
        self._events: list[Event] = []
        self._shown = limiter.limit

    # Inputs

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """A ticket asks to run. ValueError when its id is queued or in flight already."""
        if ticket.id in self._running or ticket.id in self._waiters:
            raise ValueError(f"ticket {ticket.id} is known already")
        self.limiter.on_tick(now)
        if not self._waiters and self._has_room():
            self._grant(ticket, 0.0, now)
        elif len(self._waiters) >= self._front.queue_tickets:
            self._reject(ticket)
        else:
            self._wait(ticket, now)
        return self._events_out()

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Its caller left. One that had no first token yet counts as dropped, one that had says nothing."""
        waiter = self._waiters.pop(id, None)
        if waiter is not None:
            self._shed(waiter, Reason.CANCELLED, Why("its caller left"), now)
        elif id in self._running:
            self._end(id, Completion(Outcome.ABORTED), now)
        return self._settled(now)

    def first_token(self, id: TicketId, now: float) -> list[Event]:
        """The first output token came."""
        one = self._running.get(id)
        if one is not None and one.first_token_at is None:
            self._first_token(one, now, now)
        return self._settled(now)

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """New output chunks: (id, how many, seconds since the newest came)."""
        for id, chunks, age_s in items:
            one = self._running.get(id)
            if one is None or chunks <= 0:
                continue
            one.chunks += chunks
            if one.first_token_at is None:
                self._first_token(one, max(one.admitted_at, now - max(0.0, age_s)), now)
        return self._settled(now)

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """An admitted ticket ended; one that is not in flight is ignored."""
        if id in self._running:
            self._end(id, completion, now)
        return self._settled(now)

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """One measured value of the engine. Nobody gets in before the whole scrape is read: `next_at` asks for that."""
        self.limiter.on_reading(reading)
        return []

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """A span of a finished request: the published limiters measure for themselves."""
        return []

    def wake(self, now: float) -> list[Event]:
        """Time has passed: the limiter's own clock, then deadlines of those whom it still keeps waiting."""
        self._pump(now)
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = heapq.heappop(self._deadlines)[2]
            if self._waits(waiter):
                del self._waiters[waiter.ticket.id]
                self._shed(waiter, Reason.DEADLINE, self._too_long(waiter, now), now)
        return self._events_out()

    def next_wakeup(self) -> float | None:
        """When to call `wake` next, in seconds of `now`."""
        while self._deadlines and not self._waits(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        instants = [self._deadlines[0][0] if self._deadlines else None, self.limiter.next_at()]
        return min((at for at in instants if at is not None), default=None)

    def look(self, now: float) -> Look:
        """Limit and use for the time line, in requests."""
        in_flight = len(self._running)
        return Look(self.limiter.limit, float(in_flight), in_flight, len(self._waiters))

    # Getting in

    def _has_room(self) -> bool:
        return len(self._running) < self.limiter.limit

    def _settled(self, now: float) -> list[Event]:
        self._pump(now)
        return self._events_out()

    def _pump(self, now: float) -> None:
        self.limiter.on_tick(now)
        while self._waiters and self._has_room():
            _, waiter = self._waiters.popitem(last=False)
            self._grant(waiter.ticket, now - waiter.arrived_at, now)

    def _grant(self, ticket: Ticket, waited_s: float, now: float) -> None:
        in_flight = len(self._running) + 1
        self._running[ticket.id] = _Running(ticket, waited_s, now, in_flight)
        self.limiter.on_start(in_flight, now)
        self._events.append(Admitted(ticket, waited_s, 1))

    def _wait(self, ticket: Ticket, now: float) -> None:
        patience_s = self._patience_s if ticket.patience_s is None else ticket.patience_s
        waiter = _Waiter(ticket, now, now + patience_s)
        self._waiters[ticket.id] = waiter
        self._sequence += 1
        heapq.heappush(self._deadlines, (waiter.deadline_at, self._sequence, waiter))
        self._events.append(Queued(ticket, len(self._waiters) - 1, 0.0))

    def _waits(self, waiter: _Waiter) -> bool:
        return self._waiters.get(waiter.ticket.id) is waiter

    def _reject(self, ticket: Ticket) -> None:
        places, count = self._front.queue_tickets, len(self._waiters)
        why = Why(f"{count} of {places} wait", count, places, "tickets")
        self._events.append(Rejected(ticket, Reason.QUEUE_FULL, self._front.retry_after_s, why, count))

    def _shed(self, waiter: _Waiter, reason: Reason, why: Why, now: float) -> None:
        retry_after_s = self._front.retry_after_s
        self._events.append(Shed(waiter.ticket, reason, retry_after_s, why, now - waiter.arrived_at))

    @staticmethod
    def _too_long(waiter: _Waiter, now: float) -> Why:
        waited_s, patience_s = now - waiter.arrived_at, waiter.deadline_at - waiter.arrived_at
        return Why(f"waited {waited_s:.2f} s of {patience_s:.2f} s", waited_s, patience_s, "s")

    # What the limiter hears

    def _first_token(self, one: _Running, at: float, now: float) -> None:
        one.first_token_at = at
        self._sees_streams = True
        if self._early:
            self._tell(one, at - one.admitted_at, now)

    def _end(self, id: TicketId, completion: Completion, now: float) -> None:
        one = self._running.pop(id)
        one.tokens = tokens = completion.output_tokens or one.chunks or None
        tpot_s = one.tpot_s(now)
        if _dropped(one, completion.outcome):
            self._tell(one, now - one.admitted_at, now, dropped=True)
        elif completion.outcome is Outcome.OK:
            self._tell_end(one, completion, now)
        ttft_s = None if one.first_token_at is None else one.first_token_at - one.admitted_at + one.waited_s
        held_s = now - one.admitted_at
        self._events.append(
            Finished(one.ticket, completion, one.waited_s, held_s, ttft_s, tpot_s, tokens, None)
        )

    def _tell_end(self, one: _Running, completion: Completion, now: float) -> None:
        if not self._early:
            self._tell(one, now - one.admitted_at, now)
        elif one.first_token_at is None and completion.engine_ttft_s is not None:
            self._tell(one, completion.engine_ttft_s, now)
        elif not self._sees_streams:
            self._tell(one, now - one.admitted_at, now)

    def _tell(self, one: _Running, rtt_s: float, now: float, *, dropped: bool = False) -> None:
        ttft_s = None if one.first_token_at is None else one.first_token_at - one.admitted_at
        sample = LimiterSample(
            now,
            one.admitted_at,
            rtt_s,
            one.in_flight,
            dropped,
            one.ticket.priority,
            one.ticket.prompt_tokens,
            one.waited_s,
            ttft_s,
            one.tpot_s(now),
            one.tokens,
        )
        self.limiter.on_sample(sample)

    def _events_out(self) -> list[Event]:
        limit = self.limiter.limit
        if limit != self._shown:
            why = Why("the limiter's rule", limit, self._shown, "requests")
            self._events.append(LimitChanged(int(self._shown), int(limit), why))
            self._shown = limit
        events, self._events = self._events, []
        return events


def _dropped(one: _Running, outcome: Outcome) -> bool:
    if outcome is Outcome.ABORTED:
        return one.first_token_at is None
    return outcome in (Outcome.ERROR, Outcome.BUSY, Outcome.LOST)
