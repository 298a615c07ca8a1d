"""Many runs side by side: policies, load factors and seeds in front of the same traffic, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from admission.core.slo import SloConfig
from admission.simulation import policies
from admission.simulation.comparing import Difference, paired
from admission.simulation.judging import Judge, Report
from admission.simulation.policies import PolicySpec
from admission.simulation.pool import run_all
from admission.simulation.sweep import Score, Sweep, grid, sweep
from admission.simulation.timeline import Timeline
from admission.simulation.traces import Arrival
from admission.simulation.world import World, WorldConfig
from admission.vocabulary import PriorityClass

BEST_STATIC = "best static"


class Setup(Protocol):
    """What is a policy put in front of? A small value that can be pickled: arrivals are made where the run is."""

    @property
    def slo(self) -> Mapping[PriorityClass, SloConfig]:
        """What a good answer is, by class."""

    @property
    def until_s(self) -> float | None:
        """When a run ends at the latest; None: when all has settled."""

    def world(self) -> WorldConfig:
        """Engines, callers, sight, disturbances."""

    def arrivals(self, seed: int, load: float) -> Iterator[Arrival]:
        """The requests in time order; `load` is a factor on their rate."""

    def judge(self) -> Judge:
        """An empty verdict over the span that counts."""


class Meter(Protocol):
    """Who is told how far it is?"""

    def expect(self, runs: int) -> None:
        """So many more runs are to come."""

    def advance(self) -> None:
        """One has ended."""


class Silent:
    """A meter for nobody."""

    def expect(self, runs: int) -> None:
        """Nobody asks."""

    def advance(self) -> None:
        """Nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    setup: Setup
    label: str
    policy: PolicySpec
    seed: int = 0
    load: float = 1.0
    watched: bool = False
    """Bring the time line back, for a plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a case came to."""

    label: str
    load: float
    seed: int
    report: Report
    timeline: Timeline | None = None
    limit_requests: int | None = None
    """What the policy lets in at most when that is its only limit, in requests."""


def run_case(case: Case) -> Run:
    """Run it here. The same case gives the same result on every machine."""
    judge = case.setup.judge()
    timeline = Timeline(from_s=judge.from_s, until_s=judge.until_s)
    world = World(
        case.setup.world(),
        lambda no: policies.build(case.policy, seed=case.seed * 1_009 + no, now=0.0),
        judge,
        seed=case.seed,
        timeline=timeline,
    )
    world.run(case.setup.arrivals(case.seed, case.load), case.setup.until_s)
    report = judge.report(timeline.limit_variation_ratio)
    return Run(
        label=case.label,
        load=case.load,
        seed=case.seed,
        report=report,
        timeline=timeline if case.watched else None,
        limit_requests=_limit_requests(case.policy, len(world.policies)),
    )


def _limit_requests(policy: PolicySpec, sidecars: int) -> int | None:
    """Of a policy whose settings say so; each sidecar lets in so many."""
    requests: int | None = getattr(
        policy.config or policies.kind(policy.name).default(), "limit_requests", None
    )
    return None if requests is None else requests * sidecars


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is to be found out."""

    setup: Setup
    contenders: Mapping[str, PolicySpec]
    """Policies by the label that people see."""
    seeds: tuple[int, ...] = (0,)
    loads: tuple[float, ...] = (1.0,)
    sweep: bool = False
    """Look for the best static token budget at each load, one for all seeds."""
    fixed: Callable[[int], PolicySpec] | None = None
    """The static budget of so many tokens; needed for a sweep only."""
    watched: bool = False
    processes: int | None = None
    """At most so many; None: one a core."""

    def cases(self) -> list[Case]:
        """Every run but those of the sweep. The time lines are those of the first load and seed."""
        return [
            self._case(label, spec, load, seed)
            for load in self.loads
            for label, spec in self.contenders.items()
            for seed in self.seeds
        ]

    def _case(self, label: str, spec: PolicySpec, load: float, seed: int) -> Case:
        first = load == self.loads[0] and seed == self.seeds[0]
        return Case(
            setup=self.setup,
            label=label,
            policy=spec,
            seed=seed,
            load=load,
            watched=self.watched and first,
        )

    def run(self, meter: Meter | None = None) -> Findings:
        """Run everything.

        Raises:
            ValueError: input that turned out to be wrong while it was read.
            WorkerLostError: a worker died.
        """
        meter = meter or Silent()
        runs = self._run(self.cases(), meter)
        sweeps: dict[float, Sweep] = {}
        if self.sweep:
            for load in self.loads:
                sweeps[load], best = self._swept(load, meter)
                runs += best
        return Findings(tuple(runs), self.seeds, self.loads, sweeps)

    def _run(self, cases: Sequence[Case], meter: Meter) -> list[Run]:
        meter.expect(len(cases))
        return run_all(run_case, cases, processes=self.processes, done=meter.advance)

    def _swept(self, load: float, meter: Meter) -> tuple[Sweep, list[Run]]:
        """The sweep at one load, and the runs of its best under a label of their own."""
        runs: dict[int, list[Run]] = {}

        def measure(budgets: Sequence[int]) -> dict[int, Score]:
            cases = [self._static(tokens, load, seed) for tokens in budgets for seed in self.seeds]
            found = iter(self._run(cases, meter))
            for tokens in budgets:
                runs[tokens] = [next(found) for _ in self.seeds]
            return {tokens: _score(runs[tokens]) for tokens in budgets}

        found = sweep(grid(self._kv_tokens()), measure)
        return found, runs[found.best_tokens]

    def _static(self, tokens: int, load: float, seed: int) -> Case:
        if self.fixed is None:
            raise ValueError("a sweep needs to know how a static budget is made")
        return self._case(BEST_STATIC, self.fixed(tokens), load, seed)

    def _kv_tokens(self) -> int:
        return sum(member.engine.kv_capacity_tokens for member in self.setup.world().members)


def _score(runs: Sequence[Run]) -> Score:
    return Score(
        fmean(run.report.goodput_requests_ratio for run in runs),
        fmean(run.report.goodput_tokens_ratio for run in runs),
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """All runs, and the sweeps by load."""

    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    loads: tuple[float, ...]
    sweeps: Mapping[float, Sweep] = field(default_factory=dict)

    def labels(self) -> list[str]:
        """The policies, as they were asked for."""
        return list(dict.fromkeys(run.label for run in self.runs))

    def of(self, label: str, load: float) -> list[Run]:
        """The runs of a policy at a load, by seed."""
        return [run for run in self.runs if run.label == label and run.load == load]

    def difference(self, a: str, b: str, load: float, figure: str, name: str = "") -> Difference:
        """B - A of a figure of the report, paired over the seeds; `name` is what people call it."""
        pairs = [[getattr(run.report, figure) for run in self.of(label, load)] for label in (a, b)]
        return paired(name or figure, *pairs)
