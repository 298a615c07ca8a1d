"""How fast goodput comes back after a disturbance, from counts per second of arrival around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

SMOOTH_S = 5
BEFORE_S = 60
"""How many seconds before a disturbance say what is normal."""
AFTER_S = 600
"""How many seconds after its end are looked at: later is never."""
ENOUGH_RATIO = 0.9
QUIET_BEFORE_S = 2.0
QUIET_AFTER_S = 5.0


@dataclass(slots=True)
class _Second:
    offered: int = 0
    good: int = 0


@dataclass(slots=True)
class Recovery:
    """Counts the seconds around each (from, until) in seconds; memory is bounded by the number of disturbances."""

    disturbances: Sequence[tuple[float, float]]
    from_s: float
    _seconds: dict[int, _Second] = field(default_factory=dict)
    _last: int = -1

    def add(self, at_s: float, *, good: bool) -> None:
        """Count one offered request by its arrival."""
        at = int(at_s)
        self._last = max(self._last, at)
        if any(start - BEFORE_S <= at <= end + AFTER_S for start, end in self.disturbances):
            second = self._seconds.setdefault(at, _Second())
            second.offered += 1
            second.good += good

    def is_quiet(self, at_s: float) -> bool:
        """Whether an arrival is far enough from every disturbance to be held to the SLO's tail."""
        for start, end in self.disturbances:
            if start - QUIET_BEFORE_S <= at_s < end + QUIET_AFTER_S:
                return False
        return True

    def after_s(self) -> tuple[float | None, ...]:
        """Seconds from each disturbance's end until goodput was back; None: not within sight, or nothing good before.

        Back means: over the `SMOOTH_S` seconds that begin there, 90 % of the good requests of the median before it,
        or of all that were offered when fewer were.
        """
        return tuple(self._after(start, end) for start, end in self.disturbances)

    def _after(self, start: float, end: float) -> float | None:
        normal = self._normal(start)
        if not normal or end == float("inf"):
            return None
        first = -int(-end // 1)
        last = min(first + AFTER_S, self._last - SMOOTH_S + 1)
        for at in range(first, last + 1):
            offered, good = self._smooth(at)
            if offered and good >= ENOUGH_RATIO * min(normal, offered):
                return max(0.0, at - end)
        return None

    def _normal(self, start: float) -> float:
        """Median of the good requests in the smoothed spans that end before it and touch no other disturbance."""
        since = max(self.from_s, start - BEFORE_S)
        spans = [
            self._smooth(at)[1]
            for at in range(-int(-since // 1), int(start) - SMOOTH_S + 1)
            if not any(at < until and began < at + SMOOTH_S for began, until in self.disturbances)
        ]
        return median(spans) if spans else 0.0

    def _smooth(self, at: int) -> tuple[int, int]:
        seconds = [second for n in range(at, at + SMOOTH_S) if (second := self._seconds.get(n))]
        return sum(second.offered for second in seconds), sum(second.good for second in seconds)
