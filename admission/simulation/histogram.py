"""Quantiles of a stream in constant memory: counts in buckets that grow by a fixed ratio.

The buckets are those of DDSketch (Masson, Rim and Lee: DDSketch, VLDB 2019, section 2): with a relative error e,
bucket i holds the values in (g^(i-1), g^i] with g = (1 + e) / (1 - e), and 2 g^i / (g + 1) is at most e off for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

ERROR_RATIO = 0.01
LOWEST = 1e-6
HIGHEST = 1e9


class Histogram:
    """Counts of positive values between `LOWEST` and `HIGHEST`; what lies outside counts at the edge.

    Args:
        error_ratio: how far a quantile may be from the value at its rank, relative to that value.
    """

    __slots__ = ("_counts", "_high", "_log", "_low", "count", "error_ratio")

    def __init__(self, error_ratio: float = ERROR_RATIO) -> None:
        if not 0 < error_ratio < 1:
            raise ValueError(f"error_ratio must be between 0 and 1, not {error_ratio}")
        self.error_ratio = error_ratio
        self.count = 0
        self._log = math.log((1 + error_ratio) / (1 - error_ratio))
        self._counts: dict[int, int] = {}
        self._low = math.inf
        self._high = -math.inf

    def __len__(self) -> int:
        """How many buckets are in use: the memory it holds."""
        return len(self._counts)

    def bucket(self, value: float) -> int:
        """The bucket of a value.

        Raises:
            ValueError: the value is not a number.
        """
        inside = value if LOWEST <= value <= HIGHEST else _edge(value)
        return math.ceil(math.log(inside) / self._log)

    def add(self, value: float) -> None:
        """Count one value.

        Raises:
            ValueError: the value is not a number.
        """
        inside = value if LOWEST <= value <= HIGHEST else _edge(value)
        bucket = math.ceil(math.log(inside) / self._log)
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.count += 1
        if inside < self._low:  # noqa: PLR1730 - min() costs twice as much, and this is a hot path
            self._low = inside
        if inside > self._high:  # noqa: PLR1730 - as above
            self._high = inside

    def merge(self, other: Histogram) -> None:
        """Add what another one of the same error counted.

        Raises:
            ValueError: the errors differ, so the buckets do not match.
        """
        if other.error_ratio != self.error_ratio:
            raise ValueError(f"buckets do not match: {self.error_ratio} and {other.error_ratio}")
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self._low = min(self._low, other._low)
        self._high = max(self._high, other._high)

    def quantile(self, q: float) -> float | None:
        """The value at rank int(q (n - 1)) within the relative error; None when nothing was counted."""
        if not self.count:
            return None
        rank, seen = int(q * (self.count - 1)), 0
        for value, count in self:
            seen += count
            if seen > rank:
                return value
        raise AssertionError(rank)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Value and count of each bucket in use, the smallest first."""
        growth = math.exp(self._log)
        for bucket in sorted(self._counts):
            middle = 2 * math.exp(self._log * bucket) / (growth + 1)
            yield min(max(middle, self._low), self._high), self._counts[bucket]


def _edge(value: float) -> float:
    if math.isnan(value):
        raise ValueError("cannot count a NaN")
    return min(max(value, LOWEST), HIGHEST)
