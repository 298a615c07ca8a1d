"""Whatever the order of inputs, the controller keeps its promises; a model without cleverness says what they are."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from admission.core.controller import ClassConfig, Controller, ControllerConfig
from admission.core.gates.vram import VramConfig
from admission.core.leases import LeaseConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    Held,
    Queued,
    Reading,
    Rejected,
    Sample,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
)
from admission.core.settings import default_classes
from admission.vocabulary import Mode, Outcome, PriorityClass, SignalKind, Source

OWNERS = ("a", "b", "c")
CONFIG = ControllerConfig(
    mode=Mode.ENFORCE,
    limit=AimdConfig(initial_tokens=3_000, floor_tokens=500),
    classes={
        **default_classes(),
        PriorityClass.INTERACTIVE: ClassConfig(queue_tickets=4, queue_rate_s=0.5),
        PriorityClass.BATCH: ClassConfig(patience_s=20.0, queue_tickets=3),
    },
    lease=LeaseConfig(ttl_s=8.0, grace_s=2.0),
    vram=VramConfig(learn_s=1.0),
    ageing_s=5.0,
)


@dataclass
class Known:
    """What the model remembers of a ticket."""

    ticket: Ticket
    arrived_at: float
    state: str = "submitted"
    cost: int = 0
    grandfathered: bool = False


class ControllerMachine(RuleBasedStateMachine):
    """Random inputs with random steps of time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.core = Controller(CONFIG, random=random.Random(7), now=self.now)
        self.known: dict[TicketId, Known] = {}
        self.decided: dict[TicketId, int] = {}
        self.stalled: set[str] = set()
        self.next_no = 1

    # Inputs

    @rule(dt=st.sampled_from([0.0, 0.001, 0.05, 0.4, 1.0, 3.0]))
    def time_passes(self, dt: float) -> None:
        """The shell wakes the core no later than it asked."""
        until = self.now + dt
        while (at := self.core.next_wakeup()) is not None and at <= until:
            self.now = max(self.now, at)
            self.take(self.core.wake(self.now))
            pending = self.core.next_wakeup()
            assert pending is not None
            assert pending > self.now
        self.now = until

    @rule(
        owner=st.sampled_from(OWNERS),
        priority=st.sampled_from(PriorityClass),
        prompt=st.sampled_from([0, 10, 200, 900, 5_000]),
        max_tokens=st.sampled_from([0, 16, 4_000]),
        stream=st.booleans(),
        patience=st.sampled_from([None, 0.0, 0.3, 2.0]),
        waited=st.sampled_from([0.0, 0.0, 0.2]),
    )
    def submit(
        self,
        owner: str,
        priority: PriorityClass,
        prompt: int,
        max_tokens: int,
        stream: bool,
        patience: float | None,
        waited: float,
    ) -> None:
        """A new ticket."""
        id = TicketId(owner, self.next_no)
        self.next_no += 1
        ticket = Ticket(
            id,
            priority,
            prompt_tokens=prompt,
            max_tokens=max_tokens,
            stream=stream,
            patience_s=patience,
            waited_s=waited,
        )
        self.known[id] = Known(ticket, self.now - waited)
        events = self.core.submit(ticket, self.now)
        own = [e for e in events if isinstance(e, Admitted | Queued | Rejected | Shed) and e.ticket is ticket]
        assert own, "every submit is answered at once"
        self.take(events)

    @rule(
        pick=st.integers(0, 30), outcome=st.sampled_from(Outcome), tokens=st.sampled_from([None, 1, 40, 700])
    )
    def finish(self, pick: int, outcome: Outcome, tokens: int | None) -> None:
        """Somebody finishes, maybe for the second time."""
        if not self.known:
            return
        id = sorted(self.known)[pick % len(self.known)]
        known = self.known[id]
        before = self.core.ignored_finishes
        events = self.core.finish(id, Completion(outcome, 50, None, tokens, 0.1, 0.5), self.now)
        if known.state == "in flight":
            assert any(isinstance(e, Finished) and e.ticket.id == id for e in events)
        else:
            assert events == []
            assert self.core.ignored_finishes == before + 1
        self.take(events)

    @rule(pick=st.integers(0, 30), chunks=st.integers(0, 50), age=st.sampled_from([0.0, 0.1]))
    def stream(self, pick: int, chunks: int, age: float) -> None:
        """First token or progress, of anybody known or not."""
        id = sorted(self.known)[pick % len(self.known)] if self.known else TicketId("nobody", 1)
        if chunks % 2:
            self.take(self.core.first_token(id, self.now, age))
        else:
            self.take(self.core.progress([(id, chunks, age)], self.now))

    @rule(pick=st.integers(0, 30))
    def cancel(self, pick: int) -> None:
        """A caller leaves."""
        if self.known:
            self.take(self.core.cancel(sorted(self.known)[pick % len(self.known)], self.now))

    @rule(
        owner=st.sampled_from(OWNERS),
        what=st.sampled_from(["renew", "attach", "detach", "leave", "stall", "go on"]),
    )
    def session(self, owner: str, what: str) -> None:
        """A session renews, breaks, comes back, says goodbye, or stops reading."""
        if what in ("stall", "go on"):
            (self.stalled.add if what == "stall" else self.stalled.discard)(owner)
            self.take(self.core.stalled(owner, what == "stall", self.now))
            return
        if what != "renew":
            self.stalled.discard(owner)
        self.take(getattr(self.core, what)(owner, self.now))
        if what == "leave":
            assert self.core.held_by(owner) == []

    @rule(owner=st.sampled_from(OWNERS), first_token=st.booleans(), age=st.sampled_from([0.0, 3.0]))
    def reinstate(self, owner: str, first_token: bool, age: float) -> None:
        """A holder announces a permit that was lost here."""
        id = TicketId(owner, self.next_no)
        self.next_no += 1
        ticket = Ticket(id, prompt_tokens=300)
        self.known[id] = Known(ticket, self.now, "in flight", grandfathered=True)
        self.decided[id] = 1
        self.take(self.core.reinstate([Held(ticket, age, first_token, 5 if first_token else 0)], self.now))
        self.known[id].cost = self.core.target.ledger.permits[id].cost.total

    @rule(
        kind=st.sampled_from(
            [
                SignalKind.ENGINE_UP,
                SignalKind.RUNNING,
                SignalKind.WAITING,
                SignalKind.KV_USAGE_RATIO,
                SignalKind.KV_CAPACITY_TOKENS,
                SignalKind.PREEMPTIONS_TOTAL,
                SignalKind.GENERATION_TOKENS_TOTAL,
                SignalKind.VRAM_FREE_BYTES,
                SignalKind.VRAM_TOTAL_BYTES,
                SignalKind.MAX_SEQUENCES,
            ]
        ),
        value=st.sampled_from([0.0, 0.5, 0.9, 0.98, 3.0, 40.0, 4_000.0, 1e9, 2e10]),
    )
    def observe(self, kind: SignalKind, value: float) -> None:
        """A reading, sensible or not."""
        if kind is SignalKind.KV_USAGE_RATIO:
            value = min(value, 1.0)
        self.take(self.core.observe(Reading(kind, value, self.now, Source.SCRAPE, "m"), self.now))

    @rule(outcome=st.sampled_from([Outcome.OK, Outcome.BUSY, Outcome.ERROR]))
    def sample(self, outcome: Outcome) -> None:
        """A span of a finished request."""
        sample = Sample(self.now, outcome, e2e_s=2.0, ttft_s=0.2, output_tokens=20)
        self.take(self.core.sample(sample, self.now))

    @rule(drain=st.booleans())
    def drain(self, drain: bool) -> None:
        """An operator drains, or ends it."""
        self.take(self.core.set_drain(drain, self.now))

    @rule(limit=st.sampled_from([None, 1, 600, 50_000]), hold=st.sampled_from([None, 2.0]))
    def override(self, limit: int | None, hold: float | None) -> None:
        """An operator holds the limit."""
        self.take(self.core.set_limit(limit, None if hold is None else self.now + hold, self.now))

    @rule(mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.SHADOW, Mode.OFF]))
    def switch(self, mode: Mode) -> None:
        """An operator switches the mode."""
        self.take(self.core.set_mode(mode, self.now))

    @precondition(lambda self: self.known)
    @rule(pick=st.integers(0, 30))
    def submit_twice(self, pick: int) -> None:
        """The same ticket again is misuse while it is known, and says so."""
        known = self.known[sorted(self.known)[pick % len(self.known)]]
        if known.state in ("in flight", "queued"):
            try:
                self.core.submit(known.ticket, self.now)
            except ValueError:
                return
            raise AssertionError("a known ticket was taken twice")

    # What events must say

    def take(self, events: list[Event]) -> None:
        """Apply the events to the model."""
        for event in events:
            self.apply(event)
        if self.core.mode is Mode.ENFORCE:
            self.check_admissions([event for event in events if isinstance(event, Admitted)])

    def apply(self, event: Event) -> None:
        """One event."""
        match event:
            case Admitted(ticket=ticket, cost=cost, shadow=shadow):
                self.final(ticket)
                known = self.known[ticket.id]
                known.state, known.cost = "in flight", cost
                assert shadow is None or self.core.mode is not Mode.ENFORCE
                patience = self.core.target.class_config(ticket.priority).patience
                if self.core.mode is Mode.ENFORCE:
                    assert self.now - known.arrived_at < patience + 1e-9 or event.waited_s == ticket.waited_s
            case Queued(ticket=ticket, position=position, expected_wait_s=wait_s):
                self.known[ticket.id].state = "queued"
                assert position >= 1
                assert wait_s >= 0
            case Rejected(ticket=ticket, retry_after_s=retry) | Shed(ticket=ticket, retry_after_s=retry):
                self.final(ticket)
                self.known[ticket.id].state = "refused"
                assert retry is None or 0.8 <= retry <= 60.0
            case Finished(ticket=ticket):
                assert self.known[ticket.id].state == "in flight"
                self.known[ticket.id].state = "ended"
            case ShadowDecided(ticket=ticket):
                assert self.known[ticket.id].state in ("in flight", "ended")

    def final(self, ticket: Ticket) -> None:
        """Count final decisions: never a second one."""
        self.decided[ticket.id] = self.decided.get(ticket.id, 0) + 1
        assert self.decided[ticket.id] == 1

    def check_admissions(self, admitted: list[Admitted]) -> None:
        """Within the limit (or alone), and never past a more urgent waiter that may run."""
        if not admitted or any(event.shadow is not None for event in admitted):
            return
        ledger = self.core.target.ledger
        if any(self.known[event.ticket.id].state == "in flight" for event in admitted):
            assert ledger.used <= self.core.target.limit.value or ledger.counted == 1
        queue = self.core.target.queue
        for event in admitted:
            # Only ageing lets a ticket pass a more urgent one, and then it has waited for as long.
            aged = event.waited_s >= CONFIG.ageing_s
            for waiter in queue.waiters():
                free = (
                    waiter.ticket.id.owner not in self.stalled
                    and self.core.budgets.gate(waiter.ticket, self.now) is None
                    and not self.over_slo(waiter.ticket)
                )
                assert aged or not free or waiter.ticket.priority >= event.ticket.priority

    def over_slo(self, ticket: Ticket) -> bool:
        """Would it miss its SLO even alone? Then it waits for another such ticket and is stepped around."""
        cost = self.core.target.cost.predict(ticket)
        forecast = self.core.budgets.forecast(ticket, cost, 0.0, self.now)
        return forecast is not None and forecast.over_slo

    # What must always hold

    @invariant()
    def sums_agree(self) -> None:
        """In flight and used are what the model adds up."""
        ledger = self.core.target.ledger
        flying = {id: known for id, known in self.known.items() if known.state == "in flight"}
        assert set(ledger.permits) == set(flying)
        assert ledger.used_really == sum(known.cost for known in flying.values())
        counted = list(ledger.counted_permits())
        assert ledger.counted == len(counted)
        assert ledger.used == sum(permit.cost.total for permit in counted)
        pending = [permit for permit in counted if permit.ticket.id in ledger.pending]
        assert ledger.pending_prompt == sum(permit.cost.prompt for permit in pending)
        assert all(permit.first_token_at is None for permit in pending)
        assert abs(ledger.kv_expected - sum(permit.kv_expected for permit in counted)) < 1e-3
        assert sum(ledger.by_class) == len(ledger.permits)

    @invariant()
    def the_queue_is_bounded(self) -> None:
        """In count, for every class."""
        queue = self.core.target.queue
        for rank in PriorityClass:
            assert 0 <= queue.count[rank] <= CONFIG.classes[rank].queue_tickets
            assert queue.prompt_tokens[rank] >= 0
        waiting = {id for id, known in self.known.items() if known.state == "queued"}
        if self.core.mode is Mode.ENFORCE:
            assert waiting == {waiter.ticket.id for waiter in queue.waiters()}

    @invariant()
    def nobody_is_stuck(self) -> None:
        """With nothing in flight and nothing in the way, nobody waits."""
        core = self.core
        if core.mode is Mode.ENFORCE and core.target.idle:
            for waiter in core.target.queue.waiters():
                held = (
                    waiter.ticket.id.owner in self.stalled
                    or core.budgets.gate(waiter.ticket, self.now) is not None
                )
                assert held

    @invariant()
    def the_limit_is_at_least_one(self) -> None:
        """A limit of zero never recovers."""
        assert self.core.target.limit.value >= 1

    @invariant()
    def a_wakeup_is_always_pending(self) -> None:
        """Nobody is forgotten."""
        assert self.core.next_wakeup() is not None


if os.environ.get("HYPOTHESIS_PROFILE") != "search":
    ControllerMachine.TestCase.settings = settings(
        max_examples=60, stateful_step_count=50, deadline=None, derandomize=True
    )
TestControllerMachine = ControllerMachine.TestCase
