"""What happened since start, counted by target, class, verdict and reason; recent changes and decisions in rings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from admission.core.model import (
    Admitted,
    Event,
    Finished,
    GateChanged,
    LeaseExpired,
    LimitChanged,
    Queued,
    Rejected,
    Sample,
    ShadowDecided,
    Shed,
    Why,
)
from admission.server.changes import Changes
from admission.server.origins import Origins
from admission.vocabulary import Outcome, PriorityClass, Reason, Verdict
from telemetry.processors.windows import Windows

_MAX_REFUSALS = 2000
_MAX_ADMISSIONS = 1000
_ADMISSION_SAMPLE = 16
_GATHER = 512
_MAX_MEASURED = 512
"""Finishes measured per flush; of more, every n-th, which moves no percentile."""

Key = tuple[int, int, int]
"""(class, verdict, reason or 0)."""


@dataclass(slots=True)
class ClassCounts:
    """Of one class of one target."""

    good: int = 0
    judged: int = 0
    finished: int = 0


@dataclass(slots=True)
class Recorded:
    """One decision as it is remembered. Unix seconds."""

    at: float
    target: str
    event: Admitted | Rejected | Shed
    request_id: str
    trace_id: str


@dataclass(slots=True)
class TargetCounts:
    """Of one target."""

    decisions: dict[Key, int] = field(default_factory=dict)
    shadow: dict[Key, int] = field(default_factory=dict)
    classes: dict[int, ClassCounts] = field(
        default_factory=lambda: {int(each): ClassCounts() for each in PriorityClass}
    )
    changes: Changes = field(default_factory=Changes)
    leases_expired: int = 0
    shadowing: bool = False
    """The target is in shadow, as of a second ago at most."""
    own_first_tokens: int = 0

    def total(self, *verdicts: Verdict, shadow: bool = False) -> int:
        """Decisions with one of the verdicts."""
        counts = self.shadow if shadow else self.decisions
        return sum(count for (_, verdict, _), count in counts.items() if verdict in verdicts)


class Counts:
    """A listener that counts. Percentiles are fed once a flush, off the path of decisions."""

    def __init__(
        self,
        targets: tuple[str, ...],
        windows: Windows,
        origins: Origins,
        now: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self.targets = {target: TargetCounts() for target in targets}
        self._windows = windows
        self._origins = origins
        self._now, self._unix = now, unix
        self._wall = unix() - now()
        """Wall clock less monotonic clock."""
        self._gathered: list[tuple[str, Event, float]] = []
        self._refusals: deque[Recorded] = deque(maxlen=_MAX_REFUSALS)
        self._admissions: deque[Recorded] = deque(maxlen=_MAX_ADMISSIONS)
        self._sampled = 0
        self._finished: list[tuple[str, Finished, float]] = []
        self._skip = 0

    # ---- listening

    def on_event(self, target: str, event: Event, now: float) -> None:
        """Keep it; counting is done for many at once."""
        gathered = self._gathered
        gathered.append((target, event, now))
        if len(gathered) >= _GATHER:
            self.count()

    def count(self) -> None:
        """Count what was gathered."""
        gathered, self._gathered = self._gathered, []
        self._wall = self._unix() - self._now()
        targets, handlers = self.targets, _HANDLERS
        for target, event, now in gathered:
            handlers[type(event)](self, targets[target], target, event, now)

    def _admitted(self, counts: TargetCounts, target: str, event: Admitted, now: float) -> None:
        priority = event.ticket.priority
        _add(counts.decisions, (priority, 1, 0))
        shadow = event.shadow
        if shadow is None:
            if counts.shadowing:
                _add(counts.shadow, (priority, 1, 0))
        elif type(shadow) is not Queued:
            _add(counts.shadow, (priority, _VERDICTS[type(shadow)], shadow.reason))  # type: ignore[union-attr]
        self._sampled += 1
        if shadow is not None or event.waited_s > 0.0 or self._sampled % _ADMISSION_SAMPLE == 0:
            self._remember(self._admissions, target, event, now)

    def _refused(self, counts: TargetCounts, target: str, event: Rejected | Shed, now: float) -> None:
        _add(counts.decisions, (event.ticket.priority, _VERDICTS[type(event)], event.reason))
        self._remember(self._refusals, target, event, now)

    def _queued(self, counts: TargetCounts, _target: str, event: Queued, _now: float) -> None:
        _add(counts.decisions, (event.ticket.priority, 2, 0))

    def _shadow_decided(self, counts: TargetCounts, target: str, event: ShadowDecided, now: float) -> None:
        _add(counts.shadow, (event.ticket.priority, event.verdict, event.reason or 0))
        if event.reason is not None:
            self._remember(self._admissions, target, _would_have_shed(event, event.reason), now)

    def _ended(self, counts: TargetCounts, target: str, event: Finished, now: float) -> None:
        ours = counts.classes[event.ticket.priority]
        ours.finished += 1
        if event.good is not None:
            ours.judged += 1
            ours.good += event.good
        self._finished.append((target, event, now))
        if len(self._finished) >= 2 * _MAX_MEASURED:
            # Between flushes as well nothing grows without bound: keep every second.
            self._finished = self._finished[::2]

    def _changed(
        self, counts: TargetCounts, _target: str, event: LimitChanged | GateChanged, now: float
    ) -> None:
        counts.changes.add(event, self._wall + now)

    def _expired(self, counts: TargetCounts, _target: str, _event: LeaseExpired, _now: float) -> None:
        counts.leases_expired += 1

    def _remember(
        self, ring: deque[Recorded], target: str, event: Admitted | Rejected | Shed, now: float
    ) -> None:
        request_id, traceparent = self._origins.origin(event.ticket.id) or ("", "")
        ring.append(Recorded(self._wall + now, target, event, request_id, trace_id_of(traceparent)))

    def spanned(self, target: str, sample: Sample, now: float) -> None:
        """A finished request that a span told of: it measures what our own events do not see."""
        if self.targets[target].own_first_tokens or sample.outcome is not Outcome.OK:
            return
        label = PriorityClass.INTERACTIVE.label
        for measure, value in (("ttft", sample.ttft_s), ("tpot", sample.tpot_s), ("e2e", sample.e2e_s)):
            if value is not None:
                self._windows.add(target, label, measure, value, now)

    # ---- asked

    def flush(self) -> None:
        """Feed the percentile windows with what finished since the last flush."""
        self.count()
        finished, self._finished = self._finished, []
        step = max(1, len(finished) // _MAX_MEASURED)
        for target, event, now in finished[::step]:
            for measure, value in _measures(event):
                if value is not None:
                    self._windows.add(target, event.ticket.priority.label, measure, value, now)
            if event.ttft_s is not None:
                self.targets[target].own_first_tokens += 1

    def recent(self, target: str, match: str, max_results: int, *, refused_only: bool) -> Iterator[Recorded]:
        """Newest first."""
        self.count()
        rings = [self._refusals] if refused_only else [self._refusals, self._admissions]
        found = [
            each
            for ring in rings
            for each in ring
            if (not target or each.target == target)
            and (not match or match in {each.request_id, each.trace_id})
        ]
        found.sort(key=lambda each: each.at, reverse=True)
        return iter(found[:max_results])


def _would_have_shed(event: ShadowDecided, reason: Reason) -> Admitted:
    """The admission that it was, with what enforce would have said in the end. Its cost was told when it began."""
    why = Why(f"would have waited {event.waited_s:.1f} s and been refused")
    return Admitted(event.ticket, 0.0, 0, None, Shed(event.ticket, reason, None, why, event.waited_s))


def trace_id_of(traceparent: str) -> str:
    """The trace id of a W3C traceparent, empty when it is not one."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 else ""


def _measures(event: Finished) -> tuple[tuple[str, float | None], ...]:
    return (
        ("ttft", event.ttft_s),
        ("tpot", event.tpot_s),
        ("queue_time", event.waited_s),
        ("e2e", event.waited_s + event.held_s),
    )


def _add(counts: dict[Key, int], key: tuple[int, int, int | Reason]) -> None:
    counts[key] = counts.get(key, 0) + 1


_VERDICTS = {Admitted: 1, Queued: 2, Rejected: 3, Shed: 4}
_HANDLERS: dict[type, Callable[..., None]] = {
    Admitted: Counts._admitted,  # noqa: SLF001 - the class's own table of handlers
    Queued: Counts._queued,  # noqa: SLF001
    Rejected: Counts._refused,  # noqa: SLF001
    Shed: Counts._refused,  # noqa: SLF001
    ShadowDecided: Counts._shadow_decided,  # noqa: SLF001
    Finished: Counts._ended,  # noqa: SLF001
    LimitChanged: Counts._changed,  # noqa: SLF001
    GateChanged: Counts._changed,  # noqa: SLF001
    LeaseExpired: Counts._expired,  # noqa: SLF001
}
