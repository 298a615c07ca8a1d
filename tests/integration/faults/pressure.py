"""Twice the load that the engine may take, through the middleware, and what the engine itself counts meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from admission.simulation.exchange import Attempt, Ending
from admission.simulation.load import Load, LoadConfig
from admission.simulation.traces import poisson
from tests.integration.faults.rig import Rig

ENGINE = "pro6000x2-qwen3-32b"
PROMPT, OUTPUT = 60, 40
COST = PROMPT + OUTPUT
REQUESTS = 12
"""As many fit the limit at once: the engine then serves some ten a second."""
RATE_PER_S = 20.0


@dataclass(slots=True)
class Pressure:
    """The load, and the most that ran and waited on the engine by its own count."""

    load: Load
    limit_requests: float = REQUESTS
    worst: int = 0
    worst_at: float = 0.0
    samples: list[tuple[float, int]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The worst count over the limit."""
        return self.worst / self.limit_requests

    def since(self, at: float) -> list[Attempt]:
        """Attempts that began after this monotonic time."""
        found = [attempt for outcome in self.load.outcomes for attempt in outcome.attempts]
        return [attempt for attempt in found if attempt.began_at >= at]

    def served(self, since: float, until: float) -> int:
        """Requests that began in a while and were served whole."""
        return sum(
            attempt.ending is Ending.SERVED and attempt.began_at < until for attempt in self.since(since)
        )

    def peak(self, since: float, until: float) -> int:
        """The engine's own count at its highest in a while."""
        return max((count for at, count in self.samples if since <= at < until), default=0)

    def endings(self) -> dict[str, int]:
        """How all attempts ended."""
        return self.load.report().endings


async def _count(rig: Rig, pressure: Pressure) -> None:
    while True:
        state = await rig.engine_state()
        count = int(state.get("running", 0)) + int(state.get("waiting", 0))
        pressure.samples.append((time.monotonic(), count))
        if count > pressure.worst:
            pressure.worst, pressure.worst_at = count, time.monotonic()
        await asyncio.sleep(0.05)


def configure(rig: Rig) -> Rig:
    """A limit for twelve requests, known exactly, so that over is over; the scrape tells the sidecar of the engine."""
    rig.target = {
        "metrics_urls": [f"http://127.0.0.1:{rig.engine_port}/metrics"],
        "limit": {"algorithm": "fixed", "limit_tokens": REQUESTS * COST},
        "classes": {"interactive": {"slo": {"ttft_s": 10.0, "tpot_s": 1.0}, "patience_s": 1.0}},
    }
    return rig


@asynccontextmanager
async def pressing(rig: Rig, seconds: float) -> AsyncIterator[Pressure]:
    """Load from now on, until it ends by itself or the block does; then the last streams may finish."""
    arrivals = poisson(RATE_PER_S, seconds, [(PROMPT, OUTPUT)], Random(7))
    config = LoadConfig(port=rig.engine_port, max_tokens=OUTPUT, patience_s=30.0)
    pressure = Pressure(Load(config, arrivals))
    running = asyncio.create_task(pressure.load.run())
    counting = asyncio.create_task(_count(rig, pressure))
    try:
        yield pressure
        await running
    finally:
        for task in (running, counting):
            task.cancel()
        await asyncio.gather(running, counting, return_exceptions=True)
