"""The eight cards of the Now page: a big value, what it is held against, and its last ten minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard import wording
from dashboard.causes import Facts, by_reason
from dashboard.charts import Mark, Trace
from dashboard.picture import History, Line
from dashboard.theme import CLASS_ORDER, PERCENTILES

_FRESH_S = 15.0
_AS_IF = ("as if enforcing",)
"""In shadow the sidecar keeps a ledger of what it would have admitted."""


@dataclass(frozen=True, slots=True)
class Card:
    """What one card shows. `tone` colours the big value: "", "warn", "critical" or "unknown"."""

    key: str
    title: str
    value: str
    unit: str
    aside: str = ""
    small: str = ""
    note: str = ""
    tone: str = ""
    traces: Sequence[Trace] = ()
    marks: Sequence[Mark] = ()
    legend: Sequence[tuple[str, str]] = ()
    """Colour key and text, for what the traces and marks do not say themselves."""
    top: float = 0.0


def cards(facts: Facts) -> list[Card]:
    """All cards in reading order: what we allow, what we answer, what waits, what the engine has, how fast it is."""
    return [build(facts) for build in _CARDS]


def _limit(facts: Facts) -> Card:
    target = facts.target
    share = target.used_tokens / target.limit_tokens if target.limit_tokens else None
    untracked = (
        f"{wording.count(target.untracked_tokens)} untracked" if target.untracked_tokens else "none untracked"
    )
    prefill = (
        f"prefill {wording.count(target.pending_prompt_tokens)} of {wording.count(target.prefill_budget_tokens)}"
        if target.prefill_budget_tokens
        else "no prefill budget yet"
    )
    return Card(
        key="limit",
        title="Limit",
        aside=" · ".join(
            [
                target.limit_algorithm,
                *(_AS_IF if facts.shadow else ()),
                *(["frozen"] if target.frozen else []),
            ]
        ),
        value=wording.count(target.used_tokens),
        small=f"of {wording.count(target.limit_tokens)} tokens · {wording.percent(share)}",
        note=f"{untracked} · {prefill}",
        tone="warn" if target.frozen else "",
        unit="tokens",
        traces=[
            Trace("used", "used", facts.history.line("used_tokens"), "area"),
            Trace("limit", "limit", facts.history.line("limit_tokens"), "step"),
        ],
        legend=[("used", "used"), ("limit", "limit")],
        top=1.0,
    )


def _requests(facts: Facts) -> Card:
    shadow = facts.shadow
    series, word = (
        ("shadow_refused_per_s", "would be refused/s") if shadow else ("refused_per_s", "refused/s")
    )
    known = facts.rates.window_s > 0
    refused = sum(facts.refusing().values()) if known else _latest(facts, series)
    admitted = facts.rates.admitted_total() if known else _latest(facts, "admitted_per_s")
    return Card(
        key="requests",
        title="Requests",
        aside="last 10 s",
        value=wording.rate(refused),
        small=f"{word} · {wording.rate(admitted)} admitted/s",
        note=_top_reasons(facts),
        tone="refused" if refused and refused >= 0.05 else "",
        unit="count",
        traces=[
            Trace("admitted", "used", facts.history.line("admitted_per_s"), "line"),
            Trace("refused", "refused", facts.history.line(series), "area"),
        ],
        legend=[("used", "admitted"), ("refused", "would be refused" if shadow else "refused")],
        top=1.0,
    )


def _queue(facts: Facts) -> Card:
    target = facts.target
    names = [cls.name for cls in target.classes]
    colours = dict(zip(names, CLASS_ORDER, strict=False))
    slots = f" · {target.slots} slots" if target.HasField("slots") else ""
    engine = (
        f"engine runs {target.engine_running}, holds back {target.engine_waiting}{slots}"
        if target.HasField("engine_running") and target.HasField("engine_waiting")
        else f"the engine does not say what it runs{slots}"
    )
    return Card(
        key="queue",
        title="Queue and in flight",
        aside="queue " + _AS_IF[0] if facts.shadow else "",
        value=str(target.queued),
        small=f"queued · {target.in_flight} in flight",
        note=engine,
        unit="count",
        traces=[
            Trace(name, colours.get(name, "third"), facts.history.line(f"queued:{name}"), "stack")
            for name in names
        ]
        + [Trace("in flight", "used", facts.history.line("in_flight"))],
        legend=[("used", "in flight")]
        + [(colours.get(cls.name, "third"), f"{cls.name} {cls.queued}") for cls in target.classes],
        top=1.0,
    )


def _kv(facts: Facts) -> Card:
    target = facts.target
    known = target.HasField("kv_usage_ratio")
    capacity = (
        f" of {wording.count(target.kv_capacity_tokens)} tokens"
        if target.HasField("kv_capacity_tokens")
        else ""
    )
    hot, critical = target.kv_hot_on, target.kv_critical
    tone = "critical" if target.kv_usage_ratio >= critical else "warn" if target.kv_usage_ratio >= hot else ""
    return Card(
        key="kv",
        title="KV cache",
        value=wording.percent(target.kv_usage_ratio) if known else "not known",
        small=f"used{capacity}" if known else "",
        note=_gate_line(target, "kv") if known else _kv_missing(facts),
        tone=tone if known else "unknown",
        unit="ratio",
        traces=[Trace("KV usage", "used", facts.history.line("kv_usage_ratio"), "area")],
        marks=[Mark("hot", hot, "mark"), Mark("critical", critical)] if critical else [],
        legend=[
            ("mark", f"hot {wording.percent(hot)}"),
            ("critical", f"critical {wording.percent(critical)}"),
        ],
    )


def _kv_missing(facts: Facts) -> str:
    """Why KV usage is not known: its signal is stale, or the engine never said."""
    for signal in facts.picture.signals(facts.target.name):
        if signal.name.lower().startswith("kv_usage") and signal.state == "stale":
            age = wording.ago(signal.age.seconds) if signal.HasField("age") else "a while"
            return f"stale for {age}, last {wording.percent(signal.last)}: KV marks cannot act"
    return "the engine does not say: KV marks cannot act"


def _ttft(facts: Facts) -> Card:
    cls = _judged(facts.target, "ttft")
    slo = cls.slo_ttft_s if cls is not None and cls.HasField("slo_ttft_s") else None
    extra = cls.slo_ttft_per_1k_s if cls is not None and cls.HasField("slo_ttft_per_1k_s") else 0.0
    return _latency(
        facts, cls, _Measure("ttft", "TTFT", slo, f" + {wording.seconds(extra)}/1k prompt" if extra else "")
    )


def _tpot(facts: Facts) -> Card:
    cls = _judged(facts.target, "tpot")
    slo = cls.slo_tpot_s if cls is not None and cls.HasField("slo_tpot_s") else None
    return _latency(facts, cls, _Measure("tpot", "TPOT", slo))


def _e2e(facts: Facts) -> Card:
    return _latency(facts, _judged(facts.target, "e2e"), _Measure("e2e", "Whole request"))


@dataclass(frozen=True, slots=True)
class _Measure:
    """One of the three durations. `slo` in seconds, `extra` says what is added to it."""

    name: str
    title: str
    slo: float | None = None
    extra: str = ""


def _latency(facts: Facts, cls: monitor.ClassSnapshot | None, measure: _Measure) -> Card:
    name, title, slo = measure.name, measure.title, measure.slo
    if cls is None:
        return Card(name, title, wording.UNKNOWN, "s", note="no samples in the window", tone="unknown")
    measured: monitor.Percentiles = getattr(cls, name)
    ranks = percentiles(measured)
    p95 = ranks["p95"]
    over = slo is not None and p95 is not None and p95 > slo
    default = " · default, not set by you" if cls.slo_is_default else ""
    no_slo = "not judged: it measures output length" if name == "e2e" else "no SLO"
    return Card(
        key=name,
        title=title,
        aside=cls.name,
        value=wording.seconds(p95),
        small="p95" + (f" · {p95 / slo:.2f}x SLO" if slo and p95 is not None else ""),
        note=f"SLO {wording.seconds(slo)}{measure.extra}{default}" if slo else no_slo,
        tone="warn" if over else "",
        unit="s",
        traces=[
            Trace(
                rank,
                colour,
                latency_line(facts.history, name, rank, cls.name),
                "thick" if rank == "p95" else "line",
            )
            for rank, colour in PERCENTILES.items()
        ],
        marks=[Mark("SLO", slo)] if slo else [],
        legend=[(colour, f"{rank} {wording.seconds(ranks[rank])}") for rank, colour in PERCENTILES.items()]
        + ([("critical", "SLO")] if slo else []),
        top=slo * 1.15 if slo else 0.0,
    )


def percentiles(measured: monitor.Percentiles) -> dict[str, float | None]:
    """p50, p95 and p99 in seconds, None for what the window has no samples of."""
    return {
        "p50": measured.p50 if measured.HasField("p50") else None,
        "p95": measured.p95 if measured.HasField("p95") else None,
        "p99": measured.p99 if measured.HasField("p99") else None,
    }


def latency_line(history: History, name: str, rank: str, cls: str) -> Line:
    """The past of a percentile for a class, else for the whole target."""
    return history.lines.get(f"{name}_{rank}_s:{cls}") or history.line(f"{name}_{rank}_s")


def _vram(facts: Facts) -> Card:
    gpus = facts.picture.gpus(facts.target.name)
    known = [gpu for gpu in gpus if gpu.HasField("memory_free_bytes") and gpu.state == "ok"]
    if not known:
        return Card("vram", "VRAM", "not known", "bytes", note=_vram_missing(facts), tone="unknown")
    worst = min(known, key=lambda gpu: gpu.memory_free_bytes - gpu.critical_free_bytes)
    marked = worst.HasField("critical_free_bytes")
    below = marked and worst.memory_free_bytes < worst.critical_free_bytes
    free = wording.size(worst.memory_free_bytes)
    lost = sum(gpu.state == "lost" for gpu in gpus)
    return Card(
        key="vram",
        title="VRAM",
        aside=f"{lost} of {len(gpus)} GPUs lost"
        if lost
        else f"fullest of {len(gpus)} GPUs"
        if len(gpus) > 1
        else worst.name,
        value=f"{lost} lost" if lost else free,
        small=f"{free} free on the fullest other"
        if lost
        else f"free of {wording.size(worst.memory_total_bytes)}",
        note=f"{worst.vram_rule}: {worst.vram_rule_why}" if worst.vram_rule else "no rule yet",
        tone="critical" if below or lost else "",
        unit="bytes",
        traces=[
            Trace(wording.gpu(uuid), "free", line, "line")
            for uuid, line in facts.history.starting("vram_free_bytes:").items()
            if uuid in {gpu.uuid for gpu in gpus}
        ],
        marks=[Mark("critical", worst.critical_free_bytes)] if marked else [],
        legend=[("free", "free")]
        + ([("critical", f"critical {wording.size(worst.critical_free_bytes)}")] if marked else []),
        top=worst.critical_free_bytes * 2.0 if marked else 0.0,
    )


def _vram_missing(facts: Facts) -> str:
    """Why no GPU says how much is free."""
    states = [f"{wording.gpu(gpu.uuid)} {gpu.state}" for gpu in facts.picture.gpus(facts.target.name)]
    signals = facts.picture.signals(facts.target.name)
    said = [signal.warning for signal in signals if signal.source == "nvml" and signal.warning]
    return ", ".join(states[:2]) or next(iter(said), "no GPU is seen: the VRAM mark cannot act")


_CARDS: tuple[Callable[[Facts], Card], ...] = (_limit, _requests, _queue, _kv, _ttft, _tpot, _e2e, _vram)


def _judged(target: monitor.TargetSnapshot, name: str) -> monitor.ClassSnapshot | None:
    """The most urgent class that has samples of this measure."""
    return next((cls for cls in target.classes if getattr(cls, name).count), None)


def _gate_line(target: monitor.TargetSnapshot, name: str) -> str:
    gate = next((gate for gate in target.gates if name in gate.name), None)
    if gate is None:
        return ""
    if gate.state == "open":
        return "below its marks: admission is open"
    return f"{gate.state}: {gate.why}" if gate.why else gate.state


def _latest(facts: Facts, name: str) -> float | None:
    return facts.history.line(name).last(facts.picture.unix_now - _FRESH_S)


def _top_reasons(facts: Facts) -> str:
    if facts.target.mode == types.MODE_OFF:
        return "off: nothing is decided"
    reasons = list(by_reason(facts.refusing()).items())[:2]
    return (
        ", ".join(f"{wording.words(name)} {wording.rate(value)}/s" for name, value in reasons)
        or "nobody refused"
    )
