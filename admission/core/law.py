"""The control law: once a second, from what the target shows, to the limit."""

from __future__ import annotations

from collections.abc import Iterator

from admission.core.budgets import Budgets
from admission.core.limits.base import Load
from admission.core.model import LimitChanged, Reading, Sample, Why
from admission.core.pace import Excess, Streaming, streaming
from admission.core.target import Target
from admission.core.virtual import Virtual
from admission.vocabulary import Mode, Outcome, Sight, SignalKind, Source

PATIENCE_WITHOUT_SIGNAL_S = 10.0
SEEN_S = 30.0


class Law:
    """Reads the target, moves its limit, and says why, also when it stands still."""

    def __init__(self, target: Target, budgets: Budgets, virtual: Virtual) -> None:
        self._target = target
        self._virtual = virtual
        self._budgets = budgets
        self.frozen = ""
        self.excess: Excess | None = None
        self.adopted = False
        """No scrape may raise the limit to what runs any more: one did, or a saved limit says how much may."""
        self._override_until: float | None = None

    def on_tick(self, mode: Mode, now: float) -> LimitChanged | None:
        """One second of the law."""
        target = self._target
        target.prefill.slo_s = target.ttft_slo_s(now)
        target.finishes.fold(now)
        target.drained.fold(now)
        # The pace of an engine that stands says nothing about the load.
        standing = target.streaming and target.stillness.standing(now)
        self.excess = None if standing else target.pace.excess(self._live(now), now)
        if mode is Mode.SHADOW:
            self._virtual.watch(now)
        self._look_at_permits()
        if mode is Mode.SHADOW:
            self._virtual.tick(target.config.tick_s, now)
        if self.excess is not None or target.pace.watched:
            target.marks.signal_at = now
        self._give_up_on_the_silent(now)
        self.frozen = self._why_frozen(mode, now)
        load = self._load(mode, now)
        target.busy = None
        target.refused_for_limit = target.refused_for_other = target.refused_for_prefill = False
        target.refused_room = 0.0
        return self._move(load, mode, now)

    def _give_up_on_the_silent(self, now: float) -> None:
        """One request that hangs in prefill must not stop the others for ever."""
        target = self._target
        oldest = next(iter(target.ledger.pending.values()), None)
        if oldest is not None and target.prefill.given_up(oldest, target.marks.progress_at, now):
            target.ledger.prefilled(oldest)

    def _move(self, load: Load, mode: Mode, now: float) -> LimitChanged | None:
        if mode is Mode.OFF or self.overridden(now):
            return None
        before = self._target.limit.value
        why = self._target.limit.on_tick(load, now)
        if why is None:
            return None
        if self._target.limit.value < before:
            self._target.pace.cut_at = self._virtual.pace.cut_at = now
        return LimitChanged(before, self._target.limit.value, why)

    def override(self, limit_tokens: int | None, until: float | None, now: float) -> LimitChanged | None:
        """An operator holds the limit, or gives it back."""
        self._override_until = None if limit_tokens is None else (now + 3600.0 if until is None else until)
        if limit_tokens is None:
            return None
        return self.set(limit_tokens, Why("set by an operator", limit_tokens, 0.0, "tokens", Source.OPERATOR))

    def set(self, limit_tokens: int, why: Why) -> LimitChanged | None:
        """Put the limit at a value."""
        before = self._target.limit.value
        self._target.limit.override(limit_tokens)
        after = self._target.limit.value
        return None if after == before else LimitChanged(before, after, why)

    def overridden(self, now: float) -> bool:
        """Does an operator hold the limit?"""
        if self._override_until is not None and now >= self._override_until:
            self._override_until = None
        return self._override_until is not None

    def adopt(self, now: float) -> LimitChanged | None:
        """What runs on the engine already may go on: taking over at peak must not be an outage."""
        target = self._target
        if not target.limit.adapts or (self.excess is not None and self.excess.value < 0):
            return None
        running = target.ledger.used_really + self._foreign_running(now)
        if running <= target.limit.value:
            return None
        return self.set(running, Why("takes over what runs already", running, target.limit.value, "tokens"))

    def _foreign_running(self, now: float) -> int:
        """Tokens of untracked work that runs: what waits inside the engine is no proof that it can be carried."""
        target = self._target
        running = target.engine.value(SignalKind.RUNNING, now)
        count = target.untracked_count(now)
        if running is not None:
            count = min(count, running)
        tokens = count * target.mean_cost.value
        capacity = target.kv_capacity(now)
        return int(tokens if capacity is None else min(tokens, capacity))

    def _live(self, now: float) -> Iterator[Streaming]:
        target = self._target
        ratios: dict[str, float] = {}
        for permit in target.ledger.permits.values():
            if permit.first_token_at is None:
                continue
            model = permit.ticket.flow.model
            if model not in ratios:
                ratios[model] = target.cost.tokens(model, 1)
            slo_s = target.class_config(permit.ticket.priority).slo.tpot_s
            stream = streaming(permit, ratios[model], slo_s, target.stillness.total_s, now)
            if stream is not None:
                yield stream

    def _look_at_permits(self) -> None:
        """Once a second: set a mark in each stream, and see how much KV each is expected to hold."""
        target = self._target
        for permit in target.ledger.permits.values():
            if permit.last_chunk_at is not None:
                permit.mark(permit.last_chunk_at - target.stillness.total_by(permit.last_chunk_at))
            target.ledger.expect_kv(permit, target.expected_kv(permit))

    def _why_frozen(self, mode: Mode, now: float) -> str:
        target = self._target
        if mode is Mode.SHADOW and self._virtual.exceeds and not target.ledger.exceeded:
            return "shadow: more is in flight than enforcing would admit"
        if not target.ledger or mode is Mode.OFF:
            return ""
        quiet_since = max(target.marks.signal_at, target.marks.started_at)
        if now - quiet_since <= PATIENCE_WITHOUT_SIGNAL_S:
            return ""
        return "no signal: neither streams, nor the engine's metrics, nor spans tell how fast it is"

    def _load(self, mode: Mode, now: float) -> Load:
        target = self._target
        excess, pace, exceeded = self.excess, target.pace, target.ledger.exceeded
        if mode is Mode.SHADOW and self._virtual.plant.known and (exceeded or excess is not None):
            excess, pace = self._virtual.excess, self._virtual.pace
        return Load(
            used=target.ledger.used,
            in_flight=target.ledger.counted,
            untracked=target.untracked_tokens(now),
            refused_for_limit=target.refused_for_limit,
            refused_for_other=target.refused_for_other,
            room=target.refused_room or 1.0,
            excess=None if excess is None else excess.value,
            lasting=pace.lasting,
            excess_why=Why() if excess is None else excess.why,
            # Of an engine that holds more than enforcing would admit, fullness is no sign.
            congested=None if exceeded else target.busy or self._critical(),
            kv_hot=target.vram_gate.hot or (target.kv_gate.hot and not exceeded),
            mean_cost=target.mean_cost.value,
            capacity=target.kv_capacity(now),
            frozen=bool(self.frozen),
        )

    def _critical(self) -> Why | None:
        gate = self._target.kv_gate
        return gate.view().why if gate.state == "critical" else None

    def observe(self, reading: Reading, now: float) -> LimitChanged | None:
        """Take an engine reading in."""
        target = self._target
        if reading.kind is SignalKind.PREEMPTIONS_TOTAL:
            self._on_preemptions(target.engine.rise(reading))
        target.engine.take(reading)
        if reading.kind is SignalKind.ENGINE_UP and reading.value <= 0:
            target.pace.lost_scrape()
            return None
        return self._on_kind(reading, now)

    def _on_kind(self, reading: Reading, now: float) -> LimitChanged | None:
        target = self._target
        kind = reading.kind
        if kind is SignalKind.WAITING:
            # Once a round, however many members a pool has.
            return self._on_scrape(now) if target.engine.leads(reading) else None
        if kind is SignalKind.GENERATION_TOKENS_TOTAL:
            total = target.engine.value(kind, now) or 0.0
            target.pace.on_generated(total, self._decoding(now), target.tpot_slo_s(now), now)
        elif kind is SignalKind.KV_USAGE_RATIO:
            self._scale_kv(now)
        elif kind is SignalKind.MAX_SEQUENCES:
            target.slots.stated = int(target.engine.value(kind, now) or 0) or None
        return None

    def _on_scrape(self, now: float) -> LimitChanged | None:
        """Running and waiting are both there: what is not ours, and does it queue inside?"""
        target = self._target
        running = target.engine.value(SignalKind.RUNNING, now)
        waiting = target.engine.value(SignalKind.WAITING, now)
        if running is None or waiting is None:
            return None
        target.untracked.on_scrape(running + waiting, target.ledger.sequences, now)
        target.slots.on_scrape(running, waiting, target.kv_gate.ratio)
        if target.blind(now) and not target.ledger.exceeded:
            target.prefill.steer(waiting, binds=target.refused_for_prefill)
        if self.adopted:
            return None
        self.adopted = True
        return self.adopt(now)

    def _decoding(self, now: float) -> float:
        """Streams that produce tokens now: what the engine runs less what it still prefills, else ours as we see them."""
        target = self._target
        pending = sum(max(1, permit.ticket.n) for permit in target.ledger.pending.values())
        running = target.engine.value(SignalKind.RUNNING, now)
        if running is None:
            return float(target.ledger.sequences - pending)
        waiting = target.engine.value(SignalKind.WAITING, now) or 0.0
        return running - max(0.0, pending - waiting)

    def _on_preemptions(self, count: float) -> None:
        if count > 0:
            self._target.busy = Why(
                f"the engine preempted {count:.0f}", count, 0.0, "preemptions", Source.SCRAPE
            )

    def _scale_kv(self, now: float) -> None:
        """KV measured over KV in the ledger: prefix sharing lowers it, block rounding raises it."""
        target = self._target
        capacity = target.kv_capacity(now)
        ratio = target.kv_gate.ratio
        if capacity is None or ratio is None:
            return
        ours = sum(
            permit.cost.prompt + target.tokens(permit)
            for permit in target.ledger.permits.values()
            if permit.first_token_at is not None
        )
        if ours > 0.05 * capacity:
            measured = ratio * capacity - self._budgets.foreign_kv(capacity, now)
            target.kv_scale.add(min(max(measured / ours, 0.1), 1.3), now)

    def sample(self, sample: Sample, now: float) -> None:
        """Take a finished request from a span in."""
        tpot_s = sample.tpot_s
        if sample.outcome is Outcome.OK and tpot_s is not None:
            e2e_s = sample.e2e_s if sample.e2e_s is not None else 0.0
            self._target.pace.on_span(tpot_s, self._target.tpot_slo_s(now), e2e_s, now)
        elif sample.outcome is Outcome.BUSY:
            self.on_busy(Source.SPANS)

    def on_busy(self, source: Source) -> None:
        """The engine itself refused work: back-pressure, never a fast success."""
        self._target.busy = Why("the engine itself refused work", 1.0, 0.0, "refusals", source)

    def sight(self, now: float) -> Sight:
        """How much of the target is seen."""
        marks = self._target.marks
        scraped = self._target.engine.age(SignalKind.RUNNING, now)
        sees_scrape = scraped is not None and scraped <= SEEN_S
        if now - marks.progress_at <= SEEN_S:
            return Sight.FULL
        if now - marks.first_token_at <= SEEN_S:
            return Sight.PARTIAL
        if sees_scrape:
            return Sight.HEADER
        return Sight.HEADER if now - marks.signal_at <= SEEN_S else Sight.BLIND
