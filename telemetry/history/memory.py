"""The last while of every series in fixed memory: one point a second, gaps stay gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Points:
    """One series in time order. `unix_s` and `value` run in parallel; a gap is an absent point."""

    name: str
    unit: str
    unix_s: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)


class _Ring:
    """Values of one series by slot of the shared clock; NaN where nothing was seen."""

    __slots__ = ("unit", "values")

    def __init__(self, capacity: int, unit: str) -> None:
        self.unit = unit
        self.values: NDArray[np.float32] = np.full(capacity, np.nan, dtype=np.float32)


class MemoryHistory:
    """A ring of `capacity_s` points, one a second, for at most `max_series` series per target.

    Every call of `add` is one point in time for one target: a series that it does not name has a gap there.
    """

    def __init__(self, *, capacity_s: int = 3600, max_series: int = 128, max_targets: int = 64) -> None:
        if capacity_s < 1 or max_series < 1 or max_targets < 1:
            raise ValueError("capacity_s, max_series and max_targets must be positive")
        self._capacity = capacity_s
        self._max_series = max_series
        self._max_targets = max_targets
        self._targets: dict[str, _Target] = {}
        self.dropped_series = 0

    def add(self, target: str, unix_s: float, values: Mapping[str, tuple[str, float | None]]) -> None:
        """One point in time: value and unit by series. None and what is not finite are gaps."""
        ours = self._targets.get(target)
        if ours is None:
            if len(self._targets) >= self._max_targets:
                self.dropped_series += len(values)
                return
            ours = self._targets[target] = _Target(self._capacity, self._max_series)
        self.dropped_series += ours.add(unix_s, values)

    def range(
        self, target: str, series: Iterable[str], now_unix_s: float, since_s: float, max_points: int
    ) -> list[Points]:
        """The last `since_s` seconds of the named series (none: all), at most `max_points` each.

        Points that share a bin are averaged, at the mean of their times; an empty bin has no point.
        """
        ours = self._targets.get(target)
        if ours is None or max_points < 1:
            return []
        names = [name for name in series if name in ours.rings] or (
            [] if list(series) else sorted(ours.rings)
        )
        return [ours.points(name, now_unix_s, since_s, max_points) for name in names]


class _Target:
    """The rings of one target over one clock."""

    def __init__(self, capacity: int, max_series: int) -> None:
        self._capacity = capacity
        self._max_series = max_series
        self._at: NDArray[np.float64] = np.full(capacity, np.nan)
        self._next = 0
        self.rings: dict[str, _Ring] = {}

    def add(self, unix_s: float, values: Mapping[str, tuple[str, float | None]]) -> int:
        slot = self._next
        self._next = (slot + 1) % self._capacity
        self._at[slot] = unix_s
        for each in self.rings.values():
            each.values[slot] = np.nan
        dropped = 0
        for name, (unit, value) in values.items():
            if value is None or not math.isfinite(value):
                continue
            ring = self.rings.get(name)
            if ring is None:
                if len(self.rings) >= self._max_series:
                    dropped += 1
                    continue
                ring = self.rings[name] = _Ring(self._capacity, unit)
            ring.values[slot] = value
        return dropped

    def points(self, name: str, now_unix_s: float, since_s: float, max_points: int) -> Points:
        ring = self.rings[name]
        order = np.roll(np.arange(self._capacity), -self._next)
        at, value = self._at[order], ring.values[order].astype(np.float64)
        start = now_unix_s - since_s
        keep = (at >= start) & (at <= now_unix_s + 1.0) & ~np.isnan(value)
        at, value = at[keep], value[keep]
        if len(at) > max_points:
            at, value = _binned(at, value, start, since_s / max_points, max_points)
        return Points(name, ring.unit, at.tolist(), value.tolist())


def _binned(
    at: NDArray[np.float64], value: NDArray[np.float64], start: float, width_s: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means by bin, of `count` bins of `width_s` seconds; bins without points are left out."""
    bins = np.clip(((at - start) / width_s).astype(np.int64), 0, count - 1)
    _, where, counts = np.unique(bins, return_inverse=True, return_counts=True)
    return np.bincount(where, at) / counts, np.bincount(where, value) / counts
