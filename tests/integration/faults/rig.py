"""A real `tidegate serve` with its telemetry process, and the stand-in behind real middleware, to break on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc.aio

from admission.simulation.demo.stage import Stage
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words
from admission.v1.admission_service_pb2_grpc import AdmissionServiceStub
from admission.v1.monitor_service_pb2 import GetSnapshotRequest, Snapshot, TargetSnapshot
from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub

if TYPE_CHECKING:
    from admission.v1.admission_service_pb2_grpc import AdmissionServiceAsyncStub
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceAsyncStub

MIDDLEWARE = "admission.client.asgi.AdmissionMiddleware"


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Rig:
    """One sidecar and at most one engine. `target` and `sections` are what its configuration says beyond the ports."""

    stage: Stage
    folder: Path
    target: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    state_dir: str = ""
    grpc_port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    otlp_port: int = field(default_factory=free_port)
    engine_port: int = field(default_factory=free_port)

    def document(self) -> dict[str, Any]:
        """The whole configuration, as JSON, which is YAML."""
        telemetry = {"otlp_grpc": f"127.0.0.1:{self.otlp_port}", "otlp_http": "", "nvml": False}
        return {
            "state_dir": self.state_dir or str(self.folder / "state"),
            "listen": {
                "grpc": [f"127.0.0.1:{self.grpc_port}"],
                "control": f"unix:{self.folder / 'control.sock'}",
                "http": f"127.0.0.1:{self.http_port}",
            },
            # These tests are about other faults than a machine without CPU time to spare.
            "server": {"overload": {"behind_s": 5.0}},
            **self.sections,
            "telemetry": telemetry | self.sections.get("telemetry", {}),
            "targets": [{"name": "default", "mode": "enforce", "metrics_urls": []} | self.target],
        }

    # ---- processes

    async def sidecar(self) -> None:
        """Starts it, or starts it again with its state, and waits until it serves."""
        config = self.folder / "tidegate.yaml"
        config.write_text(json.dumps(self.document()))
        command = [sys.executable, "-m", "admission.cli", "serve", "--config", str(config)]
        self.stage.start("sidecar", command, self.environment)
        await self.stage.wait_for_port("sidecar", self.grpc_port)
        async with asyncio.timeout(20):
            while (await self.get("/readyz"))[0] != 200:
                self.stage.check("sidecar")
                await asyncio.sleep(0.05)

    async def engine(self, *options: str, **environment: str) -> None:
        """Starts the stand-in behind the middleware."""
        command = [sys.executable, "-m", "admission.simulation.standin", "--port", str(self.engine_port)]
        command += ["--middleware", MIDDLEWARE, *options]
        address = {"TIDEGATE_ADDRESS": f"127.0.0.1:{self.grpc_port}"}
        self.stage.start("engine", command, address | environment)
        await self.stage.wait_for_port("engine", self.engine_port)

    async def end(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        """Signals the leader of a process group and waits until it is gone; what it leaves behind must go alone."""
        pid = self.stage.pid(name)
        os.kill(pid, by)
        async with asyncio.timeout(20):
            while not _is_zombie(pid):
                await asyncio.sleep(0.02)
        await self.stage.stop(name)

    def log(self, name: str = "sidecar") -> str:
        """Everything that a process said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # ---- asking

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[AdmissionServiceAsyncStub]:
        """A caller of the admission service."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            yield cast("AdmissionServiceAsyncStub", AdmissionServiceStub(channel))

    async def snapshot(self) -> Snapshot:
        """Everything that the sidecar shows."""
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'control.sock'}") as channel:
            stub = cast("MonitorServiceAsyncStub", MonitorServiceStub(channel))
            return (await stub.GetSnapshot(GetSnapshotRequest(), timeout=5)).snapshot

    async def shown(self, wanted: Callable[[Snapshot], object], within_s: float = 20.0) -> Snapshot:
        """The first snapshot that is wanted; fails with the last one when none comes."""
        until = time.monotonic() + within_s
        while not wanted(seen := await self.snapshot()):
            assert time.monotonic() < until, f"{seen}\n{self.log()[-2000:]}"
            await asyncio.sleep(0.05)
        return seen

    async def empties(self, within_s: float = 20.0) -> None:
        """No permit is held and nobody waits."""
        await self.shown(lambda seen: not (target_of(seen).in_flight or target_of(seen).queued), within_s)

    async def get(self, path: str, port: int = 0) -> tuple[int, str]:
        """Status and body of a GET; status 0 when nobody listens."""
        return await self.http(port or self.http_port, path)

    async def post(self, body: Mapping[str, Any]) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of a completion asked of the engine through the middleware."""
        url = f"http://127.0.0.1:{self.engine_port}/v1/completions"
        return await asyncio.to_thread(_fetch, url, json.dumps(body).encode())

    async def http(self, port: int, path: str) -> tuple[int, str]:
        """Status and body of a GET on a port."""
        status, _, body = await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}{path}", None)
        return status, body

    async def steer(self, **fortune: float) -> None:
        """Changes the engine's fortune."""
        url = f"http://127.0.0.1:{self.engine_port}/standin"
        status, _, _ = await asyncio.to_thread(_fetch, url, json.dumps(fortune).encode())
        assert status == 200

    async def engine_state(self) -> dict[str, Any]:
        """What the engine says of itself, on a path that is not guarded."""
        status, text = await self.http(self.engine_port, "/standin")
        found: dict[str, Any] = json.loads(text) if status == 200 else {}
        return found


def ticket(**values: Any) -> words.Ticket:
    """A small streaming request."""
    return words.Ticket(
        **{"model": "m", "stream": True, "prompt_tokens": 100, "max_tokens": 50} | values  # type: ignore[arg-type]
    )


async def acquire(stub: AdmissionServiceAsyncStub, **values: Any) -> words.Decision:
    """The decision about one ticket."""
    answer = await stub.Acquire(wire.AcquireRequest(ticket=ticket(**values)), timeout=5)
    return answer.decision


async def release(stub: AdmissionServiceAsyncStub, lease: bytes) -> bool:
    """Gives a permit back as served; whether it was known."""
    finish = words.Finish(outcome=words.OUTCOME_OK, prompt_tokens=100, output_tokens=20)
    finish.ttft.FromMilliseconds(50)
    finish.decode.FromMilliseconds(400)
    answer = await stub.Release(wire.ReleaseRequest(lease=lease, finish=finish), timeout=5)
    return answer.known


def target_of(snapshot: Snapshot, name: str = "default") -> TargetSnapshot:
    """One target of a snapshot."""
    return next(target for target in snapshot.targets if target.name == name)


def counted(target: TargetSnapshot, verdict: int, reason: int = 0) -> int:
    """Decisions of a kind since the start, over all classes."""
    return sum(
        count.total
        for each in target.classes
        for count in each.counts
        if (count.verdict, count.reason) == (verdict, reason)
    )


def metric(text: str, name: str) -> float:
    """The sum of a Prometheus series over its labels."""
    lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _fetch(url: str, body: bytes | None) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()
    except OSError:
        return 0, {}, ""


def _is_zombie(pid: int) -> bool:
    """Whether a child of ours has ended; the stage reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
