"""An exporter that floods: memory stays bounded, senders are answered, the admission loop does not notice."""

from __future__ import annotations

import asyncio
import sys
import time

import grpc.aio
import pytest

from tests.integration.telemetry.flood import SENDERS, TRACES
from tests.integration.telemetry.harness import resident_bytes, running
from tests.telemetry.golden import VLLM_V1, encode

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FLOOD_S = 6.0


async def lags(until: float) -> list[float]:
    """How late this loop was at each turn, in seconds."""
    found = []
    while time.monotonic() < until:
        due = time.monotonic() + 0.005
        await asyncio.sleep(0.005)
        found.append(time.monotonic() - due)
    return sorted(found)


async def test_a_flood_of_spans_neither_grows_memory_nor_stalls_anybody() -> None:
    """16 senders of half-megabyte batches without a pause; afterwards an honest exporter is heard at once."""
    async with running() as (telemetry, sink):
        port, _ = await sink.ports()
        assert telemetry.pid is not None
        flood = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.telemetry.flood",
            str(port),
            str(FLOOD_S),
            stdout=asyncio.subprocess.PIPE,
        )
        await sink.until(lambda: bool(sink.samples))
        await lags(time.monotonic() + FLOOD_S / 3)
        before = resident_bytes(telemetry.pid)
        lag = await lags(time.monotonic() + FLOOD_S / 3)
        taken, _ = await flood.communicate()
        after = resident_bytes(telemetry.pid)
        assert flood.returncode == 0
        assert int(taken) > SENDERS
        told = len(sink.samples)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            now_ns = time.time_ns()
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TRACES)
            await call(
                encode(VLLM_V1.but(start_ns=now_ns - 3_461_000_000, more={"gen_ai.request.id": "honest"}))
            )
        # The newest is read first, so that what is left of the flood may follow it.
        await sink.until(lambda: any(one.request_key == "honest" for one in sink.samples[told:]))
    assert after < before + 32e6
    assert after < 200e6
    assert lag[int(0.95 * len(lag))] < 0.1
