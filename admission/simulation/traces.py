"""Recorded traffic as data: when requests arrived, how long prompts and answers were; and how it is scaled."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol

AZURE_CODE_BURST = "azure2023_code_burst_540_960.csv.gz"
_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


class SupportsExponential(Protocol):
    """What is needed of `random.Random`."""

    def expovariate(self, lambd: float, /) -> float:
        """Draw an exponential interval with mean 1 / lambd."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace. Seconds from the start."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


class TraceError(ValueError):
    """A trace that cannot be read: says the line and the column."""


def read(path: Path) -> list[Arrival]:
    """Read a CSV (or CSV.gz) with the columns arrival_s, prompt_tokens and output_tokens, in time order.

    Raises:
        TraceError: not such a file, no rows, or a value that makes no sense.
        OSError: the file cannot be opened.
    """
    return _parse(path.read_bytes(), path.name)


def shipped(name: str = AZURE_CODE_BURST) -> list[Arrival]:
    """Read a trace that comes with the package."""
    return _parse((files("admission.simulation") / "data" / name).read_bytes(), name)


def _parse(raw: bytes, name: str) -> list[Arrival]:
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: neither CSV nor gzipped CSV ({error})") from error
    rows = csv.DictReader(io.StringIO(text))
    missing = [column for column in _COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise TraceError(f"{name}: no column {', '.join(missing)} in the header")
    arrivals = [_arrival(row, f"{name}:{line}") for line, row in enumerate(rows, start=2)]
    if not arrivals:
        raise TraceError(f"{name}: no requests")
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def _arrival(row: dict[str, str], where: str) -> Arrival:
    try:
        arrival = Arrival(
            *(kind(row[column]) for kind, column in zip((float, int, int), _COLUMNS, strict=True))
        )
    except (TypeError, ValueError) as error:
        raise TraceError(f"{where}: {error}") from error
    if not 0 <= arrival.at_s < float("inf") or arrival.prompt_tokens < 1 or arrival.output_tokens < 0:
        raise TraceError(f"{where}: a negative time or an empty prompt")
    return arrival


def window(arrivals: Iterable[Arrival], start_s: float, length_s: float, speed: float = 1.0) -> list[Arrival]:
    """Cut `length_s` seconds of replay from `start_s` on, played `speed` times as fast as recorded.

    Raises:
        ValueError: length or speed is not positive.
    """
    if length_s <= 0 or speed <= 0:
        raise ValueError("length_s and speed must be positive")
    end_s = start_s + length_s * speed
    return [
        Arrival((arrival.at_s - start_s) / speed, arrival.prompt_tokens, max(1, arrival.output_tokens))
        for arrival in arrivals
        if start_s <= arrival.at_s < end_s
    ]


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
