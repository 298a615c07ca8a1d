"""Two thousand open event streams through the middleware onto the stand-in at three times its load, and what breaks it.

Shadow, so that every stream has a permit and all stay open. Four runs: as it is, 200 ms of added latency to the
sidecar, the engine killed (and the middleware with it), the sidecar killed and started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import grpc

from admission.simulation.demo.stage import Stage
from admission.simulation.load import Load, LoadConfig
from admission.simulation.traces import poisson
from admission.v1.monitor_service_pb2 import GetSnapshotRequest, Snapshot
from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub
from benchmarks.result import Result

if TYPE_CHECKING:
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceAsyncStub

ENGINE = "h100-llama3-8b"
STREAMS = 2_000
RATE_PER_S, PROMPT, OUTPUT = 130.0, 300, 200
"""About 43 such requests a second keep 256 sequences busy on this engine, so this is three times its load."""
LOAD_S = 40.0
SETTLE_S = 45.0
MEMORY_MIB = 180.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Rig:
    """The processes of one run, and the worst that was seen of them."""

    stage: Stage
    folder: Path
    latency_s: float
    engine_port: int = field(default_factory=_free_port)
    grpc_port: int = field(default_factory=_free_port)
    link_port: int = field(default_factory=_free_port)
    pid: int = 0
    peak_open: int = 0
    peak_held: int = 0
    memory_mib: float = 0.0
    decision_p99_s: float = 0.0
    left: int = -1

    async def start(self) -> None:
        """Bring the sidecar and the stand-in up."""
        await self.start_sidecar()
        command = [sys.executable, "-m", "admission.simulation.standin", "--port", str(self.engine_port)]
        command += ["--engine", ENGINE, "--middleware", "admission.client.asgi.AdmissionMiddleware"]
        port = self.link_port if self.latency_s else self.grpc_port
        self.stage.start("engine", command, {"TIDEGATE_ADDRESS": f"127.0.0.1:{port}"})
        await self.stage.wait_for_port("engine", self.engine_port)

    async def start_sidecar(self) -> None:
        """Start the sidecar, or start it again with its state."""
        config = self.folder / "tidegate.yaml"
        await asyncio.to_thread(config.write_text, json.dumps(self._document()))
        self.pid = self.stage.start(
            "sidecar", [sys.executable, "-m", "admission.cli", "serve", "--config", str(config)]
        )
        await self.stage.wait_for_port("sidecar", self.grpc_port)

    def _document(self) -> dict[str, Any]:
        control = f"unix:{self.folder / 'control.sock'}"
        listen = {"grpc": [f"127.0.0.1:{self.grpc_port}"], "control": control, "http": ""}
        urls = [f"http://127.0.0.1:{self.engine_port}/metrics"]
        return {
            "state_dir": str(self.folder / "state"),
            "listen": listen,
            "telemetry": {"otlp_grpc": "", "otlp_http": "", "nvml": False},
            "targets": [{"name": "default", "mode": "shadow", "metrics_urls": urls}],
        }

    async def look(self, load: Load) -> None:
        """Note what is open and held, the memory and the decisions, twice a second."""
        while True:
            self.peak_open = max(self.peak_open, load.in_flight)
            self.memory_mib = max(self.memory_mib, _group_mib(self.pid))
            if (snapshot := await self.snapshot()) is not None:
                self.peak_held = max(self.peak_held, snapshot.targets[0].in_flight)
                self.decision_p99_s = max(self.decision_p99_s, snapshot.decision_time.p99)
            await asyncio.sleep(0.5)

    async def snapshot(self) -> Snapshot | None:
        """What the sidecar shows, None while it is away."""
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'control.sock'}") as channel:
            monitor = cast("MonitorServiceAsyncStub", MonitorServiceStub(channel))
            try:
                return (await monitor.GetSnapshot(GetSnapshotRequest(), timeout=2)).snapshot
            except grpc.aio.AioRpcError:
                return None

    async def settle(self) -> None:
        """Wait until the sidecar holds nothing any more; notes what is left."""
        deadline = time.monotonic() + SETTLE_S
        while self.left != 0 and time.monotonic() < deadline:
            snapshot = await self.snapshot()
            if snapshot is not None:
                self.left = snapshot.targets[0].in_flight + snapshot.targets[0].queued
            await asyncio.sleep(0.25)


Fault = Callable[[Rig], Coroutine[Any, Any, None]]


async def _nothing(_: Rig) -> None:
    pass


async def _kill_engine(rig: Rig) -> None:
    os.killpg(rig.stage.pid("engine"), signal.SIGKILL)


async def _kill_sidecar(rig: Rig) -> None:
    os.killpg(rig.pid, signal.SIGKILL)
    await rig.stage.stop("sidecar")
    await asyncio.sleep(1.0)
    await rig.start_sidecar()


def _group_mib(group: int) -> float:
    """Resident memory of a process group, in MiB."""
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                total += int((entry / "statm").read_text().split()[1]) * resource.getpagesize()
        except (ProcessLookupError, FileNotFoundError):
            continue
    return total / 2**20


async def _slow_link(port: int, to_port: int, one_way_s: float) -> asyncio.Server:
    """A wire to the sidecar that holds every byte back for a while."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(65536):
            loop.call_later(one_way_s, writer.write, data)
        loop.call_later(one_way_s, writer.close)

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to_port)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    return await asyncio.start_server(link, "127.0.0.1", port)


async def play(fault: Fault, latency_s: float) -> Rig:
    """One run: load until 2,000 streams are open, the fault, cut every stream, wait for the permits to come back."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
        rig = Rig(Stage(Path(folder)), Path(folder), latency_s)
        link = await _slow_link(rig.link_port, rig.grpc_port, latency_s / 2) if latency_s else None
        try:
            await rig.start()
            arrivals = poisson(RATE_PER_S, LOAD_S, [(PROMPT, OUTPUT)], Random(1))
            load = Load(LoadConfig(port=rig.engine_port, patience_s=600.0), arrivals)
            tasks = [asyncio.create_task(load.run()), asyncio.create_task(rig.look(load))]
            while rig.peak_open < STREAMS and not tasks[0].done():  # noqa: ASYNC110 - nothing tells of a count
                await asyncio.sleep(0.2)
            await fault(rig)
            await asyncio.sleep(3.0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await rig.settle()
        finally:
            if link is not None:
                link.close()
            await rig.stage.stop()
    return rig


def run() -> Iterator[Result]:
    """Streams open at once, permits left behind, p99 of decisions and memory, for each run."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name, fault, latency_s in (
        ("as it is", _nothing, 0.0),
        ("200 ms of latency", _nothing, 0.2),
        ("engine killed", _kill_engine, 0.0),
        ("sidecar killed", _kill_sidecar, 0.0),
    ):
        rig = asyncio.run(play(fault, latency_s))
        yield Result(f"streams, {name}: open at once", rig.peak_open, "", ">= 2000", rig.peak_open >= STREAMS)
        yield Result(f"streams, {name}: permits held at once", rig.peak_held, "")
        yield Result(f"streams, {name}: permits left after all ended", rig.left, "", "0", rig.left == 0)
        yield Result(f"streams, {name}: decisions p99", rig.decision_p99_s, "s")
        met = rig.memory_mib < MEMORY_MIB
        yield Result(f"streams, {name}: sidecar resident", rig.memory_mib, "MiB", "< 180", met)
