"""Runs one scenario under one policy, to its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from admission.core.model import Event
from admission.simulation import policies
from admission.simulation.asking import bound, words
from admission.simulation.judging import Report
from admission.simulation.policies import Policy, PolicySpec
from admission.simulation.scenarios.scenario import Scenario
from admission.simulation.timeline import Timeline
from admission.simulation.world import World

SETTLING_S = 300.0
"""After the last arrival a run goes on until all are settled, but no longer than this."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run that has ended."""

    scenario: Scenario
    report: Report
    world: World
    timeline: Timeline


def play(
    scenario: Scenario,
    policy: PolicySpec | str,
    seed: int,
    load: float = 1.0,
    watch: Callable[[int, float, Event], None] | None = None,
) -> Played:
    """One run; the same for the same arguments. `watch` is told of every event: (sidecar, seconds, event).

    Raises:
        ValueError: no such policy, or a setting that it does not have.
    """
    spec = spec_of(policy) if isinstance(policy, str) else policy
    judge = scenario.judge()
    timeline = Timeline(from_s=judge.from_s, until_s=judge.until_s)

    def build(no: int) -> Policy:
        return policies.build(spec, seed=seed * 1_009 + no, now=0.0, slos=scenario.slo)

    world = World(scenario.world(), build, judge, seed, timeline, watch)
    world.run(scenario.arrivals(seed, load), scenario.duration_s + SETTLING_S)
    return Played(scenario, judge.report(timeline.limit_variation_ratio), world, timeline)


def run_scenario(scenario: Scenario, policy: PolicySpec | str, seed: int, load: float = 1.0) -> Report:
    """What one run comes to; `load` comes on top of the scenario's own."""
    return play(scenario, policy, seed, load).report


def spec_of(text: str) -> PolicySpec:
    """A policy as people write it: `tidegate`, or `tidegate:limit.dead_zone=0.1,prefill.share=0.3`.

    Raises:
        ValueError: no such policy, or a setting that it does not have.
    """
    name, settings = words(re.sub(r"=(-?)\.(\d)", r"=\g<1>0.\2", text))
    default = policies.kind(name).default()
    return PolicySpec(name, bound(type(default), settings, text, default))
