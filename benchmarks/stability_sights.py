"""How the law holds when some of its signals are silent: one steady overload, seen in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from admission.core.limits.aimd import AimdConfig
from admission.core.model import Event, LimitChanged
from admission.simulation.policies.tidegate import Tidegate
from admission.simulation.scenarios import scenario
from admission.simulation.scenarios.running import play
from admission.simulation.scenarios.scenario import Scenario
from admission.simulation.timeline import Timeline
from admission.simulation.world import Callers, Sight, World
from admission.vocabulary import PriorityClass
from benchmarks.stability_courses import Setting
from benchmarks.stability_runs import law

FROM_S, UNTIL_S = 60.0, 150.0
SIGHTS: dict[str, Sight] = {
    "everything": Sight(),
    "everything, scrape each 5 s": Sight(scrape_s=5.0),
    "everything, scrapes fail from 60 s on": Sight(scrapes_lost=((FROM_S, UNTIL_S),)),
    "no progress of streams": Sight(progress=False),
    "no first tokens, no progress: ends and scrape": Sight(first_tokens=False, progress=False),
    "ends alone, streams": Sight(scrape_s=None, first_tokens=False, progress=False),
    "ends alone, answers in one piece": Sight(scrape_s=None, first_tokens=False, progress=False),
    "scrape alone": Sight(own_events=False),
    "spans alone": Sight(scrape_s=None, own_events=False, spans=True),
    "nothing": Sight(scrape_s=None, own_events=False),
}
ENGINES = ("over2", "h100-2", "70b-2", "6000-32b-2", "4090-2")
"""Shipped scenarios at about twice the capacity, one for each engine."""


@dataclass(frozen=True, slots=True)
class Look:
    """One run of one sight, from a minute on. Ratios, KV tokens."""

    good: float
    limit: float
    variation: float
    accepted_ok: float
    frozen: str


def seen(task: tuple[str, int]) -> Look:
    """Play one (sight, seed)."""
    name, seed = task
    one = Setting(sight=SIGHTS[name]).scenario("seen", UNTIL_S)
    if name.endswith("in one piece"):
        one = replace(one, callers=Callers(stream_ratio=0.0))
    timeline, accepted_ok, frozen = _play(one, seed)
    rows = timeline.moments()[int(FROM_S) : int(UNTIL_S)]
    limits = [row.limit or 0.0 for row in rows]
    return Look(
        good=sum(row.good for row in rows) / max(1, sum(row.offered for row in rows)),
        limit=fmean(limits),
        variation=pstdev(limits) / fmean(limits),
        accepted_ok=accepted_ok,
        frozen=frozen,
    )


def _play(one: Scenario, seed: int) -> tuple[Timeline, float, str]:
    timeline, judge, build = Timeline(), one.judge(), law()
    policies: list[Tidegate] = []

    def policy(no: int) -> Tidegate:
        policies.append(build(one, seed * 1_009 + no))
        return policies[-1]

    world = World(one.world(), policy, judge, seed, timeline)
    world.run(one.arrivals(seed), UNTIL_S)
    return timeline, judge.report().accepted_within_slo_ratio or 0.0, policies[0].law.frozen


@dataclass(frozen=True, slots=True)
class Noise:
    """How one engine's limit moves once it has settled. Shares of the limit, seconds."""

    elasticity: float
    answer_s: float
    share: float
    """A mean request."""
    cut_s: float
    """Between two cuts that are not one behind the other."""
    depth: float
    """Of a run of cuts."""
    growing: float
    """Of all seconds, those in which it grew."""
    variation: float


def noise(task: tuple[str, int]) -> Noise:
    """Play one (scenario, seed), and look at it from the middle on."""
    name, seed = task
    one = scenario(name)
    changes: list[tuple[float, LimitChanged]] = []

    def watch(_: int, at_s: float, event: Event) -> None:
        if isinstance(event, LimitChanged):
            changes.append((at_s, event))

    played = play(one, "tidegate", seed, watch=watch)
    controller = played.world.policies[0]
    assert isinstance(controller, Tidegate)  # noqa: S101 - narrows a type
    from_s, until_s = one.duration_s / 2, one.duration_s
    late = [(at, event) for at, event in changes if from_s <= at < until_s]
    limits = [row.limit or 0.0 for row in played.timeline.moments()[int(from_s) : int(until_s)]]
    depths = _depths(late)
    engine = one.pool()[0].engine
    tpot_s = AimdConfig().set_point * one.slo[PriorityClass.INTERACTIVE].tpot_s
    return Noise(
        elasticity=1.0 - engine.base_s / tpot_s,
        answer_s=one.mean().output * tpot_s,
        share=controller.target.mean_cost.value / fmean(limits),
        cut_s=(until_s - from_s) / max(1, len(depths)),
        depth=fmean(depths) if depths else 0.0,
        growing=sum(event.new > event.old for _, event in late) / (until_s - from_s),
        variation=pstdev(limits) / fmean(limits),
    )


def _depths(changes: Sequence[tuple[float, LimitChanged]]) -> list[float]:
    """How far each run of cuts went down; cuts of seconds next to one another are one run."""
    depths: list[float] = []
    before_s = float("-inf")
    for at_s, event in changes:
        if event.new >= event.old:
            continue
        kept = event.new / event.old
        if at_s - before_s <= 1.5:
            depths[-1] = 1.0 - (1.0 - depths[-1]) * kept
        else:
            depths.append(1.0 - kept)
        before_s = at_s
    return depths
