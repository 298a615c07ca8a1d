"""Gauges read from the state at the moment of a scrape. What is unknown is absent, never 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from admission.core.model import View
from admission.vocabulary import Mode, PriorityClass
from telemetry.link import TelemetryView

MOST_TARGETS = 256
MOST_GPUS = 1024
MOST_SIGNALS = 4096
MOST_COUNTERS = 512
MOST_SLOS = 2048

_PLAIN: tuple[tuple[str, str, Callable[[View], float | None]], ...] = (
    ("tidegate_limit_tokens", "How many KV tokens may be in flight now", lambda view: view.limit),
    ("tidegate_used_tokens", "KV tokens of what is in flight", lambda view: view.used),
    (
        "tidegate_untracked_tokens",
        "KV tokens on the engine that did not pass here",
        lambda view: view.untracked,
    ),
    (
        "tidegate_prefill_budget_tokens",
        "Prompt tokens that may wait for a first token",
        lambda v: v.prefill_budget,
    ),
    (
        "tidegate_pending_prompt_tokens",
        "Prompt tokens without a first token",
        lambda v: v.pending_prompt_tokens,
    ),
    ("tidegate_prefill_rate_tokens_per_second", "Measured prefill rate", lambda view: view.prefill_rate),
    ("tidegate_kv_usage_ratio", "KV cache in use, by the engine's word", lambda view: view.kv_usage_ratio),
    ("tidegate_engine_running", "Sequences running, by the engine's word", lambda view: view.engine_running),
    ("tidegate_engine_waiting", "Sequences waiting inside the engine", lambda view: view.engine_waiting),
    ("tidegate_tpot_slo_ratio", "Worst TPOT over its SLO", lambda view: view.tpot_ratio),
    ("tidegate_draining", "1 while nothing is admitted because of a drain", lambda view: view.draining),
    (
        "tidegate_limit_frozen",
        "1 while the limit stands still for want of a signal",
        lambda view: bool(view.frozen),
    ),
)


def target_gauges(views: Mapping[str, View]) -> Iterator[GaugeMetricFamily]:
    """The state of every target."""
    shown = dict(islice(views.items(), MOST_TARGETS))
    for name, text, read in _PLAIN:
        family = GaugeMetricFamily(name, text, labels=("target",))
        for target, view in shown.items():
            if (value := read(view)) is not None:
                family.add_metric((target,), value)
        yield family
    yield from _class_gauges(shown)
    yield _mode_gauge(shown)
    yield _gate_gauge(shown)


def _class_gauges(views: Mapping[str, View]) -> Iterator[GaugeMetricFamily]:
    flight = GaugeMetricFamily(
        "tidegate_in_flight", "Requests admitted and not finished", labels=("target", "class")
    )
    queued = GaugeMetricFamily("tidegate_queued", "Tickets waiting here", labels=("target", "class"))
    for target, view in views.items():
        for entry in view.classes:
            flight.add_metric((target, entry.priority.label), entry.in_flight)
            queued.add_metric((target, entry.priority.label), entry.queued)
    yield flight
    yield queued


def _mode_gauge(views: Mapping[str, View]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("tidegate_mode", "1 for the mode in force", labels=("target", "mode"))
    for target, view in views.items():
        for mode in Mode:
            family.add_metric((target, mode.name.lower()), float(view.mode is mode))
    return family


def _gate_gauge(views: Mapping[str, View]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "tidegate_gate_state", "1 for the state of a gate", labels=("target", "gate", "state")
    )
    for target, view in views.items():
        for gate in view.gates:
            family.add_metric((target, gate.name, gate.state), 1)
    return family


class Slo(NamedTuple):
    """One target value of a class, in seconds; `measure` is ttft or tpot."""

    target: str
    priority: PriorityClass
    measure: str
    seconds: float
    configured: bool
    """False: the built-in default, which nobody chose."""


def slo_gauge(slos: Iterable[Slo]) -> GaugeMetricFamily:
    """What the latencies are held against, and whether anybody chose it."""
    labels = ("target", "class", "measure", "source")
    family = GaugeMetricFamily("tidegate_slo_seconds", "The SLO in force", labels=labels)
    for slo in islice(slos, MOST_SLOS):
        source = "configured" if slo.configured else "default"
        family.add_metric((slo.target, slo.priority.label, slo.measure, source), slo.seconds)
    return family


def host_gauges(version: str, sessions: int) -> Iterator[GaugeMetricFamily]:
    """The sidecar itself."""
    family = GaugeMetricFamily("tidegate_build_info", "The version that runs", labels=("version",))
    family.add_metric((version,), 1)
    yield family
    yield GaugeMetricFamily("tidegate_sessions", "Sessions of clients", value=sessions)


def protocol_counter(counts: Mapping[tuple[str, str], int]) -> CounterMetricFamily:
    """What callers' messages came to. `way` is session or unary."""
    text = "What callers' messages came to, by way in and name"
    family = CounterMetricFamily("tidegate_protocol", text, labels=("way", "name"))
    for (way, name), total in counts.items():
        family.add_metric((way, name), total)
    return family


def telemetry_families(view: TelemetryView | None) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """GPUs, signals and counters of telemetry; nothing before its first word."""
    if view is not None:
        yield from _gpu_gauges(view)
        yield from _signal_gauges(view)
        yield from _counters(view)


def _gpu_gauges(view: TelemetryView) -> Iterator[GaugeMetricFamily]:
    for part in ("used", "free", "total"):
        family = GaugeMetricFamily(
            f"tidegate_gpu_memory_{part}_bytes", f"GPU memory, {part}", labels=("gpu",)
        )
        for gpu in view.gpus[:MOST_GPUS]:
            if (value := getattr(gpu, f"memory_{part}_bytes")) is not None:
                family.add_metric((gpu.uuid,), value)
        yield family


def _signal_gauges(view: TelemetryView) -> Iterator[GaugeMetricFamily]:
    labels = ("target", "signal", "source")
    age = GaugeMetricFamily("tidegate_signal_age_seconds", "Age of the newest reading", labels=labels)
    state = GaugeMetricFamily(
        "tidegate_signal_state", "1 for the state of a signal", labels=(*labels, "state")
    )
    unique = {(signal.target, signal.name, signal.source): signal for signal in view.signals[:MOST_SIGNALS]}
    for key, signal in unique.items():
        if signal.age_s is not None:
            age.add_metric(key, signal.age_s)
        state.add_metric((*key, signal.state), 1)
    yield age
    yield state


def _counters(view: TelemetryView) -> Iterator[CounterMetricFamily]:
    plain = CounterMetricFamily("tidegate_telemetry", "What receivers counted, by name", labels=("name",))
    spans = CounterMetricFamily(
        "tidegate_spans", "Spans received, by what became of them", labels=("target", "emitter", "result")
    )
    for name, total in islice(view.counters.items(), MOST_COUNTERS):
        kind, *parts = name.split(":")
        if kind == "spans" and len(parts) >= 3:
            spans.add_metric((":".join(parts[:-2]), *parts[-2:]), total)
        else:
            plain.add_metric((name,), total)
    yield spans
    yield plain
