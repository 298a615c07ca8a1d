"""Is B better than A, or is it noise? Paired differences over seeds, with an interval and a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """B - A over paired runs, in the figure's own unit. `half_width` is that of the interval; None: one pair only."""

    figure: str
    mean_a: float
    mean_b: float
    mean: float
    half_width: float | None
    pairs: int

    @property
    def low(self) -> float | None:
        """The interval's lower end."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The interval's upper end."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def exceeds_noise(self) -> bool | None:
        """Whether the interval leaves zero out; None when one pair says nothing about noise."""
        return None if self.half_width is None else abs(self.mean) > self.half_width

    def as_json(self) -> dict[str, Any]:
        """Exact figures."""
        return {
            "figure": self.figure,
            "mean_a": self.mean_a,
            "mean_b": self.mean_b,
            "difference": self.mean,
            "low": self.low,
            "high": self.high,
            "confidence": CONFIDENCE,
            "pairs": self.pairs,
            "exceeds_noise": self.exceeds_noise,
        }


def paired(figure: str, a: Sequence[float], b: Sequence[float]) -> Difference:
    """The mean of B - A with its 95 % interval by Student's t over the pairs.

    Args:
        figure: what is compared.
        a: one value for each seed.
        b: the values for the same seeds in the same order.

    Raises:
        ValueError: no pairs, or not as many of one as of the other.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"need as many of A as of B, and one at least: {len(a)} and {len(b)}")
    differences = [after - before for before, after in zip(a, b, strict=True)]
    pairs = len(differences)
    half_width = t_quantile(pairs - 1) * stdev(differences) / math.sqrt(pairs) if pairs > 1 else None
    return Difference(figure, fmean(a), fmean(b), fmean(differences), half_width, pairs)


def sentence(difference: Difference, a: str = "A", b: str = "B") -> str:
    """Which is better by the figure (a ratio, more is better), and whether that exceeds the noise."""
    said, pairs = 100 * difference.mean, difference.pairs
    if difference.half_width is None:
        return f"{_means(difference, b, a)} ({said:+.2f} points for {b}). One seed says nothing about noise: use --seeds 5."
    ends = sorted(100 * (difference.mean + sign * difference.half_width) for sign in (-1, 1))
    margin = f"{b} - {a}: {said:+.2f} points, 95 % interval {ends[0]:+.2f} to {ends[1]:+.2f}"
    if not difference.exceeds_noise:
        return f"No difference beyond the noise over {pairs} seeds: {_means(difference, b, a)} ({margin})."
    better, worse = (b, a) if difference.mean > 0 else (a, b)
    means = _means(difference, better, worse, turned=difference.mean < 0)
    return f"{better} is better than {worse}: {means}, more than the noise over {pairs} seeds ({margin})."


def _means(difference: Difference, first: str, second: str, *, turned: bool = False) -> str:
    ratios = (difference.mean_b, difference.mean_a)
    one, other = reversed(ratios) if turned else ratios
    return f"{difference.figure} {100 * one:.1f} % with {first}, {100 * other:.1f} % with {second}"


def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t that a Student variable's magnitude stays under with that probability, by bisection.

    Raises:
        ValueError: no degree of freedom.
    """
    if freedom < 1:
        raise ValueError("freedom must be at least 1")
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) in closed form: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    squared = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= squared * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
