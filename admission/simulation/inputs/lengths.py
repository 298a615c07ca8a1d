"""How long prompts and answers are: spread about a median, or drawn in pairs from a recorded trace; with sources."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import ClassVar

from admission.simulation.inputs.arrival import Arrival
from admission.simulation.inputs.rates import FORBID
from admission.simulation.inputs.reading import shipped_names, shipped_stream, stream

_P90 = 1.2815515655446004
"""The 0.9-quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthConfig:
    """Log-normal counts of tokens: half of them at most `median`, nine in ten at most `p90`, all within bounds."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    median: float
    p90: float | None = None
    """Left out: all are as long as the median."""
    least: int = 1
    most: int = 1_000_000

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that cannot be."""
        if not 1 <= self.least <= self.most <= 100_000_000:
            raise ValueError(f"least must be between 1 and most ({self.most}), not {self.least}")
        if not self.least <= self.median <= self.most:
            raise ValueError(f"median must be between least and most, not {self.median}")
        if self.p90 is not None and not self.median <= self.p90 < math.inf:
            raise ValueError(f"p90 must not be under the median, not {self.p90}")

    def draw(self, random: Random) -> int:
        """One length. Clipped, not drawn again: recorded lengths heap up at their bounds as well."""
        if self.p90 is None:
            return round(self.median)
        spread = math.log(self.p90 / self.median) / _P90
        drawn = self.median * math.exp(random.gauss(0.0, spread))
        return max(self.least, min(self.most, round(drawn)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Prompt and answer lengths of one kind of work."""

    prompt: LengthConfig
    output: LengthConfig


SHAPES = {
    "chat": Shape(
        prompt=LengthConfig(median=1_020, p90=2_734, most=14_050),
        output=LengthConfig(median=129, p90=424, most=1_000),
    ),
    "code": Shape(
        prompt=LengthConfig(median=1_469, p90=5_187, most=7_437),
        output=LengthConfig(median=13, p90=55, most=1_899),
    ),
    "documents": Shape(
        prompt=LengthConfig(median=6_909, p90=27_367, most=126_195),
        output=LengthConfig(median=350, p90=597, most=2_000),
    ),
    "arena": Shape(
        prompt=LengthConfig(median=40, p90=432, most=1_021),
        output=LengthConfig(median=211, p90=513, most=977),
    ),
    "reasoning": Shape(
        prompt=LengthConfig(median=1_020, p90=2_734, most=14_050),
        output=LengthConfig(median=1_290, p90=4_240, most=10_000),
    ),
    "long_context": Shape(
        prompt=LengthConfig(median=60_000, most=60_000),
        output=LengthConfig(median=129, p90=424, most=1_000),
    ),
}
"""Measured medians, 0.9-quantiles and largest values: chat is Azure's conversation trace and code its code trace (2023,
whole files), documents Mooncake's conversation trace, arena the Chatbot Arena log of the VTC artifact. Assumed:
reasoning is chat with answers ten times as long, long_context chat with prompts of 60,000 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsConfig:
    """Where a component's lengths come from: a shape by name, its own distributions, or the pairs of a trace."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    shape: str = ""
    """chat, code, documents, arena, reasoning or long_context; `prompt` and `output` replace its parts."""
    prompt: LengthConfig | None = None
    output: LengthConfig | None = None
    trace: str = ""
    """A trace that comes with the package, or a file: prompts and answers are drawn from it in pairs."""
    sample: int = 20_000
    """Requests of the trace that are read for it."""
    most_prompt: int | None = None
    """Longer prompts of the trace are cut there."""
    most_output: int | None = None
    """Longer answers of the trace are cut there."""

    def __post_init__(self) -> None:
        """Raise ValueError when there is more than one source, or none."""
        if self.shape and self.shape not in SHAPES:
            raise ValueError(f"shape must be one of {', '.join(SHAPES)}, not {self.shape!r}")
        if self.trace and (self.shape or self.prompt or self.output):
            raise ValueError("trace must stand alone: it gives prompts and answers")
        if not self.trace and not self.shape and not (self.prompt and self.output):
            raise ValueError("needs a shape, a trace, or both prompt and output")
        for name in ("sample", "most_prompt", "most_output"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    def source(self) -> LengthSource:
        """What draws them.

        Raises:
            TraceError: the trace cannot be read.
        """
        if self.trace:
            return LengthSource(pairs=self._pairs())
        shape = SHAPES.get(self.shape)
        prompt, output = self.prompt or (shape and shape.prompt), self.output or (shape and shape.output)
        if not prompt or not output:
            raise AssertionError("checked above")
        return LengthSource(prompt=prompt, output=output)

    def _pairs(self) -> list[tuple[int, int]]:
        known = self.trace in shipped_names()
        arrivals = shipped_stream(self.trace) if known else stream(Path(self.trace))
        return [self._pair(arrival) for arrival in islice(arrivals, self.sample)]

    def _pair(self, arrival: Arrival) -> tuple[int, int]:
        prompt, output = arrival.prompt_tokens, max(1, arrival.output_tokens)
        return min(prompt, self.most_prompt or prompt), min(output, self.most_output or output)


@dataclass(slots=True, kw_only=True)
class LengthSource:
    """Draws a prompt and its answer."""

    prompt: LengthConfig = field(default_factory=lambda: SHAPES["chat"].prompt)
    output: LengthConfig = field(default_factory=lambda: SHAPES["chat"].output)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def draw(self, random: Random) -> tuple[int, int]:
        """Tokens of one prompt and of its answer."""
        if self.pairs:
            return random.choice(self.pairs)
        return self.prompt.draw(random), self.output.draw(random)
