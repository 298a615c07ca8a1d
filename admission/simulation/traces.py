"""Recorded traffic in one list: what a short piece of a trace needs. Long ones are streamed: `inputs.reading`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from admission.simulation.inputs.arrival import Arrival, TraceError
from admission.simulation.inputs.reading import shipped_names, shipped_stream, stream

__all__ = [
    "AZURE_CODE_BURST",
    "Arrival",
    "SupportsExponential",
    "TraceError",
    "poisson",
    "read",
    "shipped",
    "shipped_names",
    "shipped_stream",
    "stream",
    "window",
]

AZURE_CODE_BURST = "azure2023_code_burst_540_960.csv.gz"


class SupportsExponential(Protocol):
    """What is needed of `random.Random`."""

    def expovariate(self, lambd: float, /) -> float:
        """Draw an exponential interval with mean 1 / lambd."""
        ...


def read(path: Path) -> list[Arrival]:
    """Read a whole trace (see `stream`), in time order.

    Raises:
        TraceError: no such file, not a trace, no rows, not in time order, or a value that makes no sense.
    """
    return list(stream(path))


def shipped(name: str = AZURE_CODE_BURST) -> list[Arrival]:
    """Read a trace that comes with the package."""
    return list(shipped_stream(name))


def window(arrivals: Iterable[Arrival], start_s: float, length_s: float, speed: float = 1.0) -> list[Arrival]:
    """Cut `length_s` seconds of replay from `start_s` on, played `speed` times as fast as recorded.

    Raises:
        ValueError: length or speed is not positive.
    """
    if length_s <= 0 or speed <= 0:
        raise ValueError("length_s and speed must be positive")
    end_s = start_s + length_s * speed
    return [
        _answered(arrival.at((arrival.at_s - start_s) / speed))
        for arrival in arrivals
        if start_s <= arrival.at_s < end_s
    ]


def _answered(arrival: Arrival) -> Arrival:
    """With at least one token of answer: an engine gives no less."""
    return arrival if arrival.output_tokens else dataclasses.replace(arrival, output_tokens=1)


def poisson(
    rate_per_s: float, length_s: float, sizes: Sequence[tuple[int, int]], random: SupportsExponential
) -> list[Arrival]:
    """Independent arrivals at a mean rate; sizes (prompt, output tokens) are taken in turn.

    Raises:
        ValueError: rate or length is not positive, or there are no sizes.
    """
    if rate_per_s <= 0 or length_s <= 0 or not sizes:
        raise ValueError("rate_per_s and length_s must be positive, and sizes not empty")
    arrivals: list[Arrival] = []
    now = random.expovariate(rate_per_s)
    while now < length_s:
        prompt_tokens, output_tokens = sizes[len(arrivals) % len(sizes)]
        arrivals.append(Arrival(now, prompt_tokens, output_tokens))
        now += random.expovariate(rate_per_s)
    return arrivals
