"""What `tidegate status` shows: one snapshot as one readable screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from admission.commands.wording import amount, duration, percentiles, ratio, reason, since, size
from admission.v1.monitor_service_pb2 import (
    ClassSnapshot,
    Count,
    GpuSnapshot,
    Percentiles,
    Snapshot,
    TargetSnapshot,
)
from admission.v1.types_pb2 import Mode, Verdict

CHANGES_SHOWN = 5
_REFUSALS = (Verdict.VERDICT_REJECTED, Verdict.VERDICT_SHED)
_MODE = {
    Mode.MODE_SHADOW: "[yellow]SHADOW[/yellow] (records, refuses nothing)",
    Mode.MODE_ENFORCE: "[green]ENFORCE[/green]",
    Mode.MODE_OFF: "[red]OFF[/red] (everything passes)",
}


def screen(snapshot: Snapshot) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_head(snapshot)]
    parts += [_target(snapshot, target) for target in snapshot.targets]
    parts += _gpus(list(snapshot.gpus))
    parts += _signals(snapshot)
    parts += [Text.from_markup(f"[yellow]warning[/yellow] {escape(line)}") for line in snapshot.warnings]
    if snapshot.unbound:
        parts.append(Text(f"claimed by no target: {', '.join(snapshot.unbound)}", style="yellow"))
    return Group(*parts)


def _head(snapshot: Snapshot) -> Text:
    up = duration(snapshot.uptime.ToTimedelta().total_seconds())
    draining = "  [red]DRAINING[/red]" if snapshot.draining else ""
    answers = snapshot.decision_time
    speed = f"  decisions p99 {duration(answers.p99)}" if answers.HasField("p99") else ""
    return Text.from_markup(
        f"[bold]tidegate {escape(snapshot.version)}[/bold]  up {up}  sessions {snapshot.sessions}{speed}{draining}"
    )


def _target(snapshot: Snapshot, target: TargetSnapshot) -> Panel:
    rows: list[RenderableType] = [Text.from_markup(line) for line in _lines(target)]
    rows.append(_classes(target))
    if any(entry.slo_is_default for entry in target.classes):
        rows.append(Text("* SLO is the default, not set by you: targets[].slo", style="yellow"))
    rows += _refusals(target)
    rows += _changes(snapshot, target)
    return Panel(Group(*rows), title=f"[bold]{escape(target.name)}[/bold]", title_align="left")


def _lines(target: TargetSnapshot) -> Iterator[str]:
    draining = "  [red]draining[/red]" if target.draining else ""
    yield f"mode {_MODE.get(target.mode, '?')}  engine {target.engine_state or '?'}  sight {target.sight}{draining}"
    frozen = f"  [yellow]frozen: {escape(target.frozen)}[/yellow]" if target.frozen else ""
    yield (
        f"limit [bold]{amount(target.limit_tokens)}[/bold] tokens ({target.limit_algorithm})  used "
        f"{amount(target.used_tokens)}  untracked {amount(target.untracked_tokens)}{frozen}"
    )
    yield f"in flight [bold]{target.in_flight}[/bold]  queued [bold]{target.queued}[/bold]{_engine(target)}"
    yield (
        f"prompt tokens before a first token {amount(target.pending_prompt_tokens)} of "
        f"{amount(target.prefill_budget_tokens)}, prefill rate {amount(target.prefill_rate)}/s"
    )
    yield _kv(target)
    for gate in target.gates:
        if gate.state not in {"", "open", "off"}:
            yield f"gate {gate.name} [red]{gate.state}[/red] {escape(gate.why)}"


def _engine(target: TargetSnapshot) -> str:
    if not target.HasField("engine_running"):
        return "  the engine does not say what it runs"
    waiting = f", {target.engine_waiting} waiting" if target.HasField("engine_waiting") else ""
    return f"  engine: {target.engine_running} running{waiting}"


def _kv(target: TargetSnapshot) -> str:
    marks = f"hot {target.kv_hot_on:g}/{target.kv_hot_off:g}, critical {target.kv_critical:g}"
    if not target.HasField("kv_usage_ratio"):
        return f"KV [yellow]unknown: no reading from the engine[/yellow] ({marks})"
    room = f" of {amount(target.kv_capacity_tokens)} tokens" if target.HasField("kv_capacity_tokens") else ""
    colour = "red" if target.kv_usage_ratio >= target.kv_hot_on > 0 else "green"
    return f"KV [{colour}]{ratio(target.kv_usage_ratio)}[/{colour}]{room} ({marks})"


def _classes(target: TargetSnapshot) -> Table:
    """One column a class: three classes fit a narrow terminal, twelve measures would not."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for entry in target.classes:
        table.add_column(f"[bold]{escape(entry.name)}[/bold]")
    for label, cell in _ROWS:
        table.add_row(label, *(cell(entry) for entry in target.classes))
    return table


def _latency(values: Percentiles, slo_s: float | None) -> str:
    """Percentiles, red where the p95 misses the SLO."""
    text = percentiles(values)
    return f"[red]{text}[/red]" if slo_s and values.HasField("p95") and values.p95 > slo_s else text


def _slo(seconds: float | None, entry: ClassSnapshot) -> str:
    return ("none" if seconds is None else duration(seconds)) + "*" * entry.slo_is_default


def _ttft_slo(entry: ClassSnapshot) -> float | None:
    return entry.slo_ttft_s if entry.HasField("slo_ttft_s") else None


def _tpot_slo(entry: ClassSnapshot) -> float | None:
    return entry.slo_tpot_s if entry.HasField("slo_tpot_s") else None


def _total(entry: ClassSnapshot, *verdicts: Verdict.ValueType) -> str:
    return amount(sum(count.total for count in entry.counts if count.verdict in verdicts))


_ROWS: tuple[tuple[str, Callable[[ClassSnapshot], str]], ...] = (
    ("in flight", lambda entry: str(entry.in_flight)),
    ("queued", lambda entry: str(entry.queued)),
    ("TTFT p50 / p95 / p99", lambda entry: _latency(entry.ttft, _ttft_slo(entry))),
    ("  its SLO", lambda entry: _slo(_ttft_slo(entry), entry)),
    ("TPOT p50 / p95 / p99", lambda entry: _latency(entry.tpot, _tpot_slo(entry))),
    ("  its SLO", lambda entry: _slo(_tpot_slo(entry), entry)),
    ("queue time", lambda entry: percentiles(entry.queue_time)),
    ("e2e", lambda entry: percentiles(entry.e2e)),
    ("good of finished", lambda entry: f"{amount(entry.good)} of {amount(entry.finished)}"),
    ("admitted", lambda entry: _total(entry, Verdict.VERDICT_ADMITTED)),
    ("refused", lambda entry: _total(entry, *_REFUSALS)),
)


def _refusals(target: TargetSnapshot) -> list[RenderableType]:
    real = [count for entry in target.classes for count in entry.counts]
    shadow = [count for entry in target.classes for count in entry.shadow_counts]
    lines = (("refused", _by_reason(real)), ("enforce would have refused", _by_reason(shadow)))
    return [Text(f"{what}: {found}") for what, found in lines if found]


def _by_reason(counts: list[Count]) -> str:
    totals: dict[str, int] = {}
    for count in counts:
        if count.verdict in _REFUSALS:
            totals[reason(count.reason)] = totals.get(reason(count.reason), 0) + count.total
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {amount(total)}" for name, total in ordered)


def _changes(snapshot: Snapshot, target: TargetSnapshot) -> list[RenderableType]:
    lines = []
    for change in list(target.changes)[: -CHANGES_SHOWN - 1 : -1]:
        ago = since(change.at.ToNanoseconds(), snapshot.at.ToNanoseconds())
        source = f" by {change.source}" if change.source else ""
        why = f": {change.why}" if change.why else ""
        steps = f" in {change.count} steps" if change.count > 1 else ""
        text = f"{ago} ago  {change.what} {change.old} -> {change.new}{steps}{source}{why}"
        lines.append(Text(text, style="dim"))
    return [*lines]


def _gpus(gpus: list[GpuSnapshot]) -> list[RenderableType]:
    if not gpus:
        return [Text("no GPU seen", style="dim")]
    table = Table(box=None, pad_edge=False)
    for heading in (
        "GPU",
        "target",
        "state",
        "memory free",
        "of",
        "critical under",
        "busy",
        "power",
        "temperature",
    ):
        table.add_column(heading)
    for gpu in gpus:
        table.add_row(
            f"{gpu.name} {gpu.uuid}",
            gpu.target or "-",
            gpu.state if gpu.state == "ok" else f"[red]{escape(gpu.state)}[/red]",
            size(gpu.memory_free_bytes) if gpu.HasField("memory_free_bytes") else "?",
            size(gpu.memory_total_bytes) if gpu.HasField("memory_total_bytes") else "?",
            size(gpu.critical_free_bytes) if gpu.HasField("critical_free_bytes") else "-",
            ratio(gpu.utilization_ratio) if gpu.HasField("utilization_ratio") else "?",
            f"{gpu.power_w:.0f} W" if gpu.HasField("power_w") else "?",
            f"{gpu.temperature_c:.0f} C" if gpu.HasField("temperature_c") else "?",
        )
    return [table]


def _signals(snapshot: Snapshot) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for signal in snapshot.signals:
        origin = "" if signal.name == signal.source else f" from {signal.source}"
        name = f"{signal.target} {signal.name}{origin}".strip()
        if signal.state == "missing":
            lines.append(Text(f"missing: {name}. {signal.warning}".rstrip(), style="yellow"))
        elif signal.state == "stale":
            age = duration(signal.age.ToTimedelta().total_seconds())
            lines.append(Text(f"stale for {age}: {name}. {signal.warning}".rstrip(), style="yellow"))
        elif signal.warning:
            lines.append(Text(f"{name}: {signal.warning}", style="yellow"))
    return lines
