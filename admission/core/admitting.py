"""How one ticket gets in: decided on arrival, queued, taken from the head, shed."""

from __future__ import annotations

from admission.core.budgets import Block, Budgets, Forecast
from admission.core.cost import Cost
from admission.core.gates.base import Hold, Refuse
from admission.core.holding import Holding
from admission.core.model import (
    Flow,
    GateChanged,
    Queued,
    Rejected,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.core.queueing.queue import Waiter
from admission.core.settings import ClassConfig
from admission.vocabulary import Mode, PriorityClass, Reason, Source, Verdict

MAX_WAITED_S = 10.0
"""A caller that comes back keeps at most so much of the time that it says it has waited."""
LOOK_AGAIN_S = 0.1
FITTING = frozenset({Block.LIMIT, Block.KV, Block.PREFILL})
HELD_UP = frozenset({Block.LIMIT, Block.KV, Block.SLOTS})
"""Where one in the queue waits for what less urgent ones hold: they stay out for a moment. (Prefill frees itself.)"""
MOST_PASSED = 4
"""Waiters that do not fit, of which each look at the queue passes no more than this many."""
AGED_EVERY = 10
BLOCKED = {
    Block.SLOTS: "the engine runs all the sequences that it can",
    Block.STALL: "the engine stands still",
    Block.LIMIT: "the limit is full",
    Block.KV: "the KV cache would be overrun",
    Block.PREFILL: "the prefill budget is full",
    Block.YIELD: "a more urgent class had to wait a moment ago",
    Block.OVER_SLO: "it misses its SLO anyhow, and such requests have had their share",
}


class Passing:
    """Which waiters may be picked now? Each gate is asked once for a class and flow, however many wait."""

    def __init__(self, budgets: Budgets | None, stalled: set[str], now: float) -> None:
        self._budgets = budgets
        self._stalled = stalled
        self._now = now
        self._asked: dict[tuple[int, Flow], bool] = {}
        self._around: set[TicketId] = set()
        self._passed = 0
        self._rank = len(PriorityClass)

    def __call__(self, waiter: Waiter) -> bool:
        """May this one run as far as gates and its session are concerned?"""
        ticket = waiter.ticket
        if ticket.id in self._around or ticket.id.owner in self._stalled or ticket.priority > self._rank:
            return False
        return self._budgets is None or self._gates_pass(self._budgets, ticket)

    def _gates_pass(self, budgets: Budgets, ticket: Ticket) -> bool:
        key = (ticket.priority, ticket.flow)
        if key not in self._asked:
            self._asked[key] = budgets.gate(ticket, self._now) is None
        return self._asked[key]

    def step_around(self, waiter: Waiter) -> None:
        """Leave this one out for now."""
        self._around.add(waiter.ticket.id)

    def may_pass(self, waiter: Waiter, settings: ClassConfig) -> bool:
        """May a smaller one of its class go in its place, since this one does not fit? A few are looked at, not all."""
        if settings.order != "fit" or self._now >= waiter.turn_at or self._passed >= MOST_PASSED:
            return False
        self._passed += 1
        self._rank = waiter.ticket.priority
        self.step_around(waiter)
        return True


class Admitting(Holding):
    """The way from submit to grant."""

    _in_the_way = ""

    # Arrival

    def _submit(self, ticket: Ticket, now: float) -> None:
        if self.mode is Mode.SHADOW:
            self._submit_in_shadow(ticket, now)
        else:
            self._decide(ticket, now)

    def _submit_in_shadow(self, ticket: Ticket, now: float) -> None:
        before = len(self._events)
        self._decide(ticket, now)
        if ticket.id in self.target.ledger.permits:
            return
        index = next(i for i in range(before, len(self._events)) if self._answers(i, ticket))
        event = self._events.pop(index)
        assert isinstance(event, Queued | Rejected | Shed)  # noqa: S101 - narrows a type
        self._grant(ticket, self.target.cost.predict(ticket), 0.0, now, counted=False, shadow=event)

    def _answers(self, index: int, ticket: Ticket) -> bool:
        event = self._events[index]
        return isinstance(event, Queued | Rejected | Shed) and event.ticket is ticket

    def _decide(self, ticket: Ticket, now: float) -> None:
        cost = self.target.cost.predict(ticket)
        never = self.budgets.never_fits(cost, now)
        if never is not None:
            self._emit(Rejected(ticket, Reason.NEVER_FITS, None, never))
            return
        answer = self.budgets.gate(ticket, now) if self._shut else None
        if isinstance(answer, Refuse):
            self._emit(Rejected(ticket, answer.reason, self._jittered(answer.retry_after_s), answer.why))
            return
        waited_s = min(ticket.waited_s, MAX_WAITED_S)
        forecast = self.budgets.forecast(ticket, cost, waited_s, now)
        if forecast is not None and self.budgets.hopeless(forecast, now):
            late_s = forecast.ttft_s - forecast.allowed_s
            self._reject(ticket, Reason.TTFT_FORECAST, _forecast_why(forecast), late_s)
        elif not self._admit_at_once(ticket, cost, answer, forecast, now):
            self._enqueue(ticket, cost, waited_s, now)

    def _admit_at_once(
        self, ticket: Ticket, cost: Cost, held: Hold | None, forecast: Forecast | None, now: float
    ) -> bool:
        self._in_the_way = "others wait before it"
        if held is not None or ticket.id.owner in self._stalled:
            self._in_the_way = (
                held.why.detail if held is not None else "its session does not read its answers"
            )
            return False
        if self._silent:
            self._settle_silent(now)
        if len(self.target.queue) and self._someone_first(ticket, now):
            return False
        block = self.budgets.block(ticket, cost, forecast, ticket.priority, now)
        if block is not None:
            self._in_the_way = BLOCKED[block]
            self._note(block, ticket.priority)
            return False
        self._grant(ticket, cost, ticket.waited_s, now, counted=True, over_slo=_over_slo(forecast))
        return True

    def _someone_first(self, ticket: Ticket, now: float) -> bool:
        """Does somebody wait who may run and is as urgent?"""
        passes = self._passing(now)
        while True:
            head = self.target.queue.pick(passes, now, aged=self._turn_of_the_aged)
            if head is None or self._rank(head, now) > ticket.priority:
                return False
            if not self._waits_for_its_like(head, now):
                return True
            passes.step_around(head)

    def _waits_for_its_like(self, waiter: Waiter, now: float) -> bool:
        """It misses its SLO anyhow and it is not the turn of such tickets: no reason for others to wait."""
        if not self.budgets.over_slo_rationed(now):
            return False
        forecast = self.budgets.forecast(waiter.ticket, waiter.cost, 0.0, now)
        return forecast is not None and forecast.over_slo

    def _enqueue(self, ticket: Ticket, cost: Cost, waited_s: float, now: float) -> None:
        patience_s = self._patience_s(ticket, cost)
        if waited_s >= patience_s:
            why = Why(f"may not wait longer: {self._in_the_way}", waited_s, patience_s, "s")
            self._reject(ticket, Reason.DEADLINE, why)
            return
        full = self._queue_is_full(ticket, cost)
        if full is not None:
            self._reject(ticket, full[0], full[1])
            return
        arrived_at = now - waited_s
        position = self.target.queue.ahead_of(ticket.priority)[0] + 1
        expected_wait_s = min(self._expected_wait_s(ticket.priority, cost.total), patience_s)
        due_at = arrived_at + self._due_in_s(ticket, cost)
        start_by = due_at - cost.prompt / self.target.prefill.rate
        turn_at = arrived_at + self.target.class_config(ticket.priority).overtaken_for(cost.prompt)
        self.target.queue.add(
            Waiter(ticket, cost, arrived_at, arrived_at + patience_s, due_at, start_by, turn_at)
        )
        self._pump(now)
        if ticket.id in self.target.queue:
            self._emit(Queued(ticket, position, expected_wait_s))

    def _queue_is_full(self, ticket: Ticket, cost: Cost) -> tuple[Reason, Why] | None:
        queue, settings = self.target.queue, self.target.class_config(ticket.priority)
        count = queue.count[ticket.priority]
        if count >= settings.queue_tickets:
            detail = f"{count} {ticket.priority.label} tickets wait"
            return Reason.QUEUE_FULL, Why(detail, count, settings.queue_tickets, "tickets")
        tokens = queue.prompt_tokens[ticket.priority] + cost.prompt
        bound = settings.queue_rate_s * self.target.prefill.rate
        if count and tokens > bound:
            detail = f"{tokens} prompt tokens would wait"
            return Reason.QUEUE_TOKENS, Why(detail, tokens, bound, "tokens")
        return None

    def _patience_s(self, ticket: Ticket, cost: Cost) -> float:
        longest = self.target.class_config(ticket.priority).patience_for(cost.prompt)
        return longest if ticket.patience_s is None else min(ticket.patience_s, longest)

    def _due_in_s(self, ticket: Ticket, cost: Cost) -> float:
        """The TTFT that it should have; of a class without one, how long it may wait. Seconds."""
        settings = self.target.class_config(ticket.priority)
        slo_s = settings.slo.ttft_for(cost.prompt)
        return settings.patience if slo_s is None else slo_s

    def _expected_wait_s(self, priority: PriorityClass, own: int) -> float:
        """Cost that waits before it and its own, over the cost that finishes per second."""
        ahead = self.target.queue.ahead_of(priority)[1] + own
        drained = self.target.drained.per_second
        return ahead / drained if drained > 0 else 1.0

    def _reject(self, ticket: Ticket, reason: Reason, why: Why, late_s: float = 0.0) -> None:
        own = self.target.cost.predict(ticket).total
        expected_s = self._expected_wait_s(ticket.priority, own)
        position = self.target.queue.ahead_of(ticket.priority)[0] + 1
        retry_s = self._jittered(max(expected_s, late_s))
        self._emit(Rejected(ticket, reason, retry_s, why, position, expected_s))

    def _jittered(self, seconds: float) -> float:
        """Retry-After: bounded, and spread so that those refused together do not come back together."""
        bounds = self.config.retry_after
        # Bounded first and spread then: else all long waits would end at the very same bound.
        bounded = min(max(seconds, bounds.min_s), bounds.max_s / (1.0 + bounds.jitter))
        return bounded * (1.0 - bounds.jitter + 2.0 * bounds.jitter * self._random.random())

    # The queue

    def _pump(self, now: float) -> None:
        """Bring the queue to rest: admit from its head while there is room."""
        queue = self.target.queue
        for late in queue.expired(now):
            # A timer may be late; nobody is admitted after their deadline all the same.
            self._shed_expired(late, now)
        if self._silent:
            self._settle_silent(now)
        passes = self._passing(now)
        while len(queue):
            waiter = queue.pick(passes, now, aged=self._turn_of_the_aged)
            if waiter is None or not self._try_head(waiter, passes, now):
                return
            if self.recovery.closed:
                # That was the probe.
                return

    def _passing(self, now: float) -> Passing:
        return Passing(self.budgets, self._stalled, now) if self._shut else Passing(None, self._stalled, now)

    @property
    def _turn_of_the_aged(self) -> bool:
        """One grant in ten may go to a ticket that ageing made urgent: batch is not starved, nor does it starve others."""
        return self._grants_since_aged >= AGED_EVERY - 1

    def _rank(self, waiter: Waiter, now: float) -> int:
        return self.target.queue.rank(waiter, now, aged=self._turn_of_the_aged)

    def _try_head(self, waiter: Waiter, passes: Passing, now: float) -> bool:
        waited_s, rank = now - waiter.arrived_at, self._rank(waiter, now)
        if now - waiter.full_at < LOOK_AGAIN_S and self.budgets.still_full(waiter.cost, rank, now):
            # Nothing else can have changed much since: most looks at a full limit end here.
            self._note(Block.LIMIT, rank)
            self.target.blocked_at[waiter.ticket.priority] = now
            return False
        forecast = self.budgets.forecast(waiter.ticket, waiter.cost, waited_s, now)
        if forecast is not None and self.budgets.hopeless(forecast, now):
            self.target.queue.remove(waiter.ticket.id)
            self._shed(waiter, Reason.TTFT_FORECAST, _forecast_why(forecast), now)
            return True
        block = self.budgets.block(waiter.ticket, waiter.cost, forecast, rank, now)
        if block is Block.OVER_SLO:
            # It waits for another such ticket, which is no reason for the others to wait.
            passes.step_around(waiter)
            return True
        if block is not None:
            self._note(block, rank)
            if block in HELD_UP:
                self.target.blocked_at[waiter.ticket.priority] = now
            if block in FITTING and passes.may_pass(waiter, self.target.class_config(waiter.ticket.priority)):
                return True
            # Stop here: a smaller ticket slipping past would starve large ones and turn priority round.
            waiter.full_at = now if block is Block.LIMIT else float("-inf")
            return False
        self.target.queue.remove(waiter.ticket.id)
        self.target.queue.served(waiter, now)
        self._admit_waiter(waiter, _over_slo(forecast), now)
        if rank < waiter.ticket.priority:
            self._grants_since_aged = 0
        return True

    def _admit_waiter(self, waiter: Waiter, over_slo: bool, now: float) -> None:
        permit = self.target.ledger.permits.get(waiter.ticket.id)
        waited_s = now - waiter.arrived_at
        if permit is None:
            self._grant(waiter.ticket, waiter.cost, waited_s, now, counted=True, over_slo=over_slo)
            return
        permit.late_s = now - permit.admitted_at
        self.target.marks.admitted_at = now
        self._count(permit, now)
        self._emit(ShadowDecided(waiter.ticket, Verdict.ADMITTED, None, waited_s))

    def _shed(
        self, waiter: Waiter, reason: Reason, why: Why, now: float, retry_s: float | None = None
    ) -> None:
        waited_s = now - waiter.arrived_at
        if waiter.ticket.id in self.target.ledger.permits:
            self._emit(ShadowDecided(waiter.ticket, Verdict.SHED, reason, waited_s))
            return
        expected_s = self._expected_wait_s(waiter.ticket.priority, waiter.cost.total)
        base_s = expected_s if retry_s is None else retry_s
        retry_after_s = None if reason is Reason.CANCELLED else self._jittered(base_s)
        self._emit(Shed(waiter.ticket, reason, retry_after_s, why, waited_s))

    def _shed_expired(self, waiter: Waiter, now: float) -> None:
        held = self.budgets.gate(waiter.ticket, now) if self._shut else None
        if held is not None:
            # The reason that helps, not just that time was over.
            self._shed(waiter, held.reason, held.why, now)
            return
        waited_s, patience_s = now - waiter.arrived_at, waiter.deadline_at - waiter.arrived_at
        why = Why(f"waited {waited_s:.2f} s of {patience_s:.2f} s", waited_s, patience_s, "s")
        self._shed(waiter, Reason.DEADLINE, why, now)

    def _cancel_waiter(self, id: TicketId, now: float) -> bool:
        waiter = self.target.queue.remove(id)
        if waiter is None:
            return False
        self._shed(waiter, Reason.CANCELLED, Why("its caller left"), now)
        return True

    def _sweep(self, now: float) -> None:
        """A gate changed: waiters that it refuses leave at once, rather than at their deadline."""
        for waiter in self.target.queue.waiters():
            answer = self.budgets.gate(waiter.ticket, now)
            if isinstance(answer, Refuse) and answer.reason is not Reason.OUTAGE:
                self.target.queue.remove(waiter.ticket.id)
                self._shed(waiter, answer.reason, answer.why, now, answer.retry_after_s)

    def _note(self, block: Block, rank: int) -> None:
        target = self.target
        if block is Block.LIMIT:
            target.refused_for_limit = True
            target.refused_room = max(target.refused_room, target.rooms[rank][0])
        else:
            target.refused_for_other = True
            target.refused_for_prefill = target.refused_for_prefill or block is Block.PREFILL

    def _gate_changed(self, name: str, before: str, now: float) -> None:
        views = {gate.name: gate.view() for gate in self.target.gates.values()}
        self._gates_shut = any(view.state != "open" for view in views.values())
        self._emit(GateChanged(name, before, views[name].state, views[name].why))
        self._sweep(now)
        self._pump(now)

    def _stop_enforcing(self, now: float) -> None:
        for waiter in self.target.queue.waiters():
            self.target.queue.remove(waiter.ticket.id)
            if waiter.ticket.id not in self.target.ledger.permits:
                self._grant(waiter.ticket, waiter.cost, now - waiter.arrived_at, now, counted=True)


def _over_slo(forecast: Forecast | None) -> bool:
    return forecast is not None and forecast.over_slo


def _forecast_why(forecast: Forecast) -> Why:
    detail = f"TTFT forecast {forecast.ttft_s:.2f} s, at most {forecast.allowed_s:.2f} s"
    return Why(detail, forecast.ttft_s, forecast.allowed_s, "s", Source.OWN)
