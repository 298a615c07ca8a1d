"""How fast simulated time runs: the engine model alone, and whole worlds with a policy in front of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from admission.simulation.engine import Engine
from admission.simulation.engines import calibration
from admission.simulation.judging import Judge
from admission.simulation.policies import PolicySpec, build
from admission.simulation.traces import Arrival, poisson
from admission.simulation.world import World, WorldConfig
from benchmarks.result import Result

SIMULATED_S = 600.0
SIZES = [(1500, 30), (400, 250), (4000, 60), (150, 400)]
PLAIN_SIZES = [(1_000, 200)]
RUNS = 5
"""Of each world; the least disturbed one counts."""
REAL_TIME_FACTOR = 1_000.0
"""How many times faster than real time the product's controller in front of one engine must run at 10 requests/s."""


def run() -> Iterator[Result]:
    """Simulated seconds per CPU second."""
    for name, rate in (("h100-llama3-8b", 30.0), ("rtx4090-llama3.1-8b", 5.0), ("h100x4-llama3.1-70b", 15.0)):
        arrivals = poisson(rate, SIMULATED_S, SIZES, Random(1))
        engine = Engine(calibration(name).config)
        began = time.process_time()
        play(engine, arrivals)
        cpu_s = time.process_time() - began
        batch = engine.generation_tokens_total / engine.steps_total
        yield Result(f"engine model, {name}, {batch:.0f} sequences a step", SIMULATED_S / cpu_s, "s/CPU-s")
    for policy, rate, bar in (
        ("none", 10.0, None),
        ("tidegate", 10.0, REAL_TIME_FACTOR),
        ("tidegate", 60.0, None),
    ):
        factor = max(world(policy, rate) for _ in range(RUNS))
        label = f"world, {policy}, {rate:.0f} requests/s of 1000+200 tokens"
        if bar is None:
            yield Result(label, factor, "s/CPU-s")
        else:
            yield Result(label, factor, "s/CPU-s", f"at least {bar:g}", factor >= bar)


def world(policy: str, rate: float) -> float:
    """Simulated seconds per CPU second of one engine behind a policy, judged."""
    arrivals = poisson(rate, SIMULATED_S * min(1.0, 10.0 / rate), PLAIN_SIZES, Random(1))
    judge = Judge()
    played = World(WorldConfig(), lambda no: build(PolicySpec(policy), seed=no, now=0.0), judge)
    began = time.process_time()
    played.run(arrivals)
    return played.now / (time.process_time() - began)


def play(engine: Engine, arrivals: list[Arrival]) -> None:
    """Run to SIMULATED_S, in runs of steps."""
    now, sent = 0.0, 0
    while now < SIMULATED_S:
        coming = arrivals[sent].at_s if sent < len(arrivals) else SIMULATED_S
        if engine.next_wakeup() is None and engine.begin(now) is not None:
            engine.extend()
        ends_at = engine.next_wakeup()
        if ends_at is not None and ends_at <= coming:
            now = ends_at
            engine.complete(now)
            continue
        now = coming
        if sent < len(arrivals):
            engine.submit(sent, arrivals[sent].prompt_tokens, arrivals[sent].output_tokens, now)
            sent += 1
