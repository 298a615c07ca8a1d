"""Rates per second out of totals since start: the difference of two snapshots of one boot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types

RATE_WINDOW_S = 10.0
GOOD_WINDOW_S = 60.0
_KEPT = 90
_REFUSALS = (types.VERDICT_REJECTED, types.VERDICT_SHED)
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Rates:
    """What one target did lately. Per second; keys are (class, reason name) or class."""

    admitted: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], float] = field(default_factory=dict)
    would_refuse: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """In shadow: what enforcing would have refused."""
    good: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Per class, over the last minute: finished within SLO, and all that can be held against it."""
    window_s: float = 0.0
    """Seconds that the rates cover; 0: not known yet."""

    def refused_total(self) -> float:
        """Refusals per second over all classes and reasons."""
        return sum(self.refused.values())

    def admitted_total(self) -> float:
        """Admissions per second over all classes."""
        return sum(self.admitted.values())

    def would_refuse_total(self) -> float:
        """Refusals per second that enforcing would have made."""
        return sum(self.would_refuse.values())

    def refused_of(self, name: str) -> float:
        """Refusals per second of one class."""
        return sum(value for (cls, _), value in self.refused.items() if cls == name)


@dataclass(frozen=True, slots=True)
class _Totals:
    at: float
    boot: bytes
    counts: Mapping[_Key, int]


class RateWindow:
    """Snapshots of the last minute and a half, kept as totals only."""

    def __init__(self) -> None:
        self._kept: deque[_Totals] = deque(maxlen=_KEPT)

    def add(self, snapshot: monitor.Snapshot) -> None:
        """Take the totals of a snapshot; a new boot or a clock that went back starts afresh."""
        new = _Totals(_unix(snapshot), snapshot.boot, _totals(snapshot))
        if self._kept and (self._kept[-1].boot != new.boot or self._kept[-1].at > new.at):
            self._kept.clear()
        if not self._kept or new.at > self._kept[-1].at:
            self._kept.append(new)

    def rates(self, target: str) -> Rates:
        """Rates of a target; empty, with a window of 0, until two snapshots are there."""
        short, long = self._back(RATE_WINDOW_S), self._back(GOOD_WINDOW_S)
        if short is None or long is None:
            return Rates()
        last = self._kept[-1]
        span = last.at - short.at
        moved = {
            key: max(0, total - short.counts.get(key, 0))
            for key, total in last.counts.items()
            if key[0] == target
        }
        return Rates(
            admitted={cls: n / span for (_, cls, what), n in moved.items() if what == "admitted"},
            refused=_refusals(moved, "refused:", span),
            would_refuse=_refusals(moved, "shadow:", span),
            good=_good(target, long.counts, last.counts),
            window_s=span,
        )

    def _back(self, span_s: float) -> _Totals | None:
        """The oldest totals no more than `span_s` before the newest."""
        if len(self._kept) < 2:
            return None
        newest = self._kept[-1]
        inside = (kept for kept in self._kept if newest.at - kept.at <= span_s)
        oldest = next(inside)
        return oldest if oldest is not newest else self._kept[-2]


def _unix(snapshot: monitor.Snapshot) -> float:
    return snapshot.at.seconds + snapshot.at.nanos / 1e9


def _totals(snapshot: monitor.Snapshot) -> dict[_Key, int]:
    totals: dict[_Key, int] = {}
    for target in snapshot.targets:
        for cls in target.classes:
            _add(totals, (target.name, cls.name), cls.counts, "refused:")
            _add(totals, (target.name, cls.name), cls.shadow_counts, "shadow:")
            totals[target.name, cls.name, "good"] = cls.good
            totals[target.name, cls.name, "judged"] = cls.judged
    return totals


def _add(totals: dict[_Key, int], who: tuple[str, str], counts: Iterable[monitor.Count], prefix: str) -> None:
    for item in counts:
        if item.verdict in _REFUSALS:
            what = prefix + reason_name(item.reason)
        elif item.verdict == types.VERDICT_ADMITTED and prefix == "refused:":
            what = "admitted"
        else:
            continue
        totals[(*who, what)] = totals.get((*who, what), 0) + item.total


def reason_name(reason: types.Reason.ValueType) -> str:
    """The glossary's name of a reason on the wire; one that is newer than this page gets its number."""
    try:
        return types.Reason.Name(reason).removeprefix("REASON_")
    except ValueError:
        return f"REASON_{reason}"


def _refusals(moved: Mapping[_Key, int], prefix: str, span: float) -> dict[tuple[str, str], float]:
    """A caller that left while it waited is no refusal."""
    return {
        (cls, what.removeprefix(prefix)): n / span
        for (_, cls, what), n in moved.items()
        if n and what.startswith(prefix) and what != prefix + "CANCELLED"
    }


def _good(target: str, old: Mapping[_Key, int], new: Mapping[_Key, int]) -> dict[str, tuple[int, int]]:
    def moved(cls: str, what: str) -> int:
        key = (target, cls, what)
        return max(0, new.get(key, 0) - old.get(key, 0))

    classes = {cls for (name, cls, _) in new if name == target}
    return {cls: (moved(cls, "good"), moved(cls, "judged")) for cls in classes}
