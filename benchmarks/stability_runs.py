"""Runs of the stability benchmark: the law in a course, somebody beside it who is told the best limit, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, pstdev

from admission.core.controller import ControllerConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Event
from admission.simulation import policies
from admission.simulation.policies import PolicySpec
from admission.simulation.policies.fixed import FixedTokensConfig
from admission.simulation.policies.tidegate import Tidegate, TidegateConfig
from admission.simulation.scenarios.running import SETTLING_S
from admission.simulation.scenarios.scenario import Scenario
from admission.simulation.sweep import Score, best_of, refined
from admission.simulation.timeline import Timeline
from admission.simulation.world import World
from benchmarks.stability_courses import COURSES, SETTLED_S, STEADY, Course, Step

NEAR = 0.2
"""Settled is within so much of where the limit stays."""
STAYS_S, SMOOTH_S = 5, 5
LOSS_S = 60
"""Goodput lost, and overshoot, are counted over so many seconds from the change."""
STEADY_S, WARM_S = 100.0, 30
VALUES, CLOSER = 8, 2
SHARES = (0.03, 1.0)
"""Of the engine's KV: where the best limit that stands still is looked for."""
FEW_SEEDS = 2

Plan = tuple[tuple[float, int], ...]
"""(from this second on, KV tokens), in time order, from second 0 on."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run by seconds."""

    limit: list[float]
    used: list[float]
    offered: list[int]
    good: list[int]

    def good_between(self, from_s: float, until_s: float) -> int:
        """Good requests that arrived then."""
        return sum(self.good[int(from_s) : int(until_s)])


class Told(Tidegate):
    """The same core whose limit does not move by itself: it is told the right one when it changes."""

    def __init__(self, config: ControllerConfig, plan: Plan, seed: int) -> None:
        super().__init__(config, seed, 0.0)
        self._plan = list(plan)

    def wake(self, now: float) -> list[Event]:
        """Time has passed, and maybe there is news."""
        events: list[Event] = []
        while self._plan and now >= self._plan[0][0]:
            limit = FixedConfig(limit_tokens=self._plan.pop(0)[1])
            events += self.reconfigure(replace(self.config, limit=limit), now)
        return events + super().wake(now)

    def next_wakeup(self) -> float | None:
        """As the controller, or when there is news."""
        at = super().next_wakeup()
        return min(at, self._plan[0][0]) if at is not None and self._plan else at


Build = Callable[[Scenario, int], Tidegate]


def law(config: AimdConfig | None = None, initial_tokens: int | None = None) -> Build:
    """The product as it is, with other constants or another start where they are given."""
    limit = config or AimdConfig()
    if initial_tokens is not None:
        limit = replace(limit, initial_tokens=max(initial_tokens, limit.floor_tokens))

    def build(scenario: Scenario, seed: int) -> Tidegate:
        spec = PolicySpec("tidegate", TidegateConfig(limit=limit))
        found = policies.build(spec, seed=seed, now=0.0, slos=scenario.slo)
        assert isinstance(found, Tidegate)  # noqa: S101 - narrows a type
        return found

    return build


def told(plan: Plan) -> Build:
    """One that knows."""

    def build(scenario: Scenario, seed: int) -> Tidegate:
        spec = PolicySpec("fixed_tokens", FixedTokensConfig(limit_tokens=plan[0][1]))
        found = policies.build(spec, seed=seed, now=0.0, slos=scenario.slo)
        assert isinstance(found, Tidegate)  # noqa: S101 - narrows a type
        return Told(found.config, plan[1:], seed)

    return build


def watch(scenario: Scenario, build: Build, seed: int) -> Watched:
    """Play it to its end."""
    timeline = Timeline()
    world = World(
        scenario.world(), lambda no: build(scenario, seed * 1_009 + no), scenario.judge(), seed, timeline
    )
    world.run(scenario.arrivals(seed), scenario.duration_s + SETTLING_S)
    rows = timeline.moments()[: int(scenario.duration_s)]
    return Watched(
        [row.limit or 0.0 for row in rows],
        [row.used or 0.0 for row in rows],
        [row.offered for row in rows],
        [row.good for row in rows],
    )


# The best limit that stands still


@dataclass(frozen=True, slots=True)
class Try:
    """One limit in one steady state."""

    steady: str
    limit_tokens: int
    seed: int


def attempt(one: Try) -> float:
    """Goodput of a steady state under a limit that stands still; ratio."""
    scenario = STEADY[one.steady].scenario(one.steady, STEADY_S)
    watched = watch(scenario, told(((0.0, one.limit_tokens),)), one.seed)
    return sum(watched.good[WARM_S:]) / max(1, sum(watched.offered[WARM_S:]))


Attempts = Callable[[Sequence[Try]], Sequence[float]]


def best_limits(seeds: Sequence[int], attempts: Attempts) -> dict[str, int]:
    """KV tokens for each steady state: a grid, then twice closer around the best."""
    scores: dict[str, dict[int, Score]] = {name: {} for name in STEADY}
    wanted = {name: _grid(name) for name in STEADY}
    for _ in range(3):
        tries = [
            Try(name, limit, seed)
            for name, limits in wanted.items()
            for limit in limits
            for seed in seeds[:FEW_SEEDS]
        ]
        by_limit: dict[tuple[str, int], list[float]] = {}
        for one, good in zip(tries, attempts(tries), strict=True):
            by_limit.setdefault((one.steady, one.limit_tokens), []).append(good)
        for (name, limit), goods in by_limit.items():
            scores[name][limit] = Score(fmean(goods), 0.0)
        wanted = {name: refined(found, CLOSER) for name, found in scores.items()}
    return {name: best_of(found) for name, found in scores.items()}


def _grid(name: str) -> list[int]:
    least, most = (
        share * STEADY[name].scenario(name, STEADY_S).pool()[0].engine.kv_capacity_tokens for share in SHARES
    )
    return [round(least * (most / least) ** (no / (VALUES - 1))) for no in range(VALUES)]


# Courses


@dataclass(frozen=True, slots=True)
class Ride:
    """One course with one seed, for one who is told this plan, or for the law that begins with its first limit."""

    course: int
    seed: int
    plan: Plan
    knows: bool


def ride(one: Ride) -> Watched:
    """Play it."""
    course = COURSES[one.course]
    build = told(one.plan) if one.knows else law(initial_tokens=round(one.plan[0][1] * course.start))
    return watch(course.scenario, build, one.seed)


def plan_of(course: Course, best: Mapping[str, int], share: float = 1.0) -> Plan:
    """What one who knows does, at that share of what is best once all has settled."""
    steps = [step for step in course.steps if step.at_s > 0]
    return ((0.0, best[course.before]), *((step.at_s, round(share * best[step.after])) for step in steps))


@dataclass(frozen=True, slots=True)
class Figures:
    """What one step of one run came to. Shares of the settled limit, seconds, KV tokens."""

    settled: float
    overshoot: float
    """Beyond it, in the direction from where the limit was."""
    lowest: float
    within_s: float
    lost: float
    variation: float


def figures(step: Step, ours: Watched, theirs: Watched) -> Figures:
    """Hold the law in one course against the one who knew."""
    at, until = int(step.at_s), int(step.until_s)
    last = ours.limit[until - int(SETTLED_S) : until]
    settled = fmean(last)
    seen = [fmean(ours.limit[no : no + SMOOTH_S]) / settled for no in range(at, at + LOSS_S)]
    beyond = 1.0 - min(seen) if ours.limit[at] > settled else max(seen) - 1.0
    good = theirs.good_between(at, at + LOSS_S)
    return Figures(
        settled=settled,
        overshoot=max(0.0, beyond),
        lowest=min(seen),
        within_s=_within_s(ours.limit[at:until], settled),
        lost=1.0 - ours.good_between(at, at + LOSS_S) / good if good else 0.0,
        variation=pstdev(last) / settled,
    )


def _within_s(limits: Sequence[float], settled: float) -> float:
    """From when on the limit is near for some seconds on end; infinite: never."""
    near = [abs(one / settled - 1.0) <= NEAR for one in limits]
    found = (no for no in range(len(near) - STAYS_S) if all(near[no : no + STAYS_S]))
    return float(next(found, float("inf")))


@dataclass(frozen=True, slots=True)
class Line:
    """One step over all seeds."""

    name: str
    best: int
    of_seeds: tuple[Figures, ...]

    def middle(self, name: str) -> float:
        """The median over seeds."""
        return float(median(getattr(one, name) for one in self.of_seeds))

    def worst(self, name: str) -> float:
        """The largest of them."""
        return float(max(getattr(one, name) for one in self.of_seeds))


@dataclass(frozen=True, slots=True)
class Ridden:
    """A course with all its runs, one for each seed: the law's, and those of the one who knows that did best."""

    course: Course
    ours: tuple[Watched, ...]
    theirs: tuple[Watched, ...]

    def lines(self, best: Mapping[str, int]) -> Iterator[Line]:
        """A line of the table for each step."""
        for step in self.course.steps:
            pairs = zip(self.ours, self.theirs, strict=True)
            yield Line(step.name, best[step.after], tuple(figures(step, *pair) for pair in pairs))


Rides = Callable[[Sequence[Ride]], Sequence[Watched]]


def ridden(seeds: Sequence[int], best: Mapping[str, int], rides: Rides) -> list[Ridden]:
    """All courses."""
    wanted = [one for no in range(len(COURSES)) for one in _rides(no, seeds, best)]
    found = dict(zip(wanted, rides(wanted), strict=True))
    return [_ridden(no, seeds, best, found) for no in range(len(COURSES))]


def _rides(no: int, seeds: Sequence[int], best: Mapping[str, int]) -> Iterator[Ride]:
    course = COURSES[no]
    for seed in seeds:
        yield Ride(no, seed, plan_of(course, best), knows=False)
        for share in course.tries:
            yield Ride(no, seed, plan_of(course, best, share), knows=True)


def _ridden(no: int, seeds: Sequence[int], best: Mapping[str, int], found: Mapping[Ride, Watched]) -> Ridden:
    course = COURSES[no]
    told_so = [
        tuple(found[Ride(no, seed, plan_of(course, best, share), knows=True)] for seed in seeds)
        for share in course.tries
    ]
    at_s = course.steps[0].at_s
    return Ridden(
        course,
        tuple(found[Ride(no, seed, plan_of(course, best), knows=False)] for seed in seeds),
        max(told_so, key=lambda runs: sum(run.good_between(at_s, at_s + LOSS_S) for run in runs)),
    )
