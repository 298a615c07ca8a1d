"""Draws snapshots: the second file that knows wire and core, for what is shown instead of what is decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from admission.core.controller import ClassConfig
from admission.core.model import Admitted, ClassView, GateView, View
from admission.runtime.host import Host
from admission.server import translate
from admission.server.changes import Change
from admission.server.counts import Counts, Recorded, TargetCounts
from admission.v1 import monitor_service_pb2 as wire
from admission.vocabulary import PriorityClass
from telemetry.link import GpuReport, SignalReport, TelemetryView
from telemetry.processors.windows import Percentiles

CLASS_LABELS = tuple(each.label for each in PriorityClass)
MEASURES = ("ttft", "tpot", "queue_time", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a snapshot is drawn from. `now` monotonic, `unix_s` wall clock, at the same instant."""

    host: Host
    counts: Counts
    own_slos: Mapping[str, Collection[PriorityClass]]
    """By target, the classes whose SLO the user set."""
    percentiles: dict[tuple[str, str, str], Percentiles]
    telemetry: TelemetryView
    now: float
    unix_s: float

    def wall(self, at: float) -> float:
        """A monotonic instant on the wall clock."""
        return self.unix_s - (self.now - at)


def snapshot(facts: Facts) -> wire.Snapshot:
    """Targets, GPUs and signals."""
    drawn = wire.Snapshot()
    _set_time(drawn.at, facts.unix_s)
    views = {target: facts.host.view(target) for target in facts.host.targets}
    for target, view in views.items():
        _target(drawn.targets.add(), target, view, facts)
    for gpu in facts.telemetry.gpus:
        _gpu(drawn.gpus.add(), gpu, views.get(gpu.target))
    for signal in facts.telemetry.signals:
        _signal(drawn.signals.add(), signal)
    drawn.unbound.extend(facts.telemetry.unbound)
    return drawn


def fill_percentiles(drawn: wire.Percentiles, measured: Percentiles | None) -> None:
    """Percentiles where there are samples."""
    if measured is not None:
        drawn.p50, drawn.p95, drawn.p99 = measured.p50, measured.p95, measured.p99
        drawn.count = measured.count


def recorded(each: Recorded, tenant: str) -> wire.RecordedDecision:
    """One remembered decision."""
    event = each.event
    ticket = event.ticket
    drawn = wire.RecordedDecision(
        target=each.target,
        request_id=each.request_id,
        trace_id=each.trace_id,
        tenant=tenant,
        model=ticket.flow.model,
        priority_class=ticket.priority.label,
        cost_tokens=event.cost if isinstance(event, Admitted) else 0,
    )
    _set_time(drawn.at, each.at)
    drawn.decision.no = ticket.id.no
    translate.decide(drawn.decision, event, each.target)
    return drawn


def _target(drawn: wire.TargetSnapshot, name: str, view: View, facts: Facts) -> None:
    config = facts.host.configs[name]
    counts = facts.counts.targets[name]
    drawn.name, drawn.mode = name, int(view.mode)  # type: ignore[assignment]
    drawn.models.extend(facts.host.routes.models(name))
    drawn.span_emitter = facts.telemetry.emitters.get(name, "")
    _levels(drawn, view)
    _engine(drawn, view)
    kv = config.kv
    drawn.kv_hot_on, drawn.kv_hot_off, drawn.kv_critical = kv.hot_on, kv.hot_off, kv.critical
    for each in view.classes:
        default = each.priority not in facts.own_slos.get(name, ())
        _class(drawn.classes.add(slo_is_default=default), each, config.classes[each.priority], counts)
        for measure in MEASURES:
            measured = facts.percentiles.get((name, each.priority.label, measure))
            fill_percentiles(getattr(drawn.classes[-1], measure), measured)
    for gate in view.gates:
        _gate(drawn.gates.add(), gate, facts)
    for change in counts.changes:
        _change(drawn.changes.add(), change)


def _levels(drawn: wire.TargetSnapshot, view: View) -> None:
    drawn.limit_algorithm, drawn.limit_tokens = view.limit_algorithm, max(view.limit, 0)
    drawn.used_tokens, drawn.untracked_tokens = max(view.used, 0), max(view.untracked, 0)
    drawn.in_flight, drawn.queued = view.in_flight, view.queued
    drawn.prefill_budget_tokens = max(view.prefill_budget, 0)
    drawn.pending_prompt_tokens = max(view.pending_prompt_tokens, 0)
    drawn.prefill_rate = view.prefill_rate
    drawn.frozen, drawn.draining = view.frozen, view.draining
    drawn.tokens_per_chunk = view.tokens_per_chunk


def _engine(drawn: wire.TargetSnapshot, view: View) -> None:
    """What the engine tells; what it does not stays unset."""
    drawn.sight, drawn.engine_state = view.sight, view.engine_state.value
    for name in (
        "kv_usage_ratio",
        "kv_capacity_tokens",
        "engine_running",
        "engine_waiting",
        "tpot_ratio",
        "slots",
    ):
        value = getattr(view, name)
        if value is not None:
            setattr(drawn, name, value)


def _class(drawn: wire.ClassSnapshot, view: ClassView, config: ClassConfig, counts: TargetCounts) -> None:
    drawn.name = view.priority.label
    drawn.in_flight, drawn.queued = view.in_flight, view.queued
    drawn.queued_prompt_tokens = view.queued_prompt_tokens
    slo = config.slo
    if slo.ttft_s is not None:
        drawn.slo_ttft_s, drawn.slo_ttft_per_1k_s = slo.ttft_s, slo.ttft_per_1k_s
    drawn.slo_tpot_s = slo.tpot_s
    ours = counts.classes[view.priority]
    drawn.good, drawn.judged, drawn.finished = ours.good, ours.judged, ours.finished
    shadow = counts.shadow if counts.shadowing else {}
    for drawn_counts, decisions in ((drawn.counts, counts.decisions), (drawn.shadow_counts, shadow)):
        for (priority, verdict, reason), total in decisions.items():
            if priority == view.priority:
                drawn_counts.add(verdict=verdict, reason=int(reason), total=total)


def _gate(drawn: wire.GateSnapshot, gate: GateView, facts: Facts) -> None:
    drawn.name, drawn.state, drawn.why = gate.name, gate.state, gate.why.detail
    if gate.why.detail or gate.why.threshold:
        drawn.measured, drawn.threshold = gate.why.measured, gate.why.threshold
    if gate.last_fired_at is not None:
        _set_time(drawn.last_fired, facts.wall(gate.last_fired_at))


def _change(drawn: wire.Change, change: Change) -> None:
    _set_time(drawn.at, change.at)
    _set_time(drawn.since, change.since)
    drawn.what, drawn.old, drawn.new, drawn.count = change.what, change.old, change.new, change.count
    why = change.why
    drawn.why, drawn.measured, drawn.threshold = why.detail, why.measured, why.threshold
    drawn.source = why.source.value


def _gpu(drawn: wire.GpuSnapshot, gpu: GpuReport, view: View | None) -> None:
    drawn.uuid, drawn.name, drawn.host, drawn.target = gpu.uuid, gpu.name, gpu.host, gpu.target
    drawn.state, drawn.clock_reasons = gpu.state, gpu.clock_reasons
    drawn.unsupported.extend(gpu.unsupported)
    translate.set_duration(drawn.age, max(gpu.age_s, 0.0))
    for name in (
        "memory_used_bytes",
        "memory_total_bytes",
        "memory_free_bytes",
        "utilization_ratio",
        "power_w",
        "temperature_c",
    ):
        value = getattr(gpu, name)
        if value is not None:
            setattr(drawn, name, value)
    vram = view.vram.get(gpu.uuid) if view else None
    if vram is not None:
        drawn.vram_rule, drawn.vram_rule_why = vram.rule, vram.rule_why
        if vram.baseline_bytes is not None:
            drawn.free_baseline_bytes = max(vram.baseline_bytes, 0)
        if vram.critical_free_bytes is not None:
            drawn.critical_free_bytes = max(vram.critical_free_bytes, 0)


def _signal(drawn: wire.SignalSnapshot, signal: SignalReport) -> None:
    drawn.target, drawn.name, drawn.source = signal.target, signal.name, signal.source
    drawn.state, drawn.warning, drawn.count = signal.state, signal.warning, signal.count
    if signal.age_s is not None:
        translate.set_duration(drawn.age, max(signal.age_s, 0.0))
    if signal.interval_s is not None:
        translate.set_duration(drawn.interval, signal.interval_s)
    for name in ("last", "lowest", "highest"):
        value = getattr(signal, name)
        if value is not None:
            setattr(drawn, name, value)


def _set_time(drawn: Timestamp, unix_s: float) -> None:
    drawn.FromNanoseconds(round(unix_s * 1e9))
