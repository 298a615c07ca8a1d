"""The open-loop client against a stand-in: punctual, judged, impatient, leaving, trying again."""

from __future__ import annotations

import asyncio

import pytest

from admission.simulation.exchange import Ending, Request, exchange
from admission.simulation.load import Load, LoadConfig, Retry
from admission.simulation.traces import Arrival
from tests.integration.demo.conftest import Starter, free_port, post, state

pytestmark = pytest.mark.integration

STEADY = [Arrival(0.05 * index, 200, 12) for index in range(20)]


async def test_every_arrival_leaves_on_time_and_is_judged(start_standin: Starter) -> None:
    """An engine with room serves all of an open-loop stream within its SLO."""
    port = await start_standin("--engine", "h100-llama3-8b")
    report = await Load(LoadConfig(port=port, chat=True), STEADY).run()
    assert (report.offered_requests, report.good_requests) == (20, 20)
    assert report.offered_tokens == report.good_tokens == 20 * 212
    assert report.endings == {"served": 20}
    assert report.late_max_s < 0.5
    assert report.ttft_p99_s is not None


async def test_leavers_leave_mid_stream(start_standin: Starter) -> None:
    """A share of callers disconnects after a few chunks; the engine has nothing left of them."""
    port = await start_standin("--engine", "h100-llama3-8b")
    load = Load(LoadConfig(port=port, leave_ratio=0.5, seed=1), [Arrival(a.at_s, 200, 60) for a in STEADY])
    report = await load.run()
    assert report.endings["left"] == sum(outcome.leaves for outcome in load.outcomes) > 3
    assert report.endings["served"] == report.offered_requests == report.good_requests
    await asyncio.sleep(0.2)
    assert (await state(port))["open_calls"] == 0


async def test_backoff_tries_again(start_standin: Starter) -> None:
    """Refused while the engine is down, served on a later try: one offered request, more attempts."""
    port = await start_standin("--engine", "h100-llama3-8b")
    await post(port, "/standin", {"down_s": 0.3})
    load = Load(LoadConfig(port=port, retry=Retry.BACKOFF), STEADY[:2])
    report = await load.run()
    assert (report.offered_requests, report.good_requests) == (2, 2)
    assert report.attempts == 4
    assert report.refusals == {"http 503": 2}


async def test_what_is_under_way_at_the_end_is_cut(start_standin: Starter) -> None:
    """A run ends when it should, not when the last answer does."""
    port = await start_standin("--engine", "h100-llama3-8b")
    load = Load(LoadConfig(port=port), [Arrival(0.0, 100, 2000)])
    report = await asyncio.wait_for(load.run(extra_s=0.3), 2.0)
    assert (report.offered_requests, report.good_requests, load.in_flight) == (1, 0, 0)


async def test_nobody_listening_is_a_failed_attempt() -> None:
    """The client never raises for what the network does."""
    attempt = await exchange("127.0.0.1", free_port(), Request("/v1/completions", b"{}"))
    assert (attempt.ending, attempt.reason) == (Ending.FAILED, "ConnectionRefusedError")
