"""Samples of one second, averaged into one, for rules that do not look at each by itself.

The rule is that of WindowedLimit in github.com/Netflix/concurrency-limits (0.5.4); see docs/peers.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from admission.simulation.policies.limiter import Limiter, LimiterSample


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """The published constants."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    length_s: float = 1.0
    least: int = 10
    """A window with fewer samples is thrown away."""

    def __post_init__(self) -> None:
        if not self.length_s > 0 or self.least < 1:
            raise ValueError("need length_s > 0 and least >= 1")


class Windowed(Limiter):
    """Passes on the mean latency, the highest count in flight, and whether anything was dropped."""

    def __init__(self, limiter: Limiter, config: WindowConfig) -> None:
        self._limiter = limiter
        self._config = config
        self._count = 0
        self._total_s = 0.0
        self._in_flight = 0
        self._dropped = False
        self._ends_at = float("-inf")

    @property
    def limit(self) -> float:
        """The limit of the rule behind."""
        return self._limiter.limit

    def on_sample(self, sample: LimiterSample) -> None:
        """Gather; the first sample after the window's end closes it."""
        self._count += 1
        self._total_s += sample.rtt_s
        self._in_flight = max(self._in_flight, sample.in_flight)
        self._dropped = self._dropped or sample.dropped
        if sample.now > self._ends_at:
            self._close(sample)

    def _close(self, last: LimiterSample) -> None:
        mean_s, count = self._total_s / self._count, self._count
        whole = replace(last, rtt_s=mean_s, in_flight=self._in_flight, dropped=self._dropped)
        self._ends_at = last.now + self._config.length_s
        self._count, self._total_s, self._in_flight, self._dropped = 0, 0.0, 0, False
        if count >= self._config.least:
            self._limiter.on_sample(whole)


def windowed(limiter: Limiter, config: WindowConfig | None) -> Limiter:
    """The limiter, behind a window when one is configured."""
    return limiter if config is None else Windowed(limiter, config)
