"""The state machine that composes gates, budgets, queue, limit and leases; a function of timed inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from admission.core.admitting import Admitting
from admission.core.model import (
    Completion,
    Event,
    GateChanged,
    Held,
    LeaseExpired,
    Reading,
    Sample,
    Ticket,
    TicketId,
    View,
    Why,
)
from admission.core.recovery import SupportsRandom
from admission.core.saved import SavedState
from admission.core.settings import ClassConfig, ControllerConfig, KvForecastConfig, RetryAfterConfig
from admission.core.showing import saved_state, view
from admission.vocabulary import EngineState, Mode, Outcome, SignalKind, Source

__all__ = [
    "ClassConfig",
    "Controller",
    "ControllerConfig",
    "KvForecastConfig",
    "RetryAfterConfig",
    "SavedState",
]


PAUSE_S = 5.0
"""A tick later than this means that the process stood still."""


class Controller(Admitting):
    """One target's admission. Every input takes `now` (monotonic seconds, never less than before) and returns events."""

    def __init__(
        self, config: ControllerConfig, *, random: SupportsRandom, now: float, saved: SavedState | None = None
    ) -> None:
        super().__init__(config, random=random, now=now)
        self._next_tick = now + config.tick_s
        self.ignored_finishes = 0
        if saved is not None:
            self._restore(saved, now)

    def _restore(self, saved: SavedState, now: float) -> None:
        target = self.target
        if saved.learned and target.limit.adapts:
            # The engine is not asked yet: half, and what the saved permits held counts until they are announced or die.
            target.limit.override(max(1, saved.limit))
            target.limit.after_outage()
            self.law.adopted = True
        if saved.held:
            target.ghosts, target.ghost_tokens = saved.held, saved.held_tokens
            target.ghosts_until = now + self.config.lease.ttl_s
        target.prefill.restored = saved.prefill_rate
        if saved.mean_cost is not None:
            target.mean_cost.value = saved.mean_cost
        if saved.tokens_per_chunk is not None:
            target.cost.tokens_per_chunk.value = saved.tokens_per_chunk
        target.cost.restore(saved.outputs)
        target.slots.learned = saved.slots

    # Inputs about tickets

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """A ticket asks to run. ValueError when its id is queued or in flight already."""
        if self.knows(ticket.id):
            raise ValueError(f"ticket {ticket.id} is known already")
        self.target.marks.class_at[ticket.priority] = now
        if self.mode is Mode.OFF:
            self._grant(ticket, self.target.cost.predict(ticket), 0.0, now, counted=True)
        else:
            self._submit(ticket, now)
        return self._events_out()

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """An admitted ticket ended. One that is not in flight is ignored and counted: networks repeat themselves."""
        if id not in self.target.ledger.permits:
            self.ignored_finishes += 1
            return []
        self._end(id, completion, now)
        return self._settled(now)

    def first_token(self, id: TicketId, now: float, ago_s: float = 0.0) -> list[Event]:
        """The first output token came, `ago_s` before now."""
        permit = self.target.ledger.permits.get(id)
        if permit is None or permit.first_token_at is not None:
            return []
        self._first_token(permit, now, now - max(0.0, ago_s))
        return self._settled(now)

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """New output chunks: (id, how many, seconds since the newest came)."""
        target, begun, newest, most = self.target, False, -inf, 0
        permits, others = target.ledger.permits, target.streaming
        for id, chunks, age_s in items:
            permit = permits.get(id)
            if permit is None or chunks <= 0:
                continue
            at = now - age_s if age_s > 0 else now
            if permit.first_token_at is None:
                self._first_token(permit, now, at)
                begun = True
            target.ledger.reported += not permit.chunks
            permit.chunks += chunks
            if permit.last_chunk_at is None or at > permit.last_chunk_at:
                permit.last_chunk_at = at
            newest, most = max(newest, at), max(most, chunks)
        if newest > -inf:
            target.marks.progress_at = now
            target.stillness.moved(newest, others=others, chunks=most)
        # Chunks alone make room for nobody.
        return self._settled(now) if begun else self._events_out()

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Its caller left: a waiter is gone at once, an admitted one is given back."""
        if id in self.target.ledger.permits:
            self._end(id, Completion(Outcome.ABORTED), now)
        elif not self._cancel_waiter(id, now):
            return []
        return self._settled(now)

    # Inputs about sessions

    def renew(self, owner: str, now: float) -> list[Event]:
        """The owner gave a sign of life."""
        self.leases.renew(owner, now)
        return []

    def attach(self, owner: str, now: float) -> list[Event]:
        """The owner's stream is whole again."""
        self._stalled.discard(owner)
        self.leases.renew(owner, now)
        return self._settled(now)

    def detach(self, owner: str, now: float) -> list[Event]:
        """The owner's stream broke: its waiters go, its permits have the grace to be announced again."""
        self._stalled.discard(owner)
        self.leases.detach(owner, now)
        for id in self.target.queue.owned_by(owner):
            self._cancel_waiter(id, now)
        return self._settled(now)

    def leave(self, owner: str, now: float) -> list[Event]:
        """The owner said goodbye: all it has is given back."""
        for id in self.leases.held_by(owner):
            self._end(id, Completion(Outcome.ABORTED), now)
        return self.detach(owner, now)

    def stalled(self, owner: str, stalled: bool, now: float) -> list[Event]:
        """No grants to an owner that does not read its answers."""
        if stalled:
            self._stalled.add(owner)
        else:
            self._stalled.discard(owner)
        return self._settled(now)

    def reinstate(self, held: Sequence[Held], now: float) -> list[Event]:
        """Permits announced by their holder: those not known here are in flight from now on, whatever the limit."""
        for one in held:
            if not self.knows(one.ticket.id):
                self._reinstate(one, now)
        return self._events_out()

    # Inputs about the engine

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """One measured value."""
        if reading.kind is SignalKind.ENGINE_UP:
            self._on_engine_up(reading, now)
        for gate in self.target.gates.values():
            if reading.kind in gate.concerns:
                before = gate.view().state
                if gate.observe(reading, now):
                    self._gate_changed(gate.name, before, now)
        self._emit_change(self.law.observe(reading, now))
        return self._events_out()

    def _on_engine_up(self, reading: Reading, now: float) -> None:
        up = reading.value > 0
        if up:
            self._sign_of_life(now)
        before = self.recovery.state
        if self.recovery.on_scrape(up, reading.at, now):
            self._reopened(before, now)
            self._pump(now)

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """One finished request, from a span of the target's primary emitter."""
        self.law.sample(sample, now)
        return []

    def wake(self, now: float) -> list[Event]:
        """Time has passed: deadlines, leases, the law."""
        self.virtual.run(now)
        if now - self._next_tick > PAUSE_S:
            # We did not run (a stopped process, a moved machine): nobody could renew in that time.
            self.leases.pause(now - self._next_tick, now)
            self.target.stillness.heard(now)
        for waiter in self.target.queue.expired(now):
            self._shed_expired(waiter, now)
        for id in self.leases.expired(now):
            permit = self.target.ledger.permits[id]
            self._emit(LeaseExpired(id, permit.cost.total, now - permit.admitted_at))
            self._end(id, Completion(Outcome.LOST), now)
        if now >= self._next_tick:
            self._next_tick = now + self.config.tick_s
            self._tick(now)
        return self._settled(now)

    def _tick(self, now: float) -> None:
        frozen = self.law.frozen
        self._emit_change(self.law.on_tick(self.mode, now))
        if bool(self.law.frozen) != bool(frozen):
            self._emit(GateChanged("limit", _moves(frozen), _moves(self.law.frozen), Why(self.law.frozen)))
        before = self.recovery.state
        if self.recovery.tick(self._limit_is_back(), now):
            self._emit(GateChanged("engine", before.value, self.recovery.state.value, self.recovery.why))
        for gate in self.target.gates.values():
            state = gate.view().state
            if gate.on_tick(now):
                self._gate_changed(gate.name, state, now)

    # Inputs from operators

    def set_mode(self, mode: Mode, now: float) -> list[Event]:
        """Switch. Nothing that runs is touched; what waits is admitted when enforcing ends."""
        before, self.mode = self.mode, mode
        if before is mode:
            return []
        self.virtual.forget(now)
        self._emit(GateChanged("mode", before.name.lower(), mode.name.lower(), Why(source=Source.OPERATOR)))
        if mode is Mode.ENFORCE:
            self._start_enforcing(now)
        else:
            self._stop_enforcing(now)
        return self._settled(now)

    def _start_enforcing(self, now: float) -> None:
        for waiter in self.target.queue.waiters():
            self.target.queue.remove(waiter.ticket.id)
        for permit in self.target.ledger.permits.values():
            self._count(permit, now)
        self.target.ledger.order_pending()
        self._emit_change(self.law.adopt(now))

    def set_drain(self, drain: bool, now: float) -> list[Event]:
        """Stop admitting, or start again."""
        gate = self.target.drain_gate
        before = gate.view().state
        if gate.draining != drain:
            gate.draining = drain
            self._gate_changed(gate.name, before, now)
        return self._events_out()

    def set_limit(self, limit_tokens: int | None, until: float | None, now: float) -> list[Event]:
        """Hold the limit at a value until an instant (None: for an hour), or (None tokens) give it back to the law."""
        self._emit_change(self.law.override(limit_tokens, until, now))
        return self._settled(now)

    def reconfigure(self, config: ControllerConfig, now: float) -> list[Event]:
        """New settings. What is in flight, waiting and learned stays; another limit that adapts goes on from today's value."""
        mode = config.mode if config.mode is not self.config.mode else self.mode
        self.apply(config)
        return [*self.set_mode(mode, now), *self._settled(now)]

    def _settled(self, now: float) -> list[Event]:
        if self._silent or len(self.target.queue):
            self._pump(now)
        return self._events_out()

    # What others may ask

    def knows(self, id: TicketId) -> bool:
        """Is it queued or in flight?"""
        return id in self.target.ledger.permits or id in self.target.queue

    def held_by(self, owner: str) -> list[TicketId]:
        """The permits of one session."""
        return self.leases.held_by(owner)

    def next_wakeup(self) -> float | None:
        """When to call `wake` next: monotonic seconds, never before the last `now` once `wake` has returned."""
        target = self.target
        earliest = self._next_tick
        instants = [
            target.queue.next_deadline(),
            self.leases.next_at(),
            self._next_prefilled(),
            self.virtual.next_at(),
        ]
        instants += [gate.next_at() for gate in target.timed]
        for instant in instants:
            if instant is not None and instant < earliest:
                earliest = instant
        return earliest

    def view(self, now: float) -> View:
        """What to show, as a copy."""
        return view(self, now)

    def save(self, now: float) -> SavedState:
        """What should outlive a restart."""
        return saved_state(self, now)

    def _limit_is_back(self) -> bool:
        return (
            self.recovery.state is EngineState.REOPENING
            and self.target.limit.value >= 0.9 * self.limit_before_outage
        )


def _moves(frozen: str) -> str:
    return "frozen" if frozen else "moves"
