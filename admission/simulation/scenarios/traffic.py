"""Who asks in a scenario: a mix whose rates are shares of the whole, or a recording of which each seed replays another part."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from random import Random
from typing import ClassVar

from admission.simulation.inputs.mixes import ComponentConfig, MixConfig
from admission.simulation.inputs.reading import shipped_stream
from admission.simulation.traces import Arrival

FORBID: dict[str, str] = {"extra": "forbid"}
WINDOWS, STRIDE = 7, 2
"""Successive seeds begin two sevenths of a recording further on each, so that seven of them begin at seven places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A shipped trace, sped up or slowed down to the rate that is asked for."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    name: str
    most_prompt: int = 1_000_000
    """Longer prompts are cut to this."""
    tick_s: float = 0.0
    """The recorder's clock: arrivals are spread at random over one tick."""

    def rows(self) -> list[Arrival]:
        """The whole trace, cut to size.

        Raises:
            TraceError: there is no such trace.
        """
        return _rows(self)

    def arrivals(self, rate_per_s: float, length_s: float, seed: int) -> Iterator[Arrival]:
        """In time order; past its end the recording goes on at its beginning."""
        rows, random = self.rows(), Random(seed)  # noqa: S311 - to be repeatable
        span_s = rows[-1].at_s
        speed = rate_per_s * span_s / len(rows)
        start_s = span_s * (seed * STRIDE % WINDOWS) / WINDOWS
        ticks = [(row.at_s + random.random() * self.tick_s - start_s) % span_s for row in rows]
        for at_s, row in sorted(zip(ticks, rows, strict=True), key=itemgetter(0)):
            if at_s / speed >= length_s:
                return
            yield row.at(at_s / speed)


@functools.lru_cache(maxsize=8)
def _rows(recorded: Recorded) -> list[Arrival]:
    return [
        replace(
            row,
            prompt_tokens=(prompt := min(row.prompt_tokens, recorded.most_prompt)),
            output_tokens=max(1, row.output_tokens),
            cached_tokens=min(row.cached_tokens, prompt - 1),
        )
        for row in shipped_stream(recorded.name)
    ]


def drawn(
    components: tuple[ComponentConfig, ...], rate_per_s: float, length_s: float, seed: int, name: str
) -> Iterator[Arrival]:
    """A mix at a total rate in its usual state, in time order; the same for the same name and seed."""
    total = sum(component.rate_per_s for component in components)
    mix = MixConfig(components=components).scaled(rate_per_s / total)
    return mix.arrivals(zlib.crc32(f"{name}/{seed}".encode()), length_s)


def usual(components: tuple[ComponentConfig, ...], count: int) -> list[Arrival]:
    """So many requests of a mix as they are before anything changes."""
    calm = tuple(replace(component, profile=(), repeat_s=None, changes=()) for component in components)
    return list(islice(drawn(calm, 1.0, 2.0 * count, 0, "usual"), count))
