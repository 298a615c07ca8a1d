"""The service of Vector's own tests: it answers after a delay that grows with the requests in flight."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from random import Random

from admission.simulation.policies.limiter import Limiter
from tests.admission.simulation.policies.hearing import sample

TIMER_S = 1e-3
"""Timers there fire on whole milliseconds, one late (the published ranges of a 100 ms delay are 100 to 102 ms)."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """`params` of a file in vectordotdev/vector tests/data/adaptive-concurrency/. Seconds."""

    requests: int
    delay: float
    interval: float = 0.0
    jitter: float = 0.0
    scale: float = 0.0
    knee_start: int | None = None
    knee_exp: float = 1.0

    def delay_at(self, in_flight: int, random: Random) -> float:
        """How long an answer takes that finds so many in flight, itself included."""
        growth = (in_flight - 1) * self.scale
        if self.knee_start is not None:
            growth += self.knee_exp ** max(0, in_flight - self.knee_start) - 1.0
        exact = self.delay * (1.0 + growth + self.jitter * random.expovariate(1.0))
        return (math.ceil(exact / TIMER_S - 1e-9) + 1) * TIMER_S


@dataclass
class Levels:
    """How long a count stood at each level."""

    seconds: dict[int, float] = field(default_factory=dict)
    since: float | None = None

    def add(self, level: int, now: float) -> None:
        """The level stood until now."""
        if self.since is not None and now > self.since:
            self.seconds[level] = self.seconds.get(level, 0.0) + now - self.since
        self.since = now

    @property
    def most(self) -> int:
        """The highest level."""
        return max(self.seconds)

    @property
    def mode(self) -> int:
        """The level that stood longest."""
        return max(self.seconds, key=lambda level: (self.seconds[level], level))

    @property
    def mean(self) -> float:
        """Weighted with time."""
        return math.fsum(level * s for level, s in self.seconds.items()) / math.fsum(self.seconds.values())


@dataclass
class Seen:
    """What a run showed."""

    in_flight: Levels = field(default_factory=Levels)
    limit: Levels = field(default_factory=Levels)


def play(link: Link, limiter: Limiter, seed: int = 0) -> Seen:
    """All requests through the link, each sent when it is made and the limiter allows it; answers of one instant first."""
    random, seen = Random(seed), Seen()
    answers: list[tuple[float, int, float, int]] = []
    now, sent = 0.0, 0
    while sent < link.requests or answers:
        while answers and answers[0][0] <= now + 1e-9:
            _, _, began_at, in_flight = heapq.heappop(answers)
            seen.in_flight.add(len(answers) + 1, now)
            seen.limit.add(int(limiter.limit), now)
            limiter.on_sample(sample(now - began_at, in_flight, now=now, began_at=began_at))
        while sent < link.requests and sent * link.interval <= now + 1e-9 and len(answers) < limiter.limit:
            seen.in_flight.add(len(answers), now)
            sent += 1
            in_flight = len(answers) + 1
            limiter.on_start(in_flight, now)
            heapq.heappush(answers, (now + link.delay_at(in_flight, random), sent, now, in_flight))
        waits_for_time = sent < link.requests and len(answers) < limiter.limit
        instants = [answers[0][0]] if answers else []
        now = min([*instants, sent * link.interval] if waits_for_time else instants, default=now)
    return seen
