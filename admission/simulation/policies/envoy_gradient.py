"""Gradient against an ideal latency that is measured anew now and then, with next to nothing in flight.

The rule is that of the gradient controller in Envoy's adaptive concurrency filter (github.com/envoyproxy/envoy); see
docs/peers.md.
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
from admission.vocabulary import PriorityClass

STUCK = 5
"""So many updates in a row at the least concurrency, and the ideal latency is taken for wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyGradientConfig:
    """The published defaults; the two intervals, which have none, are those of the documentation's example."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    latency: Latency = "total"
    floor: int = 3
    """The least concurrency, and the one to begin with."""
    pinned: bool = True
    """While the ideal latency is measured only the floor is allowed. False: the limit stays, and live traffic is
    measured, as with a `min_concurrency_limit` of its own in newer versions."""
    ceiling: int = 1_000
    update_s: float = 0.1
    """How often the limit moves, given samples."""
    measure_every_s: float = 60.0
    """From one measurement of the ideal latency to the next."""
    jitter: float = 0.15
    """The next one is put off by up to this share of the interval."""
    measure_requests: int = 50
    """Samples that one measurement takes."""
    buffer: float = 0.25
    """Share by which latency may exceed the ideal."""
    quantile: float = 0.5
    """Of an interval's samples the one that speaks for it."""
    front: FrontConfig = field(default_factory=FrontConfig)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """What the queue's deadline follows; the rule itself knows no target."""

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.ceiling:
            raise ValueError("need 1 <= floor <= ceiling")
        for name in ("update_s", "measure_every_s", "measure_requests"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be over 0, not {getattr(self, name)}")
        for name in ("jitter", "buffer", "quantile"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")


class EnvoyGradient(Limiter):
    """New limit = limit x clamp((ideal + buffer) / latency, 0.5, 2), plus the square root of that as headroom."""

    def __init__(self, config: EnvoyGradientConfig, random: Random, now: float) -> None:
        self._config = config
        self._random = random
        self._limit = config.floor
        self.ideal_s: float | None = None
        """The ideal latency; None before the first measurement."""
        self._samples: list[float] = []
        self._at_floor = 0
        self._update_at = now + config.update_s
        self._measure_at: float | None = None
        self._start_measuring(now)

    @property
    def limit(self) -> float:
        """Requests that may be in flight."""
        return float(self._limit)

    @property
    def measuring(self) -> bool:
        """Is the ideal latency being measured?"""
        return self._measure_at is None

    def on_sample(self, sample: LimiterSample) -> None:
        """One that began before the last measurement did, and one that was dropped, say nothing."""
        if sample.dropped or sample.began_at < self._epoch:
            return
        self._samples.append(sample.rtt_s)
        if self.measuring and len(self._samples) >= self._config.measure_requests:
            self._stop_measuring(sample.now)

    def on_tick(self, now: float) -> None:
        """Measure when it is time; otherwise move once in an interval that had samples."""
        if self._measure_at is not None and now >= self._measure_at:
            self._start_measuring(now)
        if self.measuring or now < self._update_at:
            return
        self._update_at += self._config.update_s * (1 + (now - self._update_at) // self._config.update_s)
        if self._samples:
            self._update(now)

    def next_at(self) -> float | None:
        """The next measurement, or the next move if there is something to go by."""
        if self._measure_at is None:
            return None
        return min(self._measure_at, self._update_at) if self._samples else self._measure_at

    def _start_measuring(self, now: float) -> None:
        self._measure_at = None
        self._resume_at = self._limit
        if self._config.pinned:
            self._limit = self._config.floor
        self._at_floor = 0
        self._samples.clear()
        self._epoch = now

    def _stop_measuring(self, now: float) -> None:
        config = self._config
        self.ideal_s = self._spoken()
        self._limit = self._resume_at
        late_s = self._random.random() * config.jitter * config.measure_every_s
        self._measure_at = now + config.measure_every_s + late_s
        self._update_at = now + config.update_s

    def _update(self, now: float) -> None:
        before, self._limit = self._limit, self._wanted(self._spoken())
        stays = before == self._limit == self._config.floor
        self._at_floor = self._at_floor + 1 if stays else 0
        if self._at_floor >= STUCK:
            self._start_measuring(now)

    def _wanted(self, seen_s: float) -> int:
        ideal_s = (self.ideal_s or 0.0) * (1.0 + self._config.buffer)
        gradient = max(0.5, min(2.0, ideal_s / seen_s)) if seen_s > 0.0 else 2.0
        limit = self._limit * gradient
        return max(self._config.floor, min(self._config.ceiling, int(limit + math.sqrt(limit))))

    def _spoken(self) -> float:
        """The sample at the quantile; the interval's samples are used up."""
        ordered = sorted(self._samples)
        self._samples.clear()
        return ordered[max(0, math.ceil(self._config.quantile * len(ordered)) - 1)]


@policy("envoy_gradient", EnvoyGradientConfig)
def envoy_gradient(config: EnvoyGradientConfig, seed: int, now: float) -> QueuedLimiter:
    """The policy: the rule behind the front queue."""
    rule = EnvoyGradient(config, Random(seed), now)  # noqa: S311 - simulation
    return QueuedLimiter(rule, config.front, config.slos, config.latency)
