"""The core in front of an engine model: closed loops as data, each with a band, each failing without what it guards."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from admission.core.controller import ControllerConfig, KvForecastConfig
from admission.core.gates.kv import KvConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.prefill import PrefillConfig
from admission.simulation.engine import EngineConfig
from admission.simulation.world import Arrival, Result, World, WorldConfig
from admission.vocabulary import Mode, PriorityClass

CHAT = EngineConfig()
"""The H100 with Llama-3-8B of the calibrations: 7.79 ms a step, 460k KV tokens."""
TIGHT = EngineConfig(kv_capacity_tokens=12_000)
SLOW_DECODE = EngineConfig(
    base_s=14.1e-3, prefill_s_per_token=6.27e-5, decode_s_per_sequence=8.55e-5, kv_s_per_token=1.46e-7
)
"""The A100: reading KV costs 58 ms a step at 400k tokens, so that TPOT binds."""

Measure = Callable[[Result, World], float]


def mix(rate: float, until: float, prompt: float, output: float, seed: int) -> list[Arrival]:
    """Poisson arrivals with log-normal lengths; `prompt` and `output` are the logarithms of the medians."""
    rng = random.Random(seed)
    arrivals, at = [], rng.expovariate(rate)
    while at < until:
        tokens = min(8_000, max(16, int(rng.lognormvariate(prompt, 1.0))))
        answer = min(1_500, max(4, int(rng.lognormvariate(output, 0.7))))
        arrivals.append(Arrival(at, tokens, answer))
        at += rng.expovariate(rate)
    return arrivals


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A load, a world, a band, and the settings without the ingredient that it guards."""

    name: str
    engine: EngineConfig = CHAT
    rate: float
    prompt: float = 6.2
    output: float = 5.0
    until: float = 60.0
    world: dict[str, Any] = field(default_factory=dict)
    controller: dict[str, Any] = field(default_factory=dict)
    measure: Measure
    low: float
    high: float
    without: dict[str, Any]

    def run(self, seed: int, **instead: Any) -> float:
        """The measured value."""
        settings = {"mode": Mode.ENFORCE, **self.controller, **instead}
        world = World(WorldConfig(engine=self.engine, **self.world), ControllerConfig(**settings), seed)
        result = world.run(mix(self.rate, self.until, self.prompt, self.output, seed), self.until)
        return self.measure(result, world)


def goodput(result: Result, _: World) -> float:
    """Good over offered, after the warm-up and before the last answers are cut off."""
    return result.goodput(15.0, 45.0)


def p99_ttft(result: Result, _: World) -> float:
    """Seconds, over the served."""
    return result.ttft_s(0.99)


def preemptions(_: Result, world: World) -> float:
    """How often the engine threw work away."""
    return world.engine.preemptions_total


def fall_after_slowing(result: Result, _: World) -> float:
    """How far the limit went down within 10 s of t = 40 s, as a share of what it was."""
    before = result.limit_at(40.0)
    lowest = min((limit for at, limit, _ in result.limits if 40.0 < at <= 50.0), default=before)
    return 1.0 - lowest / before


def ending_limit(_: Result, world: World) -> float:
    """The limit at the end, in tokens."""
    return world.core.target.limit.value


SLOWER: dict[str, Any] = {"slow": ((40.0, 3.0),)}
SLOWING: dict[str, Any] = {"engine": SLOW_DECODE, "rate": 40.0, "prompt": 5.0, "output": 5.7, "until": 51.0}
CONVERGING: dict[str, Any] = {
    "engine": SLOW_DECODE,
    "rate": 30.0,
    "prompt": 5.0,
    "output": 6.2,
    "until": 150.0,
}
NO_LAW: dict[str, Any] = {"limit": FixedConfig(limit_tokens=400_000)}
NO_PREFILL: dict[str, Any] = {"prefill": PrefillConfig(share=1.0, refuse_share=1.0)}
NO_KV: dict[str, Any] = {
    "kv_forecast": KvForecastConfig(output_share=0.01),
    "kv": KvConfig(enabled=False),
    **NO_LAW,
}

SCENARIOS = [
    Scenario(
        name="twice the capacity", rate=40.0, measure=goodput, low=0.50, high=0.70, without={"mode": Mode.OFF}
    ),
    Scenario(
        name="five times the capacity",
        rate=100.0,
        measure=goodput,
        low=0.27,
        high=0.36,
        without={"mode": Mode.OFF},
    ),
    Scenario(name="TTFT of the served", rate=40.0, measure=p99_ttft, low=0.5, high=2.15, without=NO_PREFILL),
    Scenario(
        name="scarce KV is not overrun",
        engine=TIGHT,
        rate=20.0,
        measure=preemptions,
        low=0,
        high=10,
        without=NO_KV,
    ),
    Scenario(
        name="own events alone show a slower engine",
        world={"scrape": False, **SLOWER},
        measure=fall_after_slowing,
        low=0.29,
        high=0.6,
        without=NO_LAW,
        **SLOWING,
    ),
    Scenario(
        name="the scrape alone shows a slower engine",
        world={"own_events": False, **SLOWER},
        measure=fall_after_slowing,
        low=0.29,
        high=0.6,
        without=NO_LAW,
        **SLOWING,
    ),
    Scenario(
        name="started four times too high",
        controller={"limit": AimdConfig(initial_tokens=600_000)},
        measure=ending_limit,
        low=160_000,
        high=240_000,
        without={"limit": FixedConfig(limit_tokens=600_000)},
        **CONVERGING,
    ),
    Scenario(
        name="started far too low",
        controller={"limit": AimdConfig(initial_tokens=5_000)},
        measure=ending_limit,
        low=160_000,
        high=240_000,
        without={"limit": FixedConfig(limit_tokens=5_000)},
        **CONVERGING,
    ),
    Scenario(
        name="below capacity nobody is refused",
        rate=12.0,
        measure=goodput,
        low=0.99,
        high=1.0,
        without={"limit": FixedConfig(limit_tokens=4_000)},
    ),
]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)


@every_scenario
@pytest.mark.parametrize("seed", [11, 12])
def test_the_measure_stays_in_its_band(scenario: Scenario, seed: int) -> None:
    """The whole loop: arrivals, decisions, engine, what it shows, the law."""
    assert scenario.low <= scenario.run(seed) <= scenario.high


@every_scenario
def test_it_leaves_the_band_without_the_ingredient(scenario: Scenario) -> None:
    """A scenario that cannot fail proves nothing."""
    value = scenario.run(11, **scenario.without)
    assert not scenario.low <= value <= scenario.high


def test_a_run_repeats_exactly() -> None:
    """Same seed, same world: else a bad night could not become a test."""
    scenario = SCENARIOS[0]
    assert scenario.run(5) == scenario.run(5)


def test_without_any_signal_the_limit_stands_still_and_says_so() -> None:
    """Blind is a state of its own, not a reason to grow."""
    config = WorldConfig(engine=SLOW_DECODE, scrape=False, own_events=False, slow=((40.0, 3.0),))
    world = World(config, ControllerConfig(mode=Mode.ENFORCE), 3)
    result = world.run(mix(20.0, 55.0, 5.0, 5.7, 3), 55.0)
    assert len(result.limits) == 1
    assert world.core.view(55.0).frozen.startswith("no signal")


def test_sixteen_tokens_a_chunk_end_at_the_limit_of_one() -> None:
    """A chunk is not a token: how many it carries is learned from finished answers."""
    ends = []
    for chunk_tokens in (1, 16):
        config = WorldConfig(engine=SLOW_DECODE, scrape=False, chunk_tokens=chunk_tokens)
        world = World(config, ControllerConfig(mode=Mode.ENFORCE), 3)
        world.run(mix(30.0, 90.0, 5.0, 5.7, 3), 90.0)
        ends.append(world.core.target.limit.value)
    assert abs(ends[1] / ends[0] - 1.0) < 0.2


def test_enforcing_at_a_steady_load_refuses_almost_nobody() -> None:
    """Switching us on must not be an outage, however low the configured start."""
    for initial, most in ((2_000, 0.01), (32_000, 0.01)):
        controller = ControllerConfig(mode=Mode.SHADOW, limit=AimdConfig(initial_tokens=initial))
        world = World(WorldConfig(engine=SLOW_DECODE, enforce_at=40.0), controller, 4)
        result = world.run(mix(9.0, 100.0, 5.0, 5.7, 4), 100.0)
        assert result.refused(40.0, 100.0) < most


def answers_in_one_piece(seed: int) -> list[Arrival]:
    """Nothing streams: nobody ever sees a first token."""
    return [replace(one, stream=False) for one in mix(40.0, 60.0, 6.2, 5.0, seed)]


def chat_beside_batch(seed: int) -> list[Arrival]:
    """Interactive traffic well below capacity, beside a batch backlog of five times it."""
    batch = [replace(one, priority=PriorityClass.BATCH) for one in mix(50.0, 60.0, 6.2, 5.0, seed + 100)]
    return sorted(mix(9.0, 60.0, 6.2, 5.0, seed) + batch, key=lambda one: one.at)


def of_interactive(result: Result) -> float:
    """Goodput of the interactive requests alone."""
    chat = [one for one in result.requests if one.arrival.priority is PriorityClass.INTERACTIVE]
    asked = [one for one in chat if 15.0 <= one.arrival.at < 45.0]
    return sum(one.good for one in asked) / len(asked)


@pytest.mark.parametrize(
    ("arrivals", "world", "measure", "low", "high"),
    [
        (answers_in_one_piece, {}, lambda result: result.goodput(15.0, 45.0), 0.58, 0.75),
        (chat_beside_batch, {"patience_s": 120.0}, of_interactive, 0.92, 1.0),
        (
            lambda seed: mix(30.0, 60.0, 6.2, 5.0, seed),
            {"bypass": 0.33},
            lambda result: result.goodput(15.0, 45.0),
            0.64,
            0.82,
        ),
    ],
    ids=["nothing streams", "interactive beside a batch backlog", "a third passes us by"],
)
def test_other_traffic_keeps_its_goodput_too(
    arrivals: Callable[[int], list[Arrival]],
    world: dict[str, Any],
    measure: Callable[[Result], float],
    low: float,
    high: float,
) -> None:
    """In its band with us, far out of it without."""
    values = {}
    for mode in (Mode.ENFORCE, Mode.OFF):
        run = World(WorldConfig(engine=CHAT, **world), ControllerConfig(mode=mode), 11)
        values[mode] = measure(run.run(arrivals(11), 60.0))
    assert low <= values[Mode.ENFORCE] <= high
    assert values[Mode.OFF] < low / 2
