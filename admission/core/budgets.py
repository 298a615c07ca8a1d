"""May the head of the queue run now? The five budgets, in the order of the law, and the forecast that refuses."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from admission.core.cost import Cost
from admission.core.gates.base import Hold, Refuse
from admission.core.model import Ticket, Why
from admission.core.recovery import Recovery
from admission.core.target import Target
from admission.vocabulary import Reason, SignalKind


class Block(IntEnum):
    """What keeps a ticket waiting."""

    SLOTS = 1
    STALL = 2
    LIMIT = 3
    KV = 4
    PREFILL = 5
    OVER_SLO = 6
    YIELD = 7


class Forecast(NamedTuple):
    """Predicted TTFT against what the ticket can stand, in seconds."""

    ttft_s: float
    allowed_s: float
    over_slo: bool


class Budgets:
    """Reads the target, changes nothing."""

    def __init__(self, target: Target, recovery: Recovery) -> None:
        self._target = target
        self._recovery = recovery

    def gate(self, ticket: Ticket, now: float) -> Hold | Refuse | None:
        """The first gate that says no or not yet; the outage counts as one."""
        if self._recovery.closed and not self._recovery.may_probe(now):
            return Refuse(Reason.OUTAGE, self._recovery.why, self._recovery.retry_after_s(now))
        hold: Hold | None = None
        for gate in self._target.gates.values():
            if self._target.ledger.exceeded and gate is self._target.kv_gate:
                # Its KV is full of what enforcing would have refused.
                continue
            answer = gate.check(ticket, idle=self._target.idle, now=now)
            if isinstance(answer, Refuse):
                return answer
            hold = hold or answer
        return hold

    def forecast(self, ticket: Ticket, cost: Cost, waited_s: float, now: float) -> Forecast | None:
        """The predicted TTFT of a ticket whose class has a TTFT SLO. None: nothing to predict."""
        target = self._target
        slo_s = target.config.classes[ticket.priority].slo.ttft_for(cost.prompt)
        if slo_s is None:
            return None
        allowed_s = target.prefill.config.refuse_share * slo_s
        alone_s, ttft_s = target.prefill.forecast(cost.prompt, target.ledger, now)
        return Forecast(waited_s + ttft_s, allowed_s, alone_s > allowed_s)

    def hopeless(self, forecast: Forecast | None, now: float) -> bool:
        """Refuse at once? Not a probe on a quiet engine, nor a ticket that no engine could serve in time."""
        if forecast is None or forecast.over_slo or forecast.ttft_s <= forecast.allowed_s:
            return False
        if self._recovery.closed:
            return False
        target = self._target
        quiet_s = 0.5 * target.prefill.slo_s
        return bool(target.ledger.pending) or now - target.marks.admitted_at <= quiet_s

    def never_fits(self, cost: Cost, now: float) -> Why | None:
        """A prompt larger than the engine's whole KV cache."""
        capacity = self._target.kv_capacity(now)
        if capacity is None or cost.prompt < capacity:
            return None
        return Why(
            f"prompt of {cost.prompt} tokens, the engine holds {capacity:.0f}",
            cost.prompt,
            capacity,
            "tokens",
        )

    def block(
        self, ticket: Ticket, cost: Cost, forecast: Forecast | None, rank: int, now: float
    ) -> Block | None:
        """What keeps this ticket from running now as one of that rank; an idle engine always takes one, and a probe goes."""
        if self._target.idle or self._recovery.closed:
            return None
        if forecast is not None and forecast.over_slo and self.over_slo_rationed(now):
            return Block.OVER_SLO
        if rank and self._yields(rank, now):
            return Block.YIELD
        if self._slots_full(now):
            return Block.SLOTS
        if self._target.prefill.stalled(self._target.ledger, now):
            return Block.STALL
        if not self._fits_limit(cost, rank, now):
            return Block.LIMIT
        if not self._fits_kv(ticket, cost, rank, now):
            return Block.KV
        return None if self._fits_prefill(cost, rank, now) else Block.PREFILL

    def still_full(self, cost: Cost, rank: int, now: float) -> bool:
        """Does the limit go on keeping out one that it kept out a moment ago?"""
        return not (self._target.idle or self._recovery.closed or self._fits_limit(cost, rank, now))

    def over_slo_rationed(self, now: float) -> bool:
        """One at a time, and so that they take no more than their share of it: all others wait behind such a prompt."""
        return self._target.ledger.over_slo > 0 or now < self._target.prefill.over_slo_at

    def _slots_full(self, now: float) -> bool:
        target = self._target
        room = target.slots.room(target.finishes.per_second, now)
        return room is not None and target.ledger.counted_sequences + target.untracked_count(now) >= room

    def _fits_limit(self, cost: Cost, rank: int, now: float) -> bool:
        target = self._target
        most = target.limit.requests
        if most is not None:
            # The least urgent class keeps one place at least, or its share of a small number would be none.
            room = max(1.0, most * target.rooms[rank][0])
            if target.ledger.counted_sequences + target.untracked_count(now) >= room:
                return False
        limit = target.limit.value * target.rooms[rank][0]
        return target.ledger.used + target.untracked_tokens(now) + cost.total <= limit

    def _yields(self, rank: int, now: float) -> bool:
        """Had a more urgent class to wait a moment ago? Filler goes where nobody is in its way."""
        target = self._target
        return any(now - at < target.config.yield_s for at in target.blocked_at[:rank])

    def _fits_kv(self, ticket: Ticket, cost: Cost, rank: int, now: float) -> bool:
        target = self._target
        capacity = target.kv_capacity(now)
        if capacity is None:
            return True
        expected = target.ledger.kv_expected + target.expected_at_start(ticket, cost)
        scale = 1.0 if target.kv_scale.value is None else target.kv_scale.value
        share = target.config.kv_forecast.set_point * (1.0 - target.config.kv_room) ** rank
        return scale * expected <= share * capacity - self.foreign_kv(capacity, now)

    def foreign_kv(self, capacity: float, now: float) -> float:
        """KV tokens that untracked work holds: its share of what the engine runs."""
        target = self._target
        untracked, ratio = target.untracked_count(now), target.kv_gate.ratio
        if not untracked or ratio is None:
            return 0.0
        on_engine = (target.engine.value(SignalKind.RUNNING, now) or 0.0) + (
            target.engine.value(SignalKind.WAITING, now) or 0.0
        )
        return ratio * capacity * min(1.0, untracked / on_engine) if on_engine else 0.0

    def _fits_prefill(self, cost: Cost, rank: int, now: float) -> bool:
        target = self._target
        if not target.ledger.pending:
            return True
        budget = target.prefill.budget(target.ledger, now) * target.rooms[rank][1]
        return target.prefill.unread(target.ledger, now) + cost.prompt <= budget
