"""The telemetry process: it comes back when it dies, dies when it is left alone, and stays small."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from telemetry.config import TargetBinding
from tests.integration.telemetry.harness import alive, resident_bytes, running
from tests.integration.telemetry.test_exporters import grpc_exporter, send_requests

pytestmark = pytest.mark.integration


async def test_a_killed_process_is_shown_and_started_again() -> None:
    """Nothing fresh meanwhile, the reason in the view; then it works as before."""
    targets = (TargetBinding(metrics_urls=("http://127.0.0.1:9/metrics",)),)
    async with running(targets=targets) as (telemetry, sink):
        await sink.until(lambda: any(s.state == "fresh" for s in sink.last.signals))
        first = telemetry.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await sink.until(lambda: any("killed by signal 9" in line for line in sink.last.warnings))
        assert sink.last.ports == {}
        assert {s.state for s in sink.last.signals if s.age_s is not None} == {"stale"}
        await sink.until(lambda: sink.last.counters.get("process_restarts") == 1)
        assert telemetry.pid not in {None, first}
        await sink.ports()


async def test_stop_ends_the_process() -> None:
    """And leaves no zombie."""
    async with running() as (telemetry, sink):
        await sink.ports()
        pid = telemetry.pid
    assert pid is not None
    assert not alive(pid)


PARENT = """
import asyncio
from tests.integration.telemetry.harness import QUIET, Sink
from telemetry.process import Telemetry

async def main():
    sink = Sink()
    telemetry = Telemetry(QUIET, sink)
    await telemetry.start()
    await sink.ports()
    print(telemetry.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_the_process_ends_when_its_parent_is_killed() -> None:
    """A sidecar that was killed must leave no port taken for the next one."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    with parent:
        assert parent.stdout is not None
        child = int(await asyncio.to_thread(parent.stdout.readline))
        assert alive(child)
        parent.kill()
        async with asyncio.timeout(10):
            while alive(child):
                await asyncio.sleep(0.05)


async def test_both_ways_to_run_give_the_same_samples() -> None:
    """In slices on the loop there is no process, and everything else is the same."""
    seen = []
    for in_process in (False, True):
        async with running(in_process=in_process) as (telemetry, sink):
            exporter = grpc_exporter(*await sink.ports())
            await asyncio.to_thread(send_requests, exporter)
            await sink.until(lambda: len(sink.samples) >= 700)
            assert (telemetry.pid is None) == in_process
            seen.append(sorted((s.request_key, s.ttft_s, s.output_tokens) for s in sink.samples))
    assert seen[0] == seen[1]


async def test_the_process_is_small() -> None:
    """Both processes together have 180 MB; this one, with all receivers and after work, takes under 90."""
    async with running(targets=(TargetBinding(),), nvml=True) as (telemetry, sink):
        exporter = grpc_exporter(*await sink.ports())
        await asyncio.to_thread(send_requests, exporter)
        await sink.until(lambda: len(sink.samples) >= 700)
        assert telemetry.pid is not None
        assert resident_bytes(telemetry.pid) < 90e6
