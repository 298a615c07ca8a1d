"""Adaptive request concurrency: AIMD on the mean latency of an interval against its own moving average.

The rule is that of Vector's adaptive request concurrency (github.com/vectordotdev/vector, 0.58); see docs/peers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.limiter import Latency, Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.vocabulary import PriorityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorArcConfig:
    """The published constants."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    latency: Latency = "ttft"
    initial: int = 1
    ceiling: int = 200
    decrease: float = 0.9
    """Factor on the limit when latency rose or a request was refused."""
    alpha: float = 0.4
    """Weight of the newest interval in the average."""
    deviations: float = 2.5
    """A latency this many standard deviations over the average has risen."""
    front: FrontConfig = field(default_factory=FrontConfig)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """What the queue's deadline follows; the rule itself knows no target."""

    def __post_init__(self) -> None:
        if not 1 <= self.initial <= self.ceiling:
            raise ValueError("need 1 <= initial <= ceiling")
        for name in ("decrease", "alpha"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be over 0 and under 1, not {getattr(self, name)}")
        if self.deviations < 0:
            raise ValueError(f"deviations must not be negative, not {self.deviations}")


class MovingAverage:
    """Exponential mean and variance; both None-like (mean None) before the first value."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self.mean: float | None = None
        self.variance = 0.0

    def add(self, value: float) -> float:
        """Take a value in; the mean after it."""
        if self.mean is None:
            self.mean = value
            return value
        off = value - self.mean
        self.mean += self._alpha * off
        self.variance = (1.0 - self._alpha) * (self.variance + self._alpha * off * off)
        return self.mean


class VectorArc(Limiter):
    """Once in a mean round trip: +1 when the limit was reached and latency did not rise, x decrease when it did."""

    def __init__(self, config: VectorArcConfig) -> None:
        self._config = config
        self._limit = config.initial
        self._past = MovingAverage(config.alpha)
        self._next_at = float("-inf")
        self._clear()

    def _clear(self) -> None:
        self._total_s, self._count = 0.0, 0
        self._pushed_back = False
        self._reached = False

    @property
    def limit(self) -> float:
        """Requests that may be in flight."""
        return float(self._limit)

    def on_start(self, in_flight: int, now: float) -> None:
        """Growing needs evidence: somebody must have used the last place."""
        self._reached = self._reached or in_flight >= self._limit

    def on_sample(self, sample: LimiterSample) -> None:
        """A good answer is measured, a dropped one is back pressure; the interval's end moves the limit."""
        if sample.dropped:
            self._pushed_back = True
        else:
            self._total_s += sample.rtt_s
            self._count += 1
        # To the microsecond: equal latencies must not differ by how they were added up.
        current_s = round(self._total_s / self._count, 6) if self._count else None
        past_s = self._past.mean
        if past_s is None:
            if current_s is not None:
                self._past.add(current_s)
                self._next_at = sample.now + current_s
        elif sample.now >= self._next_at:
            self._move(current_s, past_s)
            mean_s = past_s if current_s is None else self._past.add(current_s)
            self._next_at = sample.now + mean_s
            self._clear()

    def _move(self, current_s: float | None, past_s: float) -> None:
        rose_s = past_s + self._config.deviations * math.sqrt(self._past.variance)
        calm = not self._pushed_back and current_s is not None and current_s <= past_s
        if self._limit < self._config.ceiling and self._reached and calm:
            self._limit += 1
        elif self._pushed_back or (current_s or 0.0) >= rose_s:
            self._limit = max(1, int(self._limit * self._config.decrease))


@policy("vector_arc", VectorArcConfig)
def vector_arc(config: VectorArcConfig, seed: int, now: float) -> QueuedLimiter:  # noqa: ARG001 - what a builder is given
    """The policy: the rule behind the front queue."""
    return QueuedLimiter(VectorArc(config), config.front, config.slos, config.latency)
