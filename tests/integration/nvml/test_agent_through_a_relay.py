"""The agent's metrics through a real relay into the running telemetry process: GPUs of a node far away."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from admission.core.model import Reading
from admission.vocabulary import SignalKind
from telemetry.config import TargetBinding
from tests.integration.nvml.conftest import ROOT
from tests.integration.nvml.test_agent_process import RUN
from tests.integration.telemetry.harness import QUIET, running
from tests.integration.telemetry.test_rotel import ROTEL, relay
from tests.nvml_stub.stub import StubFile, environment

pytestmark = [
    pytest.mark.integration,
    pytest.mark.real,
    pytest.mark.skipif(not ROTEL, reason="TIDEGATE_ROTEL does not name a rotel-agent binary"),
]


async def test_gpus_of_a_node_steer_through_a_collector(library: Path, gpus: StubFile) -> None:
    """Names by semantic convention are what lets any Collector pass them on unread."""
    config = replace(QUIET, targets=(TargetBinding(metrics_urls=(), gpus=("GPU-aaaa",)),))
    async with running(config) as (_, sink):
        grpc_port, _ = await sink.ports()
        async with relay(f"http://127.0.0.1:{grpc_port}", "grpc") as port:
            env = {**environment(library, gpus.path), "PYTHONPATH": str(ROOT)}
            agent = await asyncio.create_subprocess_exec(
                sys.executable, "-c", RUN, f"127.0.0.1:{port}", env=env
            )
            try:
                await sink.until(lambda: free(sink.readings) == (24 << 30) - (512 << 20) - (20 << 30))
                gpus.set({"0.used": 23 << 30})
                await sink.until(lambda: free(sink.readings) == 512 << 20)
                gpus.set({"0.lost": 1})
                await sink.until(lambda: [gpu.state for gpu in sink.last.gpus] == ["lost"])
            finally:
                agent.terminate()
                await agent.wait()


def free(readings: list[Reading]) -> float | None:
    """The newest free bytes."""
    found = [reading.value for reading in readings if reading.kind is SignalKind.VRAM_FREE_BYTES]
    return found[-1] if found else None
