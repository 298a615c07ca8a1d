"""Death and replacement of the sidecar at twice the load: the server goes on, and never carries over 1.1 of the limit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from admission.simulation.exchange import Ending
from tests.integration.faults.pressure import ENGINE, REQUESTS, Pressure, configure, pressing
from tests.integration.faults.rig import Rig, acquire, metric, release, target_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]


async def nothing_is_left(rig: Rig) -> None:
    """No permit is held, and the engine has nothing to do."""
    await rig.empties(15)
    assert (await rig.engine_state())["open_calls"] == 0


def tell(what: str, pressure: Pressure) -> None:
    """The figures, for whoever runs with -s."""
    print(  # noqa: T201
        f"\n{what}: worst {pressure.worst} of {REQUESTS} ({pressure.ratio:.2f}), {pressure.endings()}"
    )


async def began(rig: Rig) -> None:
    """A sidecar and an engine that know of each other, with the client attached."""
    configure(rig)
    rig.sections["server"] = {"overload": {"behind_s": 5.0}, "drain_s": 4.0}
    await rig.sidecar()
    await rig.engine("--engine", ENGINE, TIDEGATE_DECISION_TIMEOUT_MS="1000")
    await rig.shown(lambda seen: target_of(seen).engine_state == "up")


async def test_a_sidecar_killed_at_twice_the_load_is_survived_and_resumed(rig: Rig) -> None:
    """kill -9: clients go on within what they held, tell the successor what runs, and nothing is lost or doubled."""
    await began(rig)
    async with pressing(rig, 16.0) as pressure:
        await rig.shown(lambda seen: target_of(seen).in_flight >= REQUESTS - 1)
        await asyncio.sleep(2.0)
        killed_at = time.monotonic()
        await rig.end("sidecar")
        await asyncio.sleep(3.0)
        back_at = time.monotonic()
        await rig.sidecar()
        await rig.shown(lambda seen: seen.sessions == 1)
    tell("killed", pressure)

    served = pressure.served(killed_at + 0.5, back_at)
    assert served >= 10
    assert pressure.peak(killed_at, back_at) >= REQUESTS // 2
    assert pressure.ratio <= 1.1
    assert not [a for a in pressure.since(killed_at) if a.ending in (Ending.FAILED, Ending.INVALID)]
    page = (await rig.get("/metrics"))[1]
    assert 'tidegate_protocol_total{name="reinstated",way="session"} ' in page
    assert 'tidegate_protocol_total{name="reinstated",way="session"} 0.0' not in page
    await nothing_is_left(rig)


async def test_an_upgrade_at_twice_the_load_fails_nobody(rig: Rig) -> None:
    """SIGTERM: it drains while the client goes alone, and its successor begins with what runs."""
    await began(rig)
    async with pressing(rig, 16.0) as pressure:
        await rig.shown(lambda seen: target_of(seen).in_flight >= REQUESTS - 1)
        await asyncio.sleep(2.0)
        asked_at = time.monotonic()
        await rig.end("sidecar", signal.SIGTERM)
        gone_at = time.monotonic()
        await rig.sidecar()
        await rig.shown(lambda seen: seen.sessions == 1)
        back_at = time.monotonic()
    tell("upgraded", pressure)

    assert gone_at - asked_at < 8.0
    assert pressure.served(asked_at, back_at) >= 10
    assert pressure.ratio <= 1.1
    assert not [a for a in pressure.since(asked_at) if a.ending in (Ending.FAILED, Ending.INVALID)]
    await nothing_is_left(rig)


def children(pid: int) -> list[int]:
    """Processes started by a process."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


async def restarts(rig: Rig) -> float:
    """How often telemetry was started again, as Prometheus is told."""
    page = (await rig.get("/metrics"))[1]
    lines = [line for line in page.splitlines() if 'name="process_restarts"' in line]
    return metric("\n".join(lines), "tidegate_telemetry_total")


async def test_a_telemetry_process_that_dies_is_named_and_replaced_and_the_limit_holds(rig: Rig) -> None:
    """Decisions need no measurements from it: they go on, the limit stands, and people see why it is blind."""
    await began(rig)
    before = await rig.shown(lambda seen: target_of(seen).HasField("engine_running"))
    [telemetry] = children(rig.stage.pid("sidecar"))
    os.kill(telemetry, signal.SIGKILL)
    async with asyncio.timeout(20):
        while "killed by signal 9; it starts again" not in rig.log():
            await asyncio.sleep(0.02)
    during = await rig.snapshot()
    async with rig.asking() as stub:
        decision = await acquire(stub)
        assert await release(stub, decision.lease)
    assert target_of(during).limit_tokens == target_of(before).limit_tokens
    assert (await rig.get("/readyz"))[0] == 200

    async with asyncio.timeout(30):
        while not await restarts(rig):
            await asyncio.sleep(0.1)
    again = await rig.shown(
        lambda seen: (
            not any("killed by signal" in line for line in seen.warnings)
            and any(s.name == "running" and s.state == "fresh" for s in seen.signals)
        )
    )
    assert target_of(again).limit_tokens == target_of(before).limit_tokens
    [successor] = children(rig.stage.pid("sidecar"))
    assert successor != telemetry
    await nothing_is_left(rig)


async def test_an_engine_that_dies_leaves_no_permit_and_its_successor_is_served(rig: Rig) -> None:
    """The middleware dies with it: nobody says goodbye, and the next process begins as a new client."""
    await began(rig)
    async with pressing(rig, 3.0):
        await rig.shown(lambda seen: target_of(seen).in_flight >= REQUESTS - 1)
        await rig.end("engine")
    await rig.empties(15)
    await rig.engine("--engine", ENGINE, TIDEGATE_DECISION_TIMEOUT_MS="1000")
    status = 0
    async with asyncio.timeout(20):
        while status != 200:
            status, _, _ = await rig.post({"model": "standin", "prompt": " tok", "max_tokens": 2})
            await asyncio.sleep(0.2)
    await nothing_is_left(rig)


async def test_an_engine_that_fails_under_load_closes_the_target_and_opens_it_again(rig: Rig) -> None:
    """503 with OUTAGE and a Retry-After instead of a queue in front of nothing; a good reading opens it."""
    await began(rig)
    async with pressing(rig, 14.0) as pressure:
        await rig.shown(lambda seen: target_of(seen).in_flight >= REQUESTS - 1)
        failed_at = time.monotonic()
        await rig.steer(down_s=4.0)
        closed = await rig.shown(lambda seen: target_of(seen).engine_state == "outage")
        await rig.shown(lambda seen: target_of(seen).engine_state in ("reopening", "up"))
        open_at = time.monotonic()
    refused = [a for a in pressure.since(failed_at) if (a.status, a.reason) == (503, "OUTAGE")]

    assert refused
    assert all((attempt.retry_after_s or 0) >= 1 for attempt in refused)
    assert [change.new for change in target_of(closed).changes if change.what == "engine"][-1] == "outage"
    assert pressure.served(open_at, time.monotonic()) >= 5
    assert pressure.ratio <= 1.1
    await nothing_is_left(rig)
