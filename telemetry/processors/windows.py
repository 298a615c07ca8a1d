"""Percentiles of the last seconds per target, class and measure, in fixed memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of `count` values, in their unit, by linear interpolation."""

    p50: float
    p95: float
    p99: float
    count: int


class Ring:
    """The newest values with their times. It grows by doubling up to `capacity`, then overwrites the oldest."""

    __slots__ = ("_at", "_capacity", "_next", "_value", "filled")

    def __init__(self, capacity: int) -> None:
        first = min(64, capacity)
        self._capacity = capacity
        self._at: NDArray[np.float64] = np.empty(first)
        self._value: NDArray[np.float64] = np.empty(first)
        self._next = 0
        self.filled = 0

    def add(self, value: float, now: float) -> None:
        """Keep one value."""
        if self.filled == len(self._at) < self._capacity:
            self._grow()
        self._at[self._next] = now
        self._value[self._next] = value
        self._next = (self._next + 1) % len(self._at)
        self.filled = min(self.filled + 1, len(self._at))

    def since(self, oldest: float) -> NDArray[np.float64]:
        """The values at or after `oldest`, in no order."""
        recent: NDArray[np.float64] = self._value[: self.filled][self._at[: self.filled] >= oldest]
        return recent

    def _grow(self) -> None:
        size = min(2 * len(self._at), self._capacity)
        spare: NDArray[np.float64] = np.empty(size - len(self._at))
        self._next = len(self._at)
        self._at = np.concatenate([self._at, spare])
        self._value = np.concatenate([self._value, spare])


class Windows:
    """Rings by (target, class, measure). Beyond `max_keys` the key unused for longest is forgotten.

    `span_s` is the longest window that can be asked for, in seconds.
    """

    def __init__(self, *, span_s: float = 60.0, max_samples: int = 4096, max_keys: int = 256) -> None:
        if span_s <= 0 or max_samples < 1 or max_keys < 1:
            raise ValueError("span_s, max_samples and max_keys must be positive")
        self.span_s = span_s
        self._max_samples = max_samples
        self._max_keys = max_keys
        self._rings: OrderedDict[Key, Ring] = OrderedDict()

    def __len__(self) -> int:
        """Keys held."""
        return len(self._rings)

    def add(self, target: str, cls: str, measure: str, value: float, now: float) -> None:
        """Keep one value; what is not finite is left out."""
        if not np.isfinite(value):
            return
        self._ring((target, cls, measure)).add(value, now)

    def percentiles(
        self, target: str, cls: str, measure: str, now: float, over_s: float = 60.0
    ) -> Percentiles | None:
        """Of the last `over_s` seconds (at most `span_s`); None when there is no value."""
        ring = self._rings.get((target, cls, measure))
        if ring is None:
            return None
        values = ring.since(now - min(over_s, self.span_s))
        if not len(values):
            return None
        p50, p95, p99 = np.percentile(values, (50, 95, 99))
        return Percentiles(float(p50), float(p95), float(p99), len(values))

    def _ring(self, key: Key) -> Ring:
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = Ring(self._max_samples)
            if len(self._rings) > self._max_keys:
                self._rings.popitem(last=False)
        self._rings.move_to_end(key)
        return ring
