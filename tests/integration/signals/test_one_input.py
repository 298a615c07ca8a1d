"""Each of own events, scrape and spans alone must move the limit; without any it stands still and says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from admission.simulation.exchange import Attempt
from admission.simulation.traces import Arrival
from admission.v1.monitor_service_pb2 import TargetSnapshot
from tests.integration.signals.conftest import QuietCaller, Rig, arrivals, send

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(90)]

OVERLOAD_RATE = 30.0
SLOWS_AT_S = 20.0
WITHIN_S = 10.0

Call = Callable[[Arrival], Awaitable[Attempt | None]]


async def play(rig: Rig, call: Call, seconds: float, slows_at_s: float) -> list[tuple[float, TargetSnapshot]]:
    """Send an overload, slow the engine three times at `slows_at_s`, and look twice a second."""
    began = time.monotonic()
    seen: list[tuple[float, TargetSnapshot]] = []
    tasks: set[asyncio.Task[Attempt | None]] = set()

    async def watch() -> None:
        while True:
            seen.append((time.monotonic() - began, await rig.target()))
            await asyncio.sleep(0.5)

    async def slow() -> None:
        await asyncio.sleep(slows_at_s)
        await rig.slow(3.0)

    others = [asyncio.create_task(watch()), asyncio.create_task(slow())]
    for arrival in arrivals(OVERLOAD_RATE, seconds):
        await asyncio.sleep(max(0.0, began + arrival.at_s - time.monotonic()))
        tasks.add(asyncio.ensure_future(call(arrival)))
    for task in (*others, *tasks):
        task.cancel()
    await asyncio.gather(*others, *tasks, return_exceptions=True)
    return seen


def story(seen: list[tuple[float, TargetSnapshot]]) -> str:
    """What was seen, for whoever reads a failure."""
    lines = [
        f"{at:5.1f} s limit {t.limit_tokens} used {t.used_tokens} in flight {t.in_flight}" for at, t in seen
    ]
    changes = [f"{change.old} -> {change.new}: {change.why}" for change in seen[-1][1].changes]
    return "\n".join([*lines, *changes])


@pytest.mark.parametrize("source", ["own", "scrape", "spans"])
async def test_one_input_alone_lowers_the_limit(rig: Rig, source: str) -> None:
    """The engine slows 3x at 20 s: within 10 s the limit falls by 30 % or more, and the change names its source."""
    await rig.start("enforce", scrape=source == "scrape", spans=source == "spans", middleware=source == "own")
    quiet = QuietCaller(rig)
    call: Call = quiet.call
    if source == "own":
        call = lambda arrival: send(rig.engine_port, arrival)  # noqa: E731 - the middleware asks and tells
    seen = await play(rig, call, SLOWS_AT_S + WITHIN_S + 1.0, SLOWS_AT_S)
    await quiet.client.close()
    before = [target for at, target in seen if at < SLOWS_AT_S][-1]
    after = [(at, target) for at, target in seen if SLOWS_AT_S < at <= SLOWS_AT_S + WITHIN_S]
    lowest = min(target.limit_tokens for _, target in after)
    assert lowest <= 0.7 * before.limit_tokens, story(seen)
    told = {(change.old, change.new) for change in before.changes}
    falls = [
        change
        for change in after[-1][1].changes
        if change.what == "limit"
        and (change.old, change.new) not in told
        and int(change.new) < int(change.old)
    ]
    assert falls
    assert {change.source for change in falls} == {source}, [change.why for change in falls]


async def test_without_any_input_the_limit_freezes_and_says_so(rig: Rig) -> None:
    """Nothing tells how fast the engine is: growing or cutting would be guessing, and a person must know."""
    await rig.start("enforce", scrape=False, spans=False, middleware=False)
    quiet = QuietCaller(rig)
    seen = await play(rig, quiet.call, 25.0, 15.0)
    await quiet.client.close()
    late = [target for at, target in seen if at > 14.0]
    assert all("no signal" in target.frozen for target in late), {target.frozen for target in late}
    assert len({target.limit_tokens for target in late}) == 1
    assert late[-1].in_flight > 0
    assert late[-1].sight in {"blind", "header"}
