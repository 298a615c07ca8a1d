"""Small arithmetic that takes its time from outside: means, quantiles, rates."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import exp


def low_quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of a non-empty ordered sequence, rounded down: a handful of values gives a cautious answer."""
    return ordered[int(q * (len(ordered) - 1))]


class RunningQuantile:
    """A quantile over the last `size` values, kept in order so that reading it costs nothing."""

    __slots__ = ("_ordered", "_recent", "_size")

    def __init__(self, size: int = 200) -> None:
        self._size = size
        self._recent: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, value: float) -> None:
        """Take a value in; the oldest leaves when the window is full."""
        if len(self._recent) == self._size:
            oldest = self._recent.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
        self._recent.append(value)
        insort(self._ordered, value)

    def value(self, q: float) -> float:
        """The q-quantile of what is in the window, which must not be empty."""
        return low_quantile(self._ordered, q)

    def values(self) -> list[float]:
        """The window, oldest first."""
        return list(self._recent)


class Mean:
    """An exponential mean over samples: each new one weighs `weight`."""

    __slots__ = ("_weight", "count", "value")

    def __init__(self, initial: float, weight: float = 0.05) -> None:
        self.value = initial
        self.count = 0
        self._weight = weight

    def add(self, sample: float) -> None:
        """Take a sample in. The first ones weigh more, so that the initial guess fades at once."""
        self.count += 1
        self.value += (sample - self.value) * max(self._weight, 1.0 / self.count)


class SmoothedInTime:
    """An exponential mean over time: smooth in seconds, whatever the interval of the samples."""

    __slots__ = ("_at", "_tau_s", "value")

    def __init__(self, tau_s: float) -> None:
        self._tau_s = tau_s
        self._at = 0.0
        self.value: float | None = None

    def add(self, sample: float, now: float) -> None:
        """Take a sample in."""
        if self.value is None:
            self.value = sample
        else:
            self.value += (sample - self.value) * (1.0 - exp(-max(0.0, now - self._at) / self._tau_s))
        self._at = now

    def forget(self) -> None:
        """Start over."""
        self.value = None


class Rate:
    """Amount per second, smoothed over about `tau_s`: counted as it comes, folded in once a tick."""

    __slots__ = ("_folded_at", "_smoothed", "_sum")

    def __init__(self, tau_s: float, now: float) -> None:
        self._sum = 0.0
        self._folded_at = now
        self._smoothed = SmoothedInTime(tau_s)

    def add(self, amount: float) -> None:
        """Count an amount."""
        self._sum += amount

    def fold(self, now: float) -> None:
        """Take what was counted since the last time into the rate."""
        if now > self._folded_at:
            self._smoothed.add(self._sum / (now - self._folded_at), now)
            self._sum, self._folded_at = 0.0, now

    @property
    def per_second(self) -> float:
        """The rate as of the last fold, 0 before it."""
        return self._smoothed.value or 0.0
