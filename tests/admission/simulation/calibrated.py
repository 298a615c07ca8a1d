"""Recordings that the engine model makes of itself: the constants behind them are known."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from admission.simulation.calibrating.driving import drive
from admission.simulation.calibrating.measured import Clock, Measured, Recording
from admission.simulation.engine import EngineConfig

TRUTH = EngineConfig()


def arrivals(rounds: int = 1, each: int = 30, seed: int = 1) -> list[Measured]:
    """Lone long prompts, then many short streams, then few long contexts, round after round: they tell all costs apart."""
    random, now, made = Random(seed), 0.0, []
    phases = ((each, 0.5, (100, 6000), (20, 100)), (6 * each, 0.01, (10, 40), (150, 400)))
    for _ in range(rounds):
        for count, gap_s, prompts, answers in (*phases, (each, 0.35, (6000, 12000), (100, 300))):
            for _ in range(count):
                now += random.expovariate(1 / gap_s)
                made.append(Measured(now, random.randint(*prompts), random.randint(*answers)))
            now += 3.0
    return made


def recorded(
    config: EngineConfig, requests: list[Measured], clock: Clock = Clock.ARRIVAL, engines: int = 1
) -> Recording:
    """The same requests with the times that this engine gives them."""
    driven = drive(config, requests, engines)
    timed = [
        replace(request, ttft_s=ttft, decode_s=decode)
        for request, ttft, decode in zip(
            requests, driven.ttft(clock).tolist(), driven.decode().tolist(), strict=True
        )
    ]
    return Recording("made", tuple(timed), clock=clock, engines=engines)
