"""How fast the engine model runs: simulated seconds per CPU second, ten minutes of steady overload."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from admission.simulation.engine import Engine
from admission.simulation.engines import calibration
from admission.simulation.traces import Arrival, poisson
from benchmarks.result import Result

SIMULATED_S = 600.0
SIZES = [(1500, 30), (400, 250), (4000, 60), (150, 400)]


def run() -> Iterator[Result]:
    """Simulated seconds per CPU second of three engines, each about twice overloaded."""
    for name, rate in (("h100-llama3-8b", 30.0), ("rtx4090-llama3.1-8b", 5.0), ("h100x4-llama3.1-70b", 15.0)):
        arrivals = poisson(rate, SIMULATED_S, SIZES, Random(1))
        engine = Engine(calibration(name).config)
        began = time.process_time()
        steps = play(engine, arrivals)
        cpu_s = time.process_time() - began
        batch = engine.generation_tokens_total / steps
        yield Result(f"engine model, {name}, {batch:.0f} sequences a step", SIMULATED_S / cpu_s, "s/CPU-s")


def play(engine: Engine, arrivals: list[Arrival]) -> int:
    """Run to SIMULATED_S; returns the steps taken."""
    now, sent, steps = 0.0, 0, 0
    while now < SIMULATED_S:
        while sent < len(arrivals) and arrivals[sent].at_s <= now:
            arrival = arrivals[sent]
            engine.submit(sent, arrival.prompt_tokens, arrival.output_tokens, arrival.at_s)
            sent += 1
        ends_at = engine.begin(now)
        if ends_at is None:
            now = arrivals[sent].at_s if sent < len(arrivals) else SIMULATED_S
            continue
        now = ends_at
        engine.complete(now)
        steps += 1
    return steps
