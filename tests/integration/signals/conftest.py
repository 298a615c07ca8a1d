"""A sidecar and a stand-in as processes, and a caller that tells the sidecar no more than it must."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest_asyncio

from admission.client.aio import AsyncClient
from admission.client.settings import ClientSettings
from admission.simulation.demo.stage import Stage
from admission.simulation.exchange import Attempt, Ending, Request, exchange
from admission.simulation.load import LoadConfig, body
from admission.simulation.traces import Arrival, poisson
from admission.v1 import control_service_pb2, monitor_service_pb2
from admission.v1.control_service_pb2_grpc import ControlServiceStub
from admission.v1.monitor_service_pb2 import TargetSnapshot
from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub
from admission.v1.types_pb2 import MODE_ENFORCE, Ticket
from admission.vocabulary import Outcome

if TYPE_CHECKING:
    from admission.v1.control_service_pb2_grpc import ControlServiceAsyncStub
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceAsyncStub

ENGINE = "pro6000x2-qwen3-32b"
PROMPT, OUTPUT = 100, 40


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Rig:
    """One stand-in, one sidecar, and what was seen of them."""

    stage: Stage
    folder: Path
    engine_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)
    otlp_port: int = field(default_factory=free_port)
    _channel: grpc.aio.Channel | None = None

    async def start(self, mode: str, *, scrape: bool, spans: bool, middleware: bool) -> None:
        """Bring both up with only the inputs that were named."""
        config = self.folder / "tidegate.yaml"
        config.write_text(json.dumps(self._config(mode, scrape, spans)))
        command = [sys.executable, "-m", "admission.cli", "serve", "--config", str(config)]
        self.stage.start("sidecar", command)
        await self.stage.wait_for_port("sidecar", self.grpc_port)
        options = ["--engine", ENGINE, "--port", str(self.engine_port)]
        options += ["--otlp-traces-endpoint", f"http://127.0.0.1:{self.otlp_port}"] if spans else []
        options += ["--middleware", "admission.client.asgi.AdmissionMiddleware"] if middleware else []
        environment = {"OTEL_BSP_SCHEDULE_DELAY": "200", "TIDEGATE_ADDRESS": f"127.0.0.1:{self.grpc_port}"}
        self.stage.start(
            "engine", [sys.executable, "-m", "admission.simulation.standin", *options], environment
        )
        await self.stage.wait_for_port("engine", self.engine_port)
        self._channel = grpc.aio.insecure_channel(f"unix:{self.folder / 'control.sock'}")

    def _config(self, mode: str, scrape: bool, spans: bool) -> dict[str, Any]:
        urls = [f"http://127.0.0.1:{self.engine_port}/metrics"] if scrape else []
        otlp = f"127.0.0.1:{self.otlp_port}" if spans else ""
        return {
            "state_dir": str(self.folder / "state"),
            "listen": {
                "grpc": [f"127.0.0.1:{self.grpc_port}"],
                "control": f"unix:{self.folder / 'control.sock'}",
                "http": "",
            },
            "telemetry": {"otlp_grpc": otlp, "otlp_http": "", "nvml": False},
            "targets": [{"name": "default", "mode": mode, "metrics_urls": urls}],
        }

    @property
    def channel(self) -> grpc.aio.Channel:
        """The way to monitor and control."""
        assert self._channel is not None, "start first"
        return self._channel

    async def target(self) -> TargetSnapshot:
        """The target as the sidecar shows it."""
        monitor = cast("MonitorServiceAsyncStub", MonitorServiceStub(self.channel))
        answer = await monitor.GetSnapshot(monitor_service_pb2.GetSnapshotRequest())
        return answer.snapshot.targets[0]

    async def enforce(self) -> None:
        """Switch the target to enforce, as an operator does."""
        control = cast("ControlServiceAsyncStub", ControlServiceStub(self.channel))
        await control.SetMode(control_service_pb2.SetModeRequest(mode=MODE_ENFORCE))

    async def slow(self, factor: float) -> None:
        """Slow the engine."""

        def send() -> None:
            wish = json.dumps({"slow": factor}).encode()
            urllib.request.urlopen(f"http://127.0.0.1:{self.engine_port}/standin", wish, timeout=5).close()

        await asyncio.to_thread(send)

    async def close(self) -> None:
        """End both."""
        if self._channel is not None:
            await self._channel.close()
        await self.stage.stop()


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Everything that a test starts ends with it."""
    found = Rig(Stage(tmp_path), tmp_path)
    yield found
    await found.close()


class QuietCaller:
    """Asks for a permit, runs the request and gives the permit back without a word on how it went.

    What the sidecar then knows of the engine's speed comes from the engine's own signals, or from nowhere.
    """

    def __init__(self, rig: Rig) -> None:
        self.client = AsyncClient(ClientSettings(address=f"127.0.0.1:{rig.grpc_port}"))
        self._port = rig.engine_port

    async def call(self, arrival: Arrival) -> Attempt | None:
        """One request; None when it was refused."""
        permit = await self.client.acquire(
            Ticket(model="standin", prompt_tokens=arrival.prompt_tokens, stream=True)
        )
        try:
            return await send(self._port, arrival) if permit.admitted else None
        finally:
            permit.finish(Outcome.OK)


async def send(port: int, arrival: Arrival) -> Attempt:
    """One streamed request to the stand-in."""
    headers = (("x-standin-output-tokens", str(arrival.output_tokens)),)
    return await exchange(
        "127.0.0.1", port, Request("/v1/completions", body(LoadConfig(), arrival.prompt_tokens, 512), headers)
    )


def arrivals(rate_per_s: float, seconds: float) -> list[Arrival]:
    """A steady Poisson stream of short prompts and answers."""
    return poisson(rate_per_s, seconds, [(PROMPT, OUTPUT)], Random(3))


def refused(attempts: list[Attempt | None]) -> int:
    """How many did not run."""
    return sum(attempt is None or attempt.ending is Ending.REFUSED for attempt in attempts)
