"""How often requests come as time goes by: steady, spikes, ramps, silence; evenly, at random, or in bursts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import ClassVar

FORBID: dict[str, str] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """From this second on the rate is `factor` times the usual one; with `to` it goes straight there until the next point."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    at_s: float
    factor: float
    to: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what is no time or no factor."""
        if not 0 <= self.at_s < math.inf:
            raise ValueError(f"at_s must not be negative, not {self.at_s}")
        for name, value in (("factor", self.factor), ("to", self.to)):
            if value is not None and not 0 <= value <= 1e6:
                raise ValueError(f"{name} must be between 0 and 1,000,000, not {value}")


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rate runs straight from `first` to `last` between two instants."""

    from_s: float
    until_s: float
    first: float
    last: float

    @property
    def amount(self) -> float:
        """Requests expected within it."""
        length_s = self.until_s - self.from_s
        if self.first == self.last == 0:
            return 0.0
        return (self.first + self.last) / 2 * length_s

    def reached(self, amount: float) -> float:
        """The instant at which so many are expected since its beginning."""
        if self.first == self.last:
            return self.from_s + amount / self.first
        slope = (self.last - self.first) / (self.until_s - self.from_s)
        root = math.sqrt(max(0.0, self.first**2 + 2 * slope * amount))
        # The usual formula with the fraction turned over: exact for slopes near 0 too.
        return min(self.until_s, self.from_s + 2 * amount / (self.first + root))


def pieces(rate_per_s: float, profile: tuple[RatePoint, ...], repeat_s: float | None) -> Iterator[_Piece]:
    """The straight pieces of a rate, one after the other, without end."""
    if not profile:
        yield _Piece(0.0, math.inf, rate_per_s, rate_per_s)
        return
    cycle = _cycle(rate_per_s, profile, math.inf if repeat_s is None else repeat_s)
    start_s = 0.0
    while True:
        for one in cycle:
            yield _Piece(start_s + one.from_s, start_s + one.until_s, one.first, one.last)
        start_s += cycle[-1].until_s


def _cycle(rate_per_s: float, profile: tuple[RatePoint, ...], end_s: float) -> list[_Piece]:
    points = profile if profile[0].at_s == 0 else (RatePoint(at_s=0.0, factor=1.0), *profile)
    ends = [*(after.at_s for _, after in pairwise(points)), end_s]
    return [
        _Piece(
            point.at_s,
            until_s,
            rate_per_s * point.factor,
            rate_per_s * (point.factor if point.to is None else point.to),
        )
        for point, until_s in zip(points, ends, strict=True)
    ]


def instants(rate: Iterator[_Piece], cv: float, random: Random) -> Iterator[float]:
    """When requests come. `cv` is the standard deviation of the gaps over their mean at a steady rate.

    1 is Poisson traffic, 0 is even, above 1 they come in bursts (gamma distributed gaps). Where the rate changes, gaps
    are drawn as expected numbers of requests and mapped back onto time, so that the rate is exact at any `cv`.
    """
    gap = _gap(cv, random)
    left = gap() * random.random() if cv == 0 else gap()
    for piece in rate:
        amount, at = piece.amount, 0.0
        while at + left <= amount and amount > 0:
            at += left
            yield piece.reached(at)
            left = gap()
        left -= amount - at
        if piece.until_s == math.inf:
            return


def _gap(cv: float, random: Random) -> Callable[[], float]:
    if cv == 0:
        return lambda: 1.0
    if cv == 1:
        return lambda: random.expovariate(1.0)
    shape = 1 / cv**2
    return lambda: random.gammavariate(shape, 1 / shape)
