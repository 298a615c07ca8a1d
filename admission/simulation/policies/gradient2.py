"""Gradient2: the limit follows the ratio of the long-term to the present latency.

The rule is that of Gradient2Limit in github.com/Netflix/concurrency-limits (0.5.4); see docs/peers.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.limiter import Latency, Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.simulation.policies.window import WindowConfig, windowed
from admission.vocabulary import PriorityClass

WARM_UP = 10
"""Samples over which the long-term latency begins as a plain mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient2Config:
    """The published constants."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    latency: Latency = "ttft"
    initial: int = 20
    floor: int = 20
    ceiling: int = 200
    queue: int = 4
    """Requests by which the limit grows (before smoothing) while latency does."""
    smoothing: float = 0.2
    """Share of the new limit that is taken over."""
    long_window: int = 600
    """Samples of the long-term average."""
    tolerance: float = 1.5
    """The present latency may exceed the long-term one by this factor."""
    window: WindowConfig | None = field(default_factory=lambda: WindowConfig(least=1))
    """Average the samples of a second before the rule sees them; None: each sample counts by itself. The published
    window wants ten samples, which an LLM engine seldom gives in a second; one is enough here, and does better."""
    front: FrontConfig = field(default_factory=FrontConfig)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """What the queue's deadline follows; the rule itself knows no target."""

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.initial <= self.ceiling:
            raise ValueError("need 1 <= floor <= initial <= ceiling")
        if not 0.0 < self.smoothing <= 1.0:
            raise ValueError(f"smoothing must be over 0 and at most 1, not {self.smoothing}")
        if self.tolerance < 1.0:
            raise ValueError(f"tolerance must be at least 1, not {self.tolerance}")
        if self.long_window < 1 or self.queue < 0:
            raise ValueError("long_window must be at least 1 and queue not negative")


class LongTerm:
    """An exponential average over `window` samples that begins as the plain mean of the first ten."""

    def __init__(self, window: int) -> None:
        self.value = 0.0
        self._share = 2.0 / (window + 1)
        self._count = 0

    def add(self, value: float) -> float:
        """Take a value in; the average after it."""
        if self._count < WARM_UP:
            self._count += 1
            self.value += (value - self.value) / self._count
        else:
            self.value += self._share * (value - self.value)
        return self.value


class Gradient2(Limiter):
    """New limit = limit x clamp(tolerance x long / now, 0.5, 1) + queue, smoothed."""

    def __init__(self, config: Gradient2Config) -> None:
        self._config = config
        self._limit = float(config.initial)
        self._long = LongTerm(config.long_window)

    @property
    def limit(self) -> float:
        """Requests that may be in flight."""
        return float(int(self._limit))

    def on_sample(self, sample: LimiterSample) -> None:
        """Every sample moves the average; one taken at less than half the limit leaves the limit alone."""
        long_s = self._long.add(sample.rtt_s)
        if long_s > 2.0 * sample.rtt_s:
            # Back from a long overload: the average would lag behind for too long.
            self._long.value *= 0.95
        if sample.in_flight < self._limit / 2 or sample.rtt_s <= 0.0:
            return
        config = self._config
        gradient = max(0.5, min(1.0, config.tolerance * long_s / sample.rtt_s))
        wanted = self._limit * gradient + config.queue
        smoothed = self._limit + config.smoothing * (wanted - self._limit)
        self._limit = max(float(config.floor), min(float(config.ceiling), smoothed))


@policy("gradient2", Gradient2Config)
def gradient2(config: Gradient2Config, seed: int, now: float) -> QueuedLimiter:  # noqa: ARG001 - what a builder is given
    """The policy: the rule behind the front queue."""
    return QueuedLimiter(
        windowed(Gradient2(config), config.window), config.front, config.slos, config.latency
    )
