"""Vegas: the queue behind the engine is read off the latency, and the limit keeps it between two marks.

The rule is that of VegasLimit in github.com/Netflix/concurrency-limits (0.5.4), after TCP Vegas; see docs/peers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.limiter import Latency, Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.simulation.policies.window import WindowConfig, windowed
from admission.vocabulary import PriorityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class VegasConfig:
    """The published constants. The marks are multiples of log10 of the limit, which is 1 up to 99 requests."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    latency: Latency = "ttft"
    initial: int = 20
    ceiling: int = 1_000
    low_mark: int = 3
    """A queue shorter than this many logarithms lets the limit grow."""
    high_mark: int = 6
    """A longer one than this many shrinks it; between the marks it stays."""
    smoothing: float = 1.0
    """Share of the new limit that is taken over."""
    probe: int = 30
    """The best latency is measured anew about once in so many times the limit samples."""
    window: WindowConfig | None = field(default_factory=lambda: WindowConfig(length_s=5.0))
    """Average the samples of so long before the rule sees them. The published second seldom holds the ten samples that
    it wants in front of an LLM engine, and the limit stands still. None: each sample counts by itself, and the limit
    settles just above the high mark, since a longer prompt looks like queueing."""
    front: FrontConfig = field(default_factory=FrontConfig)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """What the queue's deadline follows; the rule itself knows no target."""

    def __post_init__(self) -> None:
        if not 1 <= self.initial <= self.ceiling:
            raise ValueError("need 1 <= initial <= ceiling")
        if not 0 <= self.low_mark <= self.high_mark:
            raise ValueError("need 0 <= low_mark <= high_mark")
        if not 0.0 < self.smoothing <= 1.0:
            raise ValueError(f"smoothing must be over 0 and at most 1, not {self.smoothing}")
        if self.probe < 1:
            raise ValueError(f"probe must be at least 1, not {self.probe}")


class Vegas(Limiter):
    """Queue = limit x (1 - best latency / latency); grow below the low mark, shrink above the high one."""

    def __init__(self, config: VegasConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._limit = float(config.initial)
        self._best_s: float | None = None
        self._samples = 0
        self._jitter = random.uniform(0.5, 1.0)

    @property
    def limit(self) -> float:
        """Requests that may be in flight."""
        return float(int(self._limit))

    def on_sample(self, sample: LimiterSample) -> None:
        """A new best latency, or a probe for one, leaves the limit alone."""
        self._samples += 1
        if self._samples >= self._jitter * self._config.probe * self._limit:
            self._samples = 0
            self._jitter = self._random.uniform(0.5, 1.0)
            self._best_s = sample.rtt_s
        elif self._best_s is None or sample.rtt_s < self._best_s:
            self._best_s = sample.rtt_s
        else:
            self._move(self._wanted(sample, self._best_s))

    def _wanted(self, sample: LimiterSample, best_s: float) -> float:
        if sample.dropped:
            return self.lowered()
        if sample.in_flight * 2 < self._limit:
            return self._limit
        unit = magnitude(self._limit)
        queue = math.ceil(self._limit * (1.0 - best_s / sample.rtt_s)) if sample.rtt_s > 0.0 else 0
        if queue <= unit:
            return self._limit + self._config.high_mark * unit
        if queue < self._config.low_mark * unit:
            return self._limit + unit
        if queue > self._config.high_mark * unit:
            return self.lowered()
        return self._limit

    def lowered(self) -> float:
        """The limit one step down."""
        return self._limit - magnitude(self._limit)

    def _move(self, wanted: float) -> None:
        bounded = max(1.0, min(float(self._config.ceiling), wanted))
        self._limit += self._config.smoothing * (bounded - self._limit)


def magnitude(limit: float) -> int:
    """Whole log10 of a limit, at least 1."""
    return max(1, int(math.log10(max(1.0, int(limit)))))


@policy("vegas", VegasConfig)
def vegas(config: VegasConfig, seed: int, now: float) -> QueuedLimiter:  # noqa: ARG001 - what a builder is given
    """The policy: the rule behind the front queue."""
    rule = Vegas(config, Random(seed))  # noqa: S311 - simulation
    return QueuedLimiter(windowed(rule, config.window), config.front, config.slos, config.latency)
