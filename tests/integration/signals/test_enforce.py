"""Switching from shadow to enforce at a load that the engine can carry must not be felt."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from admission.core.slo import INTERACTIVE_SLO, SloConfig
from admission.simulation.engine import Engine, Sequence
from admission.simulation.engines import calibration
from admission.simulation.exchange import Attempt, Ending
from admission.v1.types_pb2 import MODE_ENFORCE, MODE_SHADOW
from tests.integration.signals.conftest import ENGINE, Rig, arrivals, refused, send

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

SHADOW_S, ENFORCE_S = 12.0, 60.0


def capacity_rate() -> float:
    """Requests per second that the engine serves to 95 % within the SLO when nothing limits them: bisected on the model."""
    low, high = 5.0, 80.0
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if good_ratio(middle) >= 0.95 else (low, middle)
    return low


def good_ratio(rate: float) -> float:
    """Share of an unlimited Poisson stream that is served within the SLO, in simulated time."""
    engine = Engine(calibration(ENGINE).config)
    slo, offered = INTERACTIVE_SLO, arrivals(rate, 60.0)
    sent, now, good = 0, 0.0, 0
    while True:
        while sent < len(offered) and offered[sent].at_s <= now:
            engine.submit(sent, offered[sent].prompt_tokens, offered[sent].output_tokens, offered[sent].at_s)
            sent += 1
        ends_at = engine.begin(now)
        if ends_at is None and sent == len(offered):
            return good / len(offered)
        now = ends_at or offered[sent].at_s
        if ends_at is not None:
            good += sum(is_good(sequence, slo) for sequence in engine.complete(now).finished)


def is_good(sequence: Sequence, slo: SloConfig) -> bool:
    """Whether a finished sequence met the SLO."""
    attempt = Attempt(sequence.arrived_at, Ending.SERVED, first_token_at=sequence.first_token_at)
    attempt.ended_at, attempt.output_tokens = sequence.finished_at or 0.0, sequence.output_tokens
    return slo.met(sequence.prompt_tokens, attempt.ttft_s, attempt.tpot_s) is True


async def test_enforce_at_a_steady_load_refuses_under_one_percent(rig: Rig) -> None:
    """After 12 s of shadow at 0.7 of capacity, enforce refuses fewer than 1 % in the next 60 s."""
    await rig.start("shadow", scrape=True, spans=True, middleware=True)
    offered = arrivals(0.7 * capacity_rate(), SHADOW_S + ENFORCE_S)
    began = time.monotonic()
    tasks: list[tuple[float, asyncio.Task[Attempt]]] = []
    switched = False
    for arrival in offered:
        await asyncio.sleep(max(0.0, began + arrival.at_s - time.monotonic()))
        if arrival.at_s >= SHADOW_S and not switched:
            assert (await rig.target()).mode == MODE_SHADOW
            await rig.enforce()
            switched = True
        tasks.append((arrival.at_s, asyncio.create_task(send(rig.engine_port, arrival))))
    results = await asyncio.gather(*(task for _, task in tasks))
    after: list[Attempt | None] = [
        result for (at, _), result in zip(tasks, results, strict=True) if at >= SHADOW_S
    ]
    target = await rig.target()
    assert target.mode == MODE_ENFORCE
    assert len(after) > 600
    reasons = Counter(attempt.reason for attempt in after if attempt is not None)
    assert refused(after) < 0.01 * len(after), f"{reasons} {target.changes}"
    assert all(attempt is not None and attempt.ending in (Ending.SERVED, Ending.REFUSED) for attempt in after)
