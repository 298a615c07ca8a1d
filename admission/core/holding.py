"""Permits from grant to end, and what their ends say of the engine."""

from __future__ import annotations

import heapq

from admission.core.budgets import Budgets
from admission.core.cost import Cost
from admission.core.law import Law
from admission.core.leases import Leases
from admission.core.ledger import Permit
from admission.core.limits import base as limits
from admission.core.measuring import Measured, measure, silent_tpot_s
from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    GateChanged,
    Held,
    LimitChanged,
    Queued,
    Rejected,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
)
from admission.core.recovery import Recovery, SupportsRandom
from admission.core.settings import ControllerConfig
from admission.core.target import Target
from admission.core.virtual import Virtual
from admission.vocabulary import EngineState, Mode, Outcome, Reason, Source, Verdict


class Holding:
    """Grants, first tokens, ends. Each may emit events; the controller hands them out at the end of an input."""

    def __init__(self, config: ControllerConfig, *, random: SupportsRandom, now: float) -> None:
        self.config = config
        self.mode = config.mode
        self.target = Target(config, now)
        self.leases = Leases(config.lease)
        self.recovery = Recovery(config.recovery, random)
        self.budgets = Budgets(self.target, self.recovery)
        self.virtual = Virtual(self.target, now)
        self.law = Law(self.target, self.budgets, self.virtual)
        self.initial_limit = self.target.limit.value
        self.limit_before_outage = 0
        self._random = random
        self._stalled: set[str] = set()
        self._gates_shut = False
        self._events: list[Event] = []
        self._grants_since_aged = 0
        self._silent: list[tuple[float, int, Permit]] = []
        self._sequence = 0

    # Permits

    def _grant(
        self,
        ticket: Ticket,
        cost: Cost,
        waited_s: float,
        now: float,
        *,
        counted: bool,
        over_slo: bool = False,
        shadow: Rejected | Queued | Shed | None = None,
    ) -> None:
        target = self.target
        ahead = target.ledger.pending_prompt + target.ledger.aside_prompt + cost.prompt
        permit = Permit(ticket, cost, now, waited_s, ahead, counted)
        permit.over_slo = over_slo
        permit.kv_expected = target.expected_at_start(ticket, cost)
        target.ledger.add(permit)
        self.leases.grant(ticket.id, now)
        target.mean_cost.add(cost.total)
        if counted:
            target.marks.admitted_at = now
        for gate in target.charging:
            gate.commit(ticket, now)
        if counted:
            self._grants_since_aged += 1
            if self.recovery.closed and self.mode is not Mode.OFF:
                self.recovery.probe(ticket.id, now)
            self._expect_silent(permit)
            self.virtual.on_counted(permit, now)
        self._emit(Admitted(ticket, waited_s, cost.total, None, shadow))

    def _count(self, permit: Permit, now: float) -> None:
        """Hold a permit of shadow against the budgets from now on."""
        self.target.ledger.count(permit)
        self.virtual.on_counted(permit, now)
        if permit.first_token_at is None:
            self._expect_silent(permit)

    def _expect_silent(self, permit: Permit) -> None:
        if permit.ticket.stream and self.target.sees_streams:
            return
        # No first token will be seen: its prompt counts as done when the measured rate says so.
        self._sequence += 1
        due = permit.admitted_at + permit.ahead / self.target.prefill.rate
        heapq.heappush(self._silent, (due, self._sequence, permit))

    def _settle_silent(self, now: float) -> None:
        while self._silent and self._silent[0][0] <= now:
            self.target.ledger.prefilled(heapq.heappop(self._silent)[2])

    def _next_prefilled(self) -> float | None:
        return self._silent[0][0] if self._silent and len(self.target.queue) else None

    def _reinstate(self, held: Held, now: float) -> None:
        target = self.target
        cost = target.cost.predict(held.ticket)
        permit = Permit(held.ticket, cost, now - max(0.0, held.age_s), 0.0, 0, counted=True)
        permit.reinstated = True
        if held.first_token or held.chunks:
            permit.first_token_at = permit.last_chunk_at = now
            if not target.streaming:
                # What was before them was idle, no standstill.
                target.stillness.heard(now)
            permit.still_s = target.stillness.total_s
            permit.chunks = permit.chunks_before = held.chunks
        else:
            permit.ahead = target.ledger.pending_prompt + cost.prompt
        target.ledger.add(permit)
        target.ledger.expect_kv(permit, target.expected_kv(permit))
        self.leases.grant(held.ticket.id, now)
        if permit.first_token_at is None:
            self._expect_silent(permit)
            target.ledger.order_pending()
        if not held.local:
            # One that was saved is back; what a client admitted alone was never saved.
            target.ghosts = max(0, target.ghosts - 1)
            target.ghost_tokens = max(0, target.ghost_tokens - cost.total) if target.ghosts else 0

    def _first_token(self, permit: Permit, now: float, at: float) -> None:
        target = self.target
        target.stillness.moved(at, others=target.streaming)
        permit.first_token_at = permit.last_chunk_at = max(at, permit.admitted_at)
        permit.still_s = target.stillness.total_by(permit.first_token_at)
        target.marks.first_token_at = now
        target.unseen_streams = 0
        target.ledger.read(permit)
        self.virtual.on_first_token(permit)
        if permit.course is None:
            if permit.counted and not permit.reinstated:
                target.prefill.on_first_token(permit, permit.first_token_at)
            target.ledger.prefilled(permit)
            target.ledger.in_time(permit)
            self._leave_the_overtaken(permit, now)
        self._sign_of_life(now)
        before = self.recovery.state
        if self.recovery.on_first_token(permit.ticket.id, now):
            self._reopened(before, now)

    def _leave_the_overtaken(self, permit: Permit, now: float) -> None:
        pending = self.target.ledger.pending
        while pending:
            oldest = next(iter(pending.values()))
            if oldest.admitted_at >= permit.admitted_at or not self.target.prefill.overtaken(oldest, now):
                return
            self.target.ledger.prefilled(oldest)

    def _end(self, id: TicketId, completion: Completion, now: float) -> None:
        target = self.target
        permit = target.ledger.permits[id]
        target.ledger.remove(id, keep=self.virtual.on_end(permit, completion.outcome, now))
        self.leases.end(id)
        waiter = target.queue.remove(id)
        if waiter is not None:
            # In shadow its virtual fate is open: it would wait still, unless its caller has left.
            left = completion.outcome is Outcome.ABORTED
            verdict, reason = (Verdict.SHED, Reason.CANCELLED) if left else (Verdict.QUEUED, None)
            self._emit(ShadowDecided(permit.ticket, verdict, reason, now - waiter.arrived_at))
        measured = measure(permit, completion, target, now)
        self._learn(permit, completion, measured, now)
        for gate in target.charging:
            gate.settle(permit.ticket, completion, now)
        self._recover(id, completion.outcome, now)
        self._emit(
            Finished(
                permit.ticket,
                completion,
                permit.waited_s,
                now - permit.admitted_at,
                measured.ttft_s,
                measured.tpot_s,
                measured.output_tokens,
                measured.good,
            )
        )

    def _learn(self, permit: Permit, completion: Completion, measured: Measured, now: float) -> None:
        target = self.target
        target.finishes.add(1.0)
        if permit.course is None:
            target.drained.add(permit.cost.total)
        if completion.outcome is Outcome.BUSY:
            self.law.on_busy(Source.OWN)
        if completion.outcome is not Outcome.OK:
            return
        self._sign_of_life(now)
        target.stillness.heard(now)
        target.cost.learn(
            permit.ticket,
            completion.prompt_tokens,
            measured.output_tokens if completion.output_tokens else None,
            permit.chunks,
        )
        if self.mode is Mode.SHADOW:
            self.virtual.on_answer(permit, measured.output_tokens)
        if permit.first_token_at is None and permit.ticket.stream:
            target.unseen_streams += 1
        told_late = permit.first_token_at is None and not permit.reinstated and permit.course is None
        if measured.engine_ttft_s is not None and told_late:
            target.prefill.on_first_token(permit, permit.admitted_at + measured.engine_ttft_s)
        tpot_s = measured.tpot_s or silent_tpot_s(permit, completion.output_tokens, target.prefill.rate, now)
        if tpot_s is not None:
            slo_s = target.class_config(permit.ticket.priority).slo.tpot_s
            moving_s = tpot_s - self._stood_s(permit, completion, measured)
            if moving_s > 0:
                target.pace.on_finished(permit, moving_s, slo_s, now)
                self.virtual.on_finished(permit, moving_s, slo_s, now)

    def _stood_s(self, permit: Permit, completion: Completion, measured: Measured) -> float:
        """Of each token's time, what the engine stood: it judges the request, not the load. Seconds."""
        tokens = (measured.output_tokens or 0) // max(1, permit.ticket.n)
        if permit.first_token_at is None or permit.last_chunk_at is None or tokens < 2:
            return 0.0
        # Its last token counts, not when its holder said so: what came in between was no time of its own.
        told_s = completion.decode_s
        last_at = permit.last_chunk_at if told_s is None else permit.first_token_at + told_s
        return (self.target.stillness.total_by(last_at) - permit.still_s) / (tokens - 1)

    # The engine

    def _recover(self, id: TicketId, outcome: Outcome, now: float) -> None:
        before = self.recovery.state
        if not self.recovery.on_end(id, outcome, now):
            return
        if self.recovery.closed:
            self.limit_before_outage = self.target.limit.value
            self._emit(GateChanged("engine", before.value, self.recovery.state.value, self.recovery.why))
        else:
            self._reopened(before, now)

    def _reopened(self, before: EngineState, now: float) -> None:
        target = self.target
        old = target.limit.value
        if not self.law.overridden(now):
            target.limit.after_outage()
        target.prefill.forget()
        target.slots.forget()
        target.untracked.forget()
        for gate in target.gates.values():
            gate.on_engine_start(now)
        self._emit(GateChanged("engine", before.value, self.recovery.state.value, self.recovery.why))
        if target.limit.value != old:
            self._emit(LimitChanged(old, target.limit.value, self.recovery.why))

    def _sign_of_life(self, now: float) -> None:
        if self.recovery.state is EngineState.STARTING and self.recovery.seen(now):
            for gate in self.target.gates.values():
                gate.on_engine_start(now)
            self._emit(
                GateChanged("engine", EngineState.STARTING.value, EngineState.UP.value, self.recovery.why)
            )

    # Settings and events

    def apply(self, config: ControllerConfig) -> None:
        """Take new settings in; what was learned stays."""
        target = self.target
        if config.limit.algorithm != self.config.limit.algorithm:
            value = target.limit.value
            target.limit = limits.discovered()[config.limit.algorithm].build(config.limit)
            if target.limit.adapts:
                target.limit.override(value)
        elif config.limit != self.config.limit:
            target.limit.reconfigure(config.limit)
        for name, gate in target.gates.items():
            gate.reconfigure(getattr(config, name))
        self.config = target.config = config
        target.set_rooms()
        target.set_orders()
        target.queue.ageing_s = config.ageing_s
        target.cost.config = config.cost
        target.prefill.config = config.prefill
        self.recovery.config = config.recovery
        self.leases.config = config.lease

    def _emit(self, event: Event) -> None:
        self._events.append(event)

    def _emit_change(self, change: LimitChanged | None) -> None:
        if change is not None:
            self._events.append(change)

    def _events_out(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    @property
    def _shut(self) -> bool:
        return self._gates_shut or self.recovery.closed or bool(self._stalled)
