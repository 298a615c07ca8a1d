"""The tables under the cards: classes, refusals, changes and their why, GPUs, signals."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from html import escape

from admission.v1 import monitor_service_pb2 as monitor
from dashboard import panels, wording
from dashboard.cards import percentiles
from dashboard.causes import Facts, age_s, member_of
from dashboard.picture import Decisions
from dashboard.rates import reason_name

_MOST_CHANGES = 8
_MOST_GPUS = 16
_UNITS = {"vram": "_bytes", "kv": "_ratio"}
"""What a gate measures in, as a suffix."""


def classes(facts: Facts) -> str:
    """One row a class: what it does and how it fares against its SLO."""
    refused = "would refuse/s" if facts.shadow else "refused/s"
    heads = ["class", "in flight", "queued", "admitted/s", refused, "within SLO, 1 min"]
    heads += ["TTFT p50 · p95 · p99", "TPOT p50 · p95 · p99", "whole request p50 · p95 · p99"]
    rows = [_class_row(facts, cls) for cls in facts.target.classes]
    return panels.table("Classes", heads, rows, "No class has been seen yet.")


def _class_row(facts: Facts, cls: monitor.ClassSnapshot) -> list[str]:
    refused = sum(value for (name, _), value in facts.refusing().items() if name == cls.name)
    good, finished = facts.rates.good.get(cls.name, (0, 0))
    ttft_slo = cls.slo_ttft_s if cls.HasField("slo_ttft_s") else None
    tpot_slo = cls.slo_tpot_s if cls.HasField("slo_tpot_s") else None
    per_1k = cls.slo_ttft_per_1k_s if cls.HasField("slo_ttft_per_1k_s") else 0.0
    known = facts.rates.window_s > 0
    return [
        f"<b>{escape(cls.name)}</b>",
        str(cls.in_flight),
        str(cls.queued),
        wording.rate(facts.rates.admitted.get(cls.name, 0.0)) if known else wording.UNKNOWN,
        panels.toned(wording.rate(refused), "refused" if refused else "") if known else wording.UNKNOWN,
        panels.toned(
            wording.share(good, finished), "warn" if finished >= 20 and good < 0.9 * finished else ""
        ),
        _percentiles(cls.ttft, ttft_slo) + _slo(ttft_slo, per_1k, default=cls.slo_is_default),
        _percentiles(cls.tpot, tpot_slo) + _slo(tpot_slo, 0.0, default=cls.slo_is_default),
        _percentiles(cls.e2e, None),
    ]


def _percentiles(measured: monitor.Percentiles, slo: float | None) -> str:
    ranks = percentiles(measured).values()
    if all(value is None for value in ranks):
        return panels.soft("no samples")
    return " · ".join(
        panels.toned(wording.seconds(value), "warn" if slo and value is not None and value > slo else "")
        for value in ranks
    )


def _slo(slo: float | None, per_1k: float, *, default: bool) -> str:
    extra = f" + {wording.seconds(per_1k)}/1k prompt" if per_1k else ""
    note = " · default, not set by you" if default else ""
    text = f"SLO {wording.seconds(slo)}{extra}{note}" if slo is not None else f"no SLO{note}"
    return f'<div class="small">{panels.soft(text)}</div>'


def refusals(facts: Facts, decisions: Decisions) -> str:
    """Refusals per second by class and reason, each with the latest one's measured value against its threshold."""
    ranked = sorted(facts.refusing().items(), key=lambda item: -item[1])
    most = ranked[0][1] if ranked else 0.0
    rows = [
        [
            f'<b class="nw">{escape(wording.words(reason))}</b>',
            escape(cls),
            panels.toned(wording.rate(value), "refused"),
            panels.bar(value / most, (), "refused"),
            panels.soft(_latest_detail(decisions, cls, reason)),
        ]
        for (cls, reason), value in ranked
    ]
    title = "Enforcing would refuse, last 10 s" if facts.shadow else "Refused, last 10 s"
    none = "Enforcing would refuse nobody." if facts.shadow else "Nobody is refused."
    if not facts.rates.window_s:
        none = "Known after a second look at the totals."
    return panels.table(title, ("reason", "<class", "per second", "<", "<the latest one"), rows, none)


def _latest_detail(decisions: Decisions, cls: str, reason: str) -> str:
    for recorded in decisions.recent:
        if recorded.priority_class == cls and reason_name(recorded.decision.reason) == reason:
            decision = recorded.decision
            if decision.detail:
                return decision.detail
            unit = f" {decision.unit}" if decision.unit else ""
            return f"{decision.measured:.4g} over {decision.threshold:.4g}{unit}"
    return decisions.error


def changes(facts: Facts, where: tzinfo) -> str:
    """The latest moves of limit and gates, newest first, with what was measured against what."""
    rows = [
        _change_row(run, facts.picture.unix_now, where) for run in runs(facts.target.changes)[:_MOST_CHANGES]
    ]
    heads = ("when", "<what", "<change", "<why", "measured", "threshold", "<source")
    return panels.table("Latest changes, and why", heads, rows, "Nothing has changed since start.")


def runs(given: Iterable[monitor.Change]) -> list[list[monitor.Change]]:
    """Changes newest first, steps of the limit in one direction together: a climb is one story, not thirty rows."""
    found: list[list[monitor.Change]] = []
    for change in reversed(list(given)):
        if found and _direction(change) and _direction(change) == _direction(found[-1][-1]):
            found[-1].append(change)
        else:
            found.append([change])
    return found


def _direction(change: monitor.Change) -> str:
    """`up` or `down` for a step of the limit, empty for what is no step."""
    try:
        before, after = float(change.old), float(change.new)
    except ValueError:
        return ""
    return "down" if after < before else "up"


def _change_row(run: list[monitor.Change], now: float, where: tzinfo) -> list[str]:
    """One row a run: from where its oldest step began to where its newest ended, with the newest one's why."""
    newest, oldest = run[0], run[-1]
    at = _unix(newest)
    known, unit = newest.measured or newest.threshold, _UNITS.get(newest.what, "")
    count = sum(max(1, change.count) for change in run)
    began = oldest.since.ToNanoseconds() / 1e9 if oldest.HasField("since") else _unix(oldest)
    steps = f"{count} steps in {wording.ago(at - began)}" if count > 1 else ""
    return [
        f'<span class="nw" title="{wording.clock(at, where)}">{wording.ago(max(0.0, now - at))} ago</span>',
        escape(newest.what),
        f'<span class="nw">{_step(oldest.old, newest.new)}</span><div class="small">{panels.soft(steps)}</div>',
        escape(newest.why),
        wording.reading(unit, newest.measured) if known else wording.UNKNOWN,
        wording.reading(unit, newest.threshold) if known else wording.UNKNOWN,
        panels.soft(newest.source),
    ]


def _unix(change: monitor.Change) -> float:
    return change.at.seconds + change.at.nanos / 1e9


def _step(old: str, new: str) -> str:
    try:
        before, after = float(old), float(new)
    except ValueError:
        return f"{escape(old or wording.UNKNOWN)} → <b>{escape(new)}</b>"
    sign = "▼" if after < before else "▲"
    return f"{sign} {wording.count(before)} → <b>{wording.count(after)}</b>"


def gpus(facts: Facts) -> str:
    """VRAM of each GPU against its mark, by which rule and why."""
    shown = facts.picture.gpus(facts.target.name)
    rows = [_gpu_row(gpu) for gpu in shown[:_MOST_GPUS]]
    heads = ("GPU", "<VRAM used, mark", "free", "critical under", "busy", "power", "°C", "<rule")
    title = f"GPUs, first {_MOST_GPUS} of {len(shown)}" if len(shown) > _MOST_GPUS else "GPUs"
    return panels.table(
        title, heads, rows, "No GPU is seen: NVML is absent, or no GPU is bound to this target."
    )


def _gpu_row(gpu: monitor.GpuSnapshot) -> list[str]:
    name = f'<b title="{escape(gpu.uuid)}">{escape(gpu.name or "GPU")}</b><div class="small">{panels.soft(wording.gpu(gpu.uuid))}</div>'
    if gpu.state != "ok":
        age = f" for {wording.ago(gpu.age.seconds)}" if gpu.HasField("age") else ""
        state = panels.toned(gpu.state + age, "critical" if gpu.state == "lost" else "warn")
        return [name, state, *["-"] * 5, panels.soft(_cannot(gpu.unsupported))]
    free = gpu.memory_free_bytes if gpu.HasField("memory_free_bytes") else None
    critical = gpu.critical_free_bytes if gpu.HasField("critical_free_bytes") else None
    below = free is not None and critical is not None and free < critical
    rule = f"{gpu.vram_rule}: {gpu.vram_rule_why}" if gpu.vram_rule else "no rule yet"
    details = [rule, _cannot(gpu.unsupported), f"clocks: {gpu.clock_reasons}" if gpu.clock_reasons else ""]
    return [
        name,
        _vram_bar(gpu, free, critical),
        panels.toned(wording.size(free), "critical" if below else ""),
        wording.size(critical),
        wording.percent(gpu.utilization_ratio if gpu.HasField("utilization_ratio") else None),
        f"{gpu.power_w:.0f} W" if gpu.HasField("power_w") else wording.UNKNOWN,
        f"{gpu.temperature_c:.0f}" if gpu.HasField("temperature_c") else wording.UNKNOWN,
        panels.soft(" · ".join(detail for detail in details if detail)),
    ]


def _vram_bar(gpu: monitor.GpuSnapshot, free: float | None, critical: float | None) -> str:
    if free is None or not gpu.memory_total_bytes:
        return panels.soft("not known")
    total = gpu.memory_total_bytes
    marks = [(1 - critical / total, "critical")] if critical is not None else []
    return panels.bar(
        1 - free / total, marks, "critical" if critical is not None and free < critical else "used"
    )


def _cannot(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"cannot report {listed}" if listed else ""


def signals(facts: Facts) -> str:
    """Each input of the law: is it there, how old, in which range; the readings of one GPU are one row."""
    rows = []
    for group in _groups(facts.picture.signals(facts.target.name)):
        rows.append(_signal_row(group[0]) if len(group) == 1 else _group_row(group))
        rows += [[panels.toned(signal.warning, "warn")] for signal in group if signal.warning]
    heads = ("signal", "<from", "<state", "age", "last", "seen range")
    return panels.table("Signals", heads, rows, "No signal has come yet.")


def _groups(given: Iterable[monitor.SignalSnapshot]) -> list[list[monitor.SignalSnapshot]]:
    """What is not fresh first; signals of one member in one state together."""
    groups: dict[tuple[str, str, str], list[monitor.SignalSnapshot]] = {}
    for signal in sorted(given, key=lambda signal: signal.state == "fresh"):
        about = member_of(signal) or signal.name
        groups.setdefault((signal.source, about, signal.state), []).append(signal)
    return list(groups.values())


def _group_row(group: list[monitor.SignalSnapshot]) -> list[str]:
    first = group[0]
    name = f"{len(group)} readings of {wording.gpu(member_of(first))}"
    tone, oldest = _tone(first), wording.ago(max(map(age_s, group)))
    return [
        escape(name),
        panels.soft(first.source),
        f'<span class="nw">{panels.toned(first.state, tone)}</span>',
        panels.toned(oldest, tone),
        *[wording.UNKNOWN] * 2,
    ]


def _tone(signal: monitor.SignalSnapshot) -> str:
    if signal.state == "fresh":
        return ""
    return "critical" if signal.state == "missing" and signal.count else "warn"


def _short(signal: monitor.SignalSnapshot) -> str:
    base, _, member = signal.name.partition(" @")
    return f"{base} of {wording.gpu(member)}" if member else base


def _range(signal: monitor.SignalSnapshot) -> str:
    return " to ".join(
        wording.reading(signal.name.partition(" @")[0], value) for value in (signal.lowest, signal.highest)
    )


def _signal_row(signal: monitor.SignalSnapshot) -> list[str]:
    age = (
        wording.ago(signal.age.seconds + signal.age.nanos / 1e9)
        if signal.HasField("age")
        else wording.UNKNOWN
    )
    tone = _tone(signal)
    known = signal.HasField("lowest") and signal.HasField("highest")
    return [
        escape(_short(signal)),
        panels.soft(signal.source),
        f'<span class="nw">{panels.toned(signal.state, tone)}</span>',
        panels.toned(age, tone) if tone and signal.HasField("age") else age,
        wording.reading(signal.name.partition(" @")[0], signal.last)
        if signal.HasField("last")
        else wording.UNKNOWN,
        _range(signal) if known else wording.UNKNOWN,
    ]
