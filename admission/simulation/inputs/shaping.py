"""Changes traffic while it flows: cuts, speeds up, loads, shifts, merges and labels streams of arrivals, in flat memory."""

from __future__ import annotations

import dataclasses
import heapq
from bisect import bisect
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, count
from random import Random
from typing import Generic, TypeVar
from zlib import crc32

from admission.simulation.inputs.arrival import Arrival
from admission.vocabulary import PriorityClass

T = TypeVar("T")
LIKE = 64
"""Recent requests among whose sizes the additional ones choose theirs."""


def cut(
    arrivals: Iterable[Arrival], start_s: float = 0.0, length_s: float = float("inf")
) -> Iterator[Arrival]:
    """Only those in [start_s, start_s + length_s), counted from start_s; stops reading there.

    Raises:
        ValueError: start_s is negative or length_s not positive.
    """
    if start_s < 0 or not length_s > 0:
        raise ValueError(
            f"start_s must not be negative and length_s positive, not {start_s:g} and {length_s:g}"
        )
    return _cut(arrivals, start_s, start_s + length_s)


def _cut(arrivals: Iterable[Arrival], start_s: float, end_s: float) -> Iterator[Arrival]:
    for arrival in arrivals:
        if arrival.at_s >= end_s:
            return
        if arrival.at_s >= start_s:
            yield arrival.at(arrival.at_s - start_s)


def faster(arrivals: Iterable[Arrival], speed: float) -> Iterator[Arrival]:
    """The same requests in 1 / speed of the time: the rate grows, and bursts become as much shorter.

    Raises:
        ValueError: speed is not positive.
    """
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed must be positive, not {speed:g}")
    return (arrival.at(arrival.at_s / speed) for arrival in arrivals)


def shifted(arrivals: Iterable[Arrival], by_s: float) -> Iterator[Arrival]:
    """All of them `by_s` seconds later.

    Raises:
        ValueError: by_s is negative.
    """
    if by_s < 0:
        raise ValueError(f"by_s must not be negative, not {by_s:g}: cut removes a beginning")
    return (arrival.at(arrival.at_s + by_s) for arrival in arrivals)


def merged(*sources: Iterable[Arrival]) -> Iterator[Arrival]:
    """Several streams as one, in time order; at the same moment the source named first goes first."""
    return heapq.merge(*sources, key=lambda arrival: arrival.at_s)


def loaded(
    arrivals: Iterable[Arrival], factor: float, seed: int = 0, jitter_s: float = 1.0
) -> Iterator[Arrival]:
    """`factor` times as many requests per second, in the same time and with the same bursts.

    Below 1 each request stays with that probability. Above 1 each is joined by others within the next `jitter_s`
    seconds, which have its class, tenant, session and target, and their sizes from among the last 64 requests.

    So the rate keeps its shape over time: each burst begins when it did, lasts as long, and is as many times the mean
    as before; a disturbance at a given second meets the same phase of the traffic at every load. Playing the trace
    faster would shorten its bursts (a 10 s one to 2 s at load 5, too short for any limiter to matter), and laying
    shifted copies over one another would average them away: at load 5 the peak over the mean falls towards that of
    Poisson traffic. Below `jitter_s` the added requests are spread evenly.

    Raises:
        ValueError: factor is not positive or jitter_s is negative.
    """
    if not 0 < factor < float("inf") or jitter_s < 0:
        raise ValueError(
            f"factor must be positive and jitter_s not negative, not {factor:g} and {jitter_s:g}"
        )
    if factor == 1:
        return iter(arrivals)
    return _loaded(arrivals, factor, Random(f"load-{seed}"), jitter_s)  # noqa: S311


def _loaded(arrivals: Iterable[Arrival], factor: float, random: Random, jitter_s: float) -> Iterator[Arrival]:
    whole, part = int(factor), factor % 1
    recent: deque[Arrival] = deque(maxlen=LIKE)
    waiting: list[tuple[float, int, Arrival]] = []
    numbers = count()
    for arrival in arrivals:
        while waiting and waiting[0][0] <= arrival.at_s:
            yield heapq.heappop(waiting)[2]
        recent.append(arrival)
        copies = whole + (random.random() < part)
        if copies:
            yield arrival
        for _ in range(copies - 1):
            at_s = arrival.at_s + random.random() * jitter_s
            number = next(numbers)
            heapq.heappush(waiting, (at_s, number, _like(arrival, random.choice(recent), at_s, number)))
    while waiting:
        yield heapq.heappop(waiting)[2]


def _like(who: Arrival, what: Arrival, at_s: float, number: int) -> Arrival:
    return dataclasses.replace(
        what,
        at_s=at_s,
        priority=who.priority,
        tenant=who.tenant,
        model=who.model,
        session=f"{who.session}+{number}" if who.session else "",
    )


def spread(arrivals: Iterable[Arrival], tick_s: float = 3.0, seed: int = 0) -> Iterator[Arrival]:
    """Spreads requests that share a timestamp evenly until the next one, `tick_s` at most.

    The timestamps of Mooncake's traces tick every 3 s or so: as they stand, nine in ten requests would arrive together
    with another one.

    Raises:
        ValueError: tick_s is not positive.
    """
    if not 0 < tick_s < float("inf"):
        raise ValueError(f"tick_s must be positive, not {tick_s:g}")
    return _spread(arrivals, tick_s, Random(f"spread-{seed}"))  # noqa: S311


def _spread(arrivals: Iterable[Arrival], tick_s: float, random: Random) -> Iterator[Arrival]:
    tick: list[Arrival] = []
    for arrival in arrivals:
        if tick and arrival.at_s > tick[0].at_s:
            yield from _within(tick, min(tick_s, arrival.at_s - tick[0].at_s), random)
            tick.clear()
        tick.append(arrival)
    if tick:
        yield from _within(tick, tick_s, random)


def _within(tick: list[Arrival], length_s: float, random: Random) -> Iterator[Arrival]:
    offsets = sorted(random.random() * length_s for _ in tick)
    for arrival, offset in zip(tick, offsets, strict=True):
        yield arrival.at(arrival.at_s + offset)


def labelled(
    arrivals: Iterable[Arrival],
    classes: Mapping[PriorityClass, float] | None = None,
    tenants: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Iterator[Arrival]:
    """Gives each request a class and a tenant by their shares; a session keeps what its first request got.

    Raises:
        ValueError: a share is negative, or none is positive.
    """
    by_class = Shares(classes) if classes else None
    by_tenant = Shares(tenants) if tenants else None
    return _labelled(arrivals, by_class, by_tenant, seed)


def _labelled(
    arrivals: Iterable[Arrival],
    classes: Shares[PriorityClass] | None,
    tenants: Shares[str] | None,
    seed: int,
) -> Iterator[Arrival]:
    random = Random(f"labels-{seed}")  # noqa: S311
    for arrival in arrivals:
        first, second = random.random(), random.random()
        if arrival.session:
            # From the name itself: no table of sessions, however many there are.
            first, second = (_fraction(f"{seed}/{what}/{arrival.session}") for what in ("class", "tenant"))
        yield dataclasses.replace(
            arrival,
            priority=classes.at(first) if classes else arrival.priority,
            tenant=tenants.at(second) if tenants else arrival.tenant,
        )


def _fraction(name: str) -> float:
    return crc32(name.encode()) / 2**32


class Shares(Generic[T]):
    """Weights of a few values. ValueError: a share is negative, or none is positive."""

    def __init__(self, weights: Mapping[T, float]) -> None:
        self._values = list(weights)
        self._ends = list(accumulate(weights.values()))
        if not self._ends or not 0 < self._ends[-1] < float("inf") or min(weights.values()) < 0:
            raise ValueError("shares must not be negative, and one of them positive")

    def at(self, fraction: float) -> T:
        """The value at this fraction, 0 to 1, of all weights."""
        return self._values[min(bisect(self._ends, fraction * self._ends[-1]), len(self._values) - 1)]
