"""The callers' side of a world: they ask, wait, leave, come back; in the end each request is settled once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappush
from random import Random
from typing import Any, Protocol

from admission.core.model import NO_FLOW, Admitted, Event, Flow, Rejected, Shed, Ticket, TicketId
from admission.simulation.callers import Call, Stage
from admission.simulation.fate import Ending, Fate
from admission.simulation.policies.base import Policy
from admission.simulation.surroundings import WorldConfig
from admission.simulation.timeline import Timeline
from admission.simulation.traces import Arrival

BYPASSING = -1
"""The desk of those that ask nobody."""


class Judging(Protocol):
    """Who takes the fates of requests?"""

    def settle(self, fate: Fate) -> bool:
        """Count it; says whether it was good."""


Watch = Callable[[int, float, Event], None]
"""Told of (sidecar, seconds, event)."""


class Desk:
    """One sidecar: its policy, whose answers stream, and when it wants to be woken."""

    __slots__ = ("no", "owner", "policy", "stale", "streaming", "wake_at")

    def __init__(self, no: int, policy: Policy) -> None:
        self.no = no
        self.owner = f"sidecar{no}"
        self.policy = policy
        self.streaming: dict[Call, None] = {}
        self.wake_at = math.inf
        self.stale = True
        """Something was said to the policy: when it wants to be woken may have changed."""

    def ask(self) -> None:
        """When does it want to be woken?"""
        at = self.policy.next_wakeup()
        self.wake_at = math.inf if at is None else at
        self.stale = False


class Attempts(ABC):
    """Requests from their arrival to the engine's door, and from their end to the judge."""

    def __init__(
        self,
        config: WorldConfig,
        policy: Callable[[int], Policy],
        judge: Judging,
        seed: int,
        timeline: Timeline | None,
        watch: Watch | None,
    ) -> None:
        self.config = config
        self.now = 0.0
        self.policies = [policy(no) for no in range(config.sidecars)]
        self._desks = [Desk(no, policy) for no, policy in enumerate(self.policies)]
        self._judge = judge
        self._timeline = timeline
        self._watch = watch
        self._random = Random(f"{seed} callers")  # noqa: S311 - simulation
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = 0
        self._tickets = 0
        self._asking: dict[TicketId, Call] = {}
        self._open: dict[Call, None] = {}
        """The last attempt of every request that is not settled."""
        self._patient: deque[tuple[float, Call]] = deque()

    def _at(self, at: float, happening: Callable[[Any], None], what: Any = None) -> None:
        self._order += 1
        heappush(self._heap, (at, self._order, happening, what))

    # Asking

    def _arrive(self, arrival: Arrival) -> None:
        callers, random, desk = self.config.callers, self._random, 0
        if callers.bypass_ratio and random.random() < callers.bypass_ratio:
            desk = BYPASSING
        elif len(self._desks) > 1:
            desk = random.randrange(len(self._desks))
        stream = arrival.stream and (callers.stream_ratio >= 1.0 or random.random() < callers.stream_ratio)
        leaves = callers.leave_ratio > 0 and random.random() < callers.leave_ratio
        self._ask(Call(arrival, desk, stream, leaves, self.now))

    def _ask(self, call: Call) -> None:
        self._open[call] = None
        self._expect_patience(call)
        if call.desk == BYPASSING:
            self._start(call)
            return
        desk = self._desks[call.desk]
        self._tickets += 1
        call.id = id = TicketId(desk.owner, self._tickets)
        self._asking[id] = call
        self._said(desk, desk.policy.submit(_ticket(call, id), self.now))

    # Patience

    def _expect_patience(self, call: Call) -> None:
        until = self.now + self.config.callers.patience_s
        if not self._patient:
            self._at(until, self._look_at_the_patient)
        self._patient.append((until, call))

    def _look_at_the_patient(self, _: None) -> None:
        """One timer for all: they run out in the order in which they asked, and most have their token by then."""
        patient = self._patient
        while patient:
            until, call = patient[0]
            waits = call.stage is not Stage.OVER and call.first_token_at is None
            if waits and until > self.now:
                self._at(until, self._look_at_the_patient)
                return
            patient.popleft()
            if waits:
                self._leave(call, Ending.IMPATIENT)

    def _leave_as_meant(self, call: Call) -> None:
        if call.stage is not Stage.OVER:
            self._leave(call, Ending.LEFT)

    def _leave(self, call: Call, ending: Ending) -> None:
        if self.config.callers.noticed:
            self._abort(call)
        desk = self._forget(call)
        self._end(call, ending)
        if desk is not None and call.id is not None:
            self._said(desk, desk.policy.cancel(call.id, self.now))

    @abstractmethod
    def _start(self, call: Call) -> None:
        """It may go to the engine."""

    @abstractmethod
    def _abort(self, call: Call) -> None:
        """The engine learns that nobody waits for it any more."""

    # What policies say

    def _said(self, desk: Desk, events: list[Event]) -> None:
        desk.stale = True
        if events:
            self._take(desk, events)

    def _take(self, desk: Desk, events: list[Event]) -> None:
        for event in events:
            if self._watch is not None:
                self._watch(desk.no, self.now, event)
            if isinstance(event, Admitted):
                call = self._asking.get(event.ticket.id)
                if call is not None and call.stage is Stage.ASKING:
                    self._start(call)
            elif isinstance(event, Rejected | Shed):
                self._refused(event)

    def _refused(self, event: Rejected | Shed) -> None:
        call = self._asking.get(event.ticket.id)
        if call is None or call.stage is not Stage.ASKING:
            return
        self._forget(call)
        call.refused = (*call.refused, event.reason.name)
        self._end(call, Ending.REFUSED, event.reason.name, event.retry_after_s)

    # Ending

    def _forget(self, call: Call) -> Desk | None:
        """An attempt is over: its admission hears its end and no more."""
        call.stage = Stage.OVER
        if call.id is None:
            return None
        del self._asking[call.id]
        desk = self._desks[call.desk]
        desk.streaming.pop(call, None)
        return desk

    def _end(self, call: Call, ending: Ending, reason: str = "", retry_after_s: float | None = None) -> None:
        """Settle the request, or let its caller come back."""
        if ending is not Ending.SERVED and ending is not Ending.LEFT and ending is not Ending.INVALID:
            pause_s = self.config.callers.pause_s(call.attempts, retry_after_s, self._random)
            if pause_s is not None:
                call.last = ending, reason
                self._at(self.now + pause_s, self._again, call)
                return
        self._settle(call, ending, reason)

    def _again(self, last: Call) -> None:
        del self._open[last]
        call = Call(last.arrival, last.desk, last.stream, last.leaves, self.now)
        call.attempts, call.refused = last.attempts + 1, last.refused
        self._ask(call)

    def _settle(self, call: Call, ending: Ending, reason: str) -> None:
        del self._open[call]
        fate = _fate(call, ending, reason, self.now)
        good = self._judge.settle(fate)
        if self._timeline is not None:
            self._timeline.settle(fate, good=good)


def _ticket(call: Call, id: TicketId) -> Ticket:
    arrival, flow = call.arrival, NO_FLOW
    if arrival.tenant or arrival.model:
        flow = Flow(arrival.tenant or NO_FLOW.tenant, arrival.model)
    return Ticket(id, arrival.priority, flow, arrival.prompt_tokens, 0, arrival.max_tokens, 1, call.stream)


def _fate(call: Call, ending: Ending, reason: str, now: float) -> Fate:
    arrival, began, admitted, first = call.arrival, call.began_at, call.admitted_at, call.first_token_at
    tpot_s = None
    if first is not None and ending is Ending.SERVED and arrival.output_tokens > 1:
        tpot_s = (now - first) / (arrival.output_tokens - 1)
    return Fate(
        arrival,
        ending,
        reason,
        call.attempts,
        (now if admitted is None else admitted) - began,
        began,
        admitted is not None,
        None if first is None else first - began,
        tpot_s,
        now - began,
        call.refused,
        call.leaves,
    )
