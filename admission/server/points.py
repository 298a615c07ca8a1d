"""One point of history a second and target: levels as they are, counts as rates."""

from __future__ import annotations

from admission.core.model import View
from admission.runtime.host import Host
from admission.server.counts import Counts, Key, TargetCounts
from admission.vocabulary import Mode, Reason, Verdict
from telemetry.history.memory import MemoryHistory
from telemetry.link import TelemetryView
from telemetry.processors.windows import Percentiles

Values = dict[str, tuple[str, float | None]]
Measured = dict[tuple[str, str, str], Percentiles]

REASON_NAMES = {int(reason): reason.name for reason in Reason}
_RATES = ("admitted", "refused", "shadow_refused", "finished", "good")


class Points:
    """Takes points. The first of a target has no rates: nothing is known to compare with."""

    def __init__(self, host: Host, counts: Counts, history: MemoryHistory) -> None:
        self._host = host
        self._counts = counts
        self._history = history
        self._last: dict[str, dict[str, int]] = {}
        self._last_at: float | None = None

    def take(self, unix_s: float, now: float, measured: Measured, telemetry: TelemetryView) -> None:
        """One point for every target. `unix_s` names it, `now` (monotonic) measures the time since the last."""
        passed_s = None if self._last_at is None else now - self._last_at
        self._last_at = now
        for target in self._host.targets:
            view = self._host.view(target)
            self._counts.targets[target].shadowing = view.mode is Mode.SHADOW
            values = {**_levels(view), **_percentiles(target, measured), **_gpus(target, telemetry)}
            values |= self._rates(target, passed_s)
            self._history.add(target, unix_s, values)

    def _rates(self, target: str, passed_s: float | None) -> Values:
        totals = _totals(self._counts.targets[target])
        before = self._last.get(target)
        self._last[target] = totals
        if before is None or not passed_s:
            return {}
        rates: Values = {
            f"{name}_per_s": ("1/s", (totals[name] - before.get(name, 0)) / passed_s) for name in _RATES
        }
        for name, total in totals.items():
            if name.startswith("refused:"):
                rates[f"refused_per_s:{name[8:]}"] = ("1/s", (total - before.get(name, 0)) / passed_s)
        return rates


def _totals(counts: TargetCounts) -> dict[str, int]:
    totals = {
        "admitted": counts.total(Verdict.ADMITTED),
        "refused": _refused(counts.decisions),
        "shadow_refused": _refused(counts.shadow),
        "finished": sum(each.finished for each in counts.classes.values()),
        "good": sum(each.good for each in counts.classes.values()),
    }
    for (_, verdict, reason), count in counts.decisions.items():
        if verdict in (Verdict.REJECTED, Verdict.SHED):
            name = f"refused:{REASON_NAMES.get(reason, reason)}"
            totals[name] = totals.get(name, 0) + count
    return totals


def _refused(decisions: dict[Key, int]) -> int:
    """Refusals of all classes; a caller that left while it waited is none."""
    return sum(
        count
        for (_, verdict, reason), count in decisions.items()
        if verdict in (Verdict.REJECTED, Verdict.SHED) and reason != Reason.CANCELLED
    )


def _levels(view: View) -> Values:
    values: Values = {
        "limit_tokens": ("tokens", view.limit),
        "used_tokens": ("tokens", view.used),
        "untracked_tokens": ("tokens", view.untracked),
        "in_flight": ("requests", view.in_flight),
        "queued": ("requests", view.queued),
        "prefill_budget_tokens": ("tokens", view.prefill_budget),
        "pending_prompt_tokens": ("tokens", view.pending_prompt_tokens),
        "prefill_rate": ("tokens/s", view.prefill_rate),
        "kv_usage_ratio": ("ratio", view.kv_usage_ratio),
        "engine_running": ("requests", view.engine_running),
        "engine_waiting": ("requests", view.engine_waiting),
    }
    for each in view.classes:
        values[f"queued:{each.priority.label}"] = ("requests", each.queued)
        values[f"in_flight:{each.priority.label}"] = ("requests", each.in_flight)
    return values


def _percentiles(target: str, measured: Measured) -> Values:
    values: Values = {}
    for (of, label, measure), each in measured.items():
        if of != target:
            continue
        for name in ("p50", "p95", "p99"):
            value = ("s", getattr(each, name))
            values[f"{measure}_{name}_s:{label}"] = value
            # Without a class: the most urgent one that has any.
            values.setdefault(f"{measure}_{name}_s", value)
    return values


def _gpus(target: str, telemetry: TelemetryView) -> Values:
    values: Values = {}
    for gpu in telemetry.gpus:
        if gpu.target == target and gpu.state == "ok":
            values[f"vram_free_bytes:{gpu.uuid}"] = ("bytes", gpu.memory_free_bytes)
            values[f"vram_used_bytes:{gpu.uuid}"] = ("bytes", gpu.memory_used_bytes)
            values[f"gpu_utilization_ratio:{gpu.uuid}"] = ("ratio", gpu.utilization_ratio)
    return values
