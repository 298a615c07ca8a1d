"""The law's own limit in a closed loop with a fluid engine: no dice, so that its bounds can be read off.

TPOT over the set point is r(u) = 1 - e + e u/u*, for u tokens in flight: a step of the engine takes a time that is affine in
what it holds, u* is where TPOT meets the set point, and e, the elasticity there, is the share of a step that grows with the
load. Demand never ends and fills the limit at once; of what is in flight 1/(s r) ends a second, s the time of a mean answer at
the set point. What is measured is what `pace` measures: the TPOT that nine in ten streams will have had at their end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from admission.core.limits.aimd import Aimd, AimdConfig
from admission.core.limits.base import Load
from admission.core.pace import FINISHED_WINDOW_S, LIVE_WINDOW_S, MIN_LEFT, QUANTILE
from admission.core.settings import ControllerConfig
from admission.core.slo import INTERACTIVE_SLO

STEP_S = 0.1
SET_POINT = 1_000_000.0
"""u*, far from the floor and fine enough for whole tokens."""
COHORT_S = 0.5
"""Streams that began within so much of one another are looked at as one."""
GONE = 0.002
"""Cohorts of which no more than this is left are forgotten."""
BEFORE = 0.97
"""TPOT over the set point before an engine gets slower: within the dead zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """An engine and its traffic as the law feels them."""

    elasticity: float = 0.8
    answer_s: float = 10.0
    """How long a mean answer takes while TPOT is at the set point."""
    share: float = 0.01
    """A mean request over u*."""

    def ratio(self, used: float) -> float:
        """TPOT over the set point."""
        return 1.0 - self.elasticity + self.elasticity * used / SET_POINT

    def used_at(self, ratio: float) -> float:
        """The tokens in flight at which TPOT is that many times the set point."""
        return SET_POINT * (1.0 + (ratio - 1.0) / self.elasticity)


@dataclass(frozen=True, slots=True)
class Trace:
    """Once a tick: seconds, the limit over u*, TPOT over the set point as it is and as it was measured."""

    at_s: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    @property
    def undershoot(self) -> float:
        """How far TPOT fell below the set point, as a share; 0: not at all."""
        return max(0.0, 1.0 - min(self.ratio))

    @property
    def overshoot(self) -> float:
        """How far TPOT rose over the set point, as a share."""
        return max(0.0, max(self.ratio) - 1.0)

    @property
    def cuts(self) -> list[int]:
        """The ticks at which the limit went down."""
        return [no for no in range(1, len(self.limit)) if self.limit[no] < self.limit[no - 1]]

    def since(self, at_s: float) -> Trace:
        """What came later."""
        kept = [no for no, at in enumerate(self.at_s) if at >= at_s]
        return Trace(
            *([column[no] for no in kept] for column in (self.at_s, self.limit, self.ratio, self.seen))
        )


@dataclass(slots=True)
class _Cohort:
    """Streams that began together: when, how far all streams were then, and how much of them there is, of a shared scale."""

    began_s: float
    began_at: float
    amount: float


class Loop:
    """A limit that steers a plant.

    Args:
        plant: the engine.
        limit: the law, or one that lacks something.
        used: tokens in flight at the beginning.
        before: TPOT over the set point until then, for as long as anybody looks back; None: as it is with `used`.
    """

    def __init__(self, plant: Plant, limit: Aimd, used: float, before: float | None = None) -> None:
        self.plant = plant
        self.limit = limit
        self.used = used
        self.now = 0.0
        ratio = plant.ratio(used) if before is None else before
        self._life_s = plant.answer_s * ratio
        # How far every stream is, in seconds at the set point; what is left of all that ever began.
        size = round(LIVE_WINDOW_S / STEP_S)
        self._made = deque([-no * STEP_S / ratio for no in range(size, -1, -1)], maxlen=size + 1)
        self._left = 1.0
        ages = [COHORT_S * (no + 0.5) for no in range(math.ceil(-math.log(GONE) * self._life_s / COHORT_S))]
        whole = sum(math.exp(-age / self._life_s) for age in ages)
        self._cohorts = deque(
            _Cohort(-age, -age / ratio, used * math.exp(-age / self._life_s) / whole)
            for age in reversed(ages)
        )
        ended = used / self._life_s
        self._ended = deque([[(ratio, ended)]] * round(FINISHED_WINDOW_S), maxlen=round(FINISHED_WINDOW_S))

    def run(self, for_s: float, *, only_cuts: bool = False) -> Trace:
        """So many seconds of it; with `only_cuts` it ends as soon as it would not cut."""
        tick_s, trace, set_point = ControllerConfig().tick_s, Trace(), self.limit.config.set_point
        for no in range(1, round(for_s / STEP_S) + 1):
            self._flow()
            if no % round(tick_s / STEP_S):
                continue
            seen, lasting = self.measured()
            self.limit.on_tick(self._load(1.0 - seen * set_point, 1.0 - lasting * set_point), self.now)
            trace.at_s.append(self.now)
            trace.limit.append(self.limit.value / SET_POINT)
            trace.ratio.append(self.plant.ratio(self.used))
            trace.seen.append(seen)
            if only_cuts and len(trace.cuts) and seen < 1.0 and self.used <= self.limit.value:
                break
        return trace

    def measured(self) -> tuple[float, float]:
        """As `pace`: what streams will have come to, and the same with those that ended lately."""
        made, window_s = self._made[-1], LIVE_WINDOW_S
        # The pace of late is the same for all that are older than the window, and they are the middle.
        pace = window_s / (made - self._made[0])
        least = MIN_LEFT * INTERACTIVE_SLO.tpot_s * self.limit.config.set_point
        live: list[tuple[float, float]] = []
        ended: list[tuple[float, float]] = []
        rate = ControllerConfig().tick_s / (self.plant.answer_s * self.plant.ratio(self.used))
        for one in self._cohorts:
            age_s, its = self.now - one.began_s, made - one.began_at
            if its <= 0:
                continue
            recent, trust = (age_s / its, age_s / window_s) if age_s < window_s else (pace, 1.0)
            left = max(least, self.plant.answer_s - its)
            ahead = pace + (recent - pace) * trust
            live.append(((age_s + left * ahead) / (its + left), one.amount * self._left))
            ended.append((age_s / its, one.amount * self._left * rate))
        self._ended.append(ended)
        late = [each for tick in self._ended for each in tick]
        return _quantile(live), _quantile([*live, *late])

    def _flow(self) -> None:
        ratio = self.plant.ratio(self.used)
        stay = 1.0 - STEP_S / (self.plant.answer_s * ratio)
        self.now += STEP_S
        self.used *= stay
        self._left *= stay
        self._made.append(self._made[-1] + STEP_S / ratio)
        if self.used < self.limit.value:
            self._begin((self.limit.value - self.used) / self._left)
            self.used = float(self.limit.value)
        while (
            len(self._cohorts) > 1
            and self._cohorts[0].amount * self._left < GONE * COHORT_S * self.used / self._life_s
        ):
            self._cohorts.popleft()

    def _begin(self, amount: float) -> None:
        newest = self._cohorts[-1]
        if self.now - newest.began_s < COHORT_S:
            newest.amount += amount
        else:
            self._cohorts.append(_Cohort(self.now, self._made[-1], amount))

    def _load(self, excess: float, lasting: float) -> Load:
        return Load(
            used=int(self.used),
            in_flight=max(2, round(self.used / (self.plant.share * SET_POINT))),
            refused_for_limit=self.used <= self.limit.value,
            excess=excess,
            lasting=lasting,
            mean_cost=self.plant.share * SET_POINT,
        )


def _quantile(weighted: Iterable[tuple[float, float]]) -> float:
    """As the law takes it, of values with their weights."""
    ordered = sorted(weighted)
    rest = QUANTILE * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        rest -= weight
        if rest <= 0:
            return value
    return ordered[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedConfig(AimdConfig):
    """Constants that nobody may configure."""

    def __post_init__(self) -> None:
        """Let everything pass."""


WITHOUT: dict[str, AimdConfig] = {
    "the law": AimdConfig(),
    "without the effect guard": AimdConfig(effect_margin=1e9),
    "cut gain 2.0": UncheckedConfig(cut_gain=2.0, max_cut=0.9),
    "without the dead zone": AimdConfig(dead_zone=0.0),
    "without slow-start re-entry": AimdConfig(reentry=0.99),
    "without large steps far away": AimdConfig(growth=0.0),
    "without large steps and re-entry": AimdConfig(growth=0.0, reentry=0.99),
}
"""The default, and what lacks one ingredient."""


def cutting(
    plant: Plant, excess: float, config: AimdConfig | None = None, before: float | None = BEFORE
) -> Trace:
    """An engine that gets slower: TPOT is so far over the set point from now on; until no cut follows any more."""
    used = plant.used_at(1.0 + excess)
    return Loop(plant, grown(config, used), used, before).run(120.0, only_cuts=True)


def growing(plant: Plant, ratio: float, config: AimdConfig | None = None, *, first: bool = False) -> Trace:
    """From TPOT at that share of the set point on; `first`: it has never been cut before."""
    used = plant.used_at(ratio)
    limit = Aimd(config or AimdConfig()) if first else grown(config, used)
    limit.override(int(used))
    return Loop(plant, limit, used).run(300.0)


def grown(config: AimdConfig | None, value: float) -> Aimd:
    """A limit that has seen its first congestion, at that value."""
    limit = Aimd(config or AimdConfig())
    limit.on_tick(Load(used=limit.value, in_flight=9, excess=-0.01), 0.0)
    limit.override(int(value))
    return limit
