"""The client against the real sidecar in a process of its own: kill, restart, upgrade."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from admission.client.aio import AsyncClient, Permit
from admission.client.settings import ClientSettings
from admission.v1 import monitor_service_pb2, monitor_service_pb2_grpc
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome
from tests.integration.client.sidecar import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_CONFIG = """
listen: {{grpc: ["127.0.0.1:{port}"], control: "unix:{dir}/control.sock", http: "127.0.0.1:{http}"}}
telemetry: {{otlp_grpc: "", otlp_http: "", nvml: false, in_process: true}}
state_dir: {dir}/state
server: {{drain_s: 3, overload: {{behind_s: 30, recovered_s: 20}}}}
targets:
  - {{name: default, mode: enforce, metrics_urls: ["http://127.0.0.1:9/metrics"]{more}}}
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RealSidecar:
    """`tidegate serve` on ports of its own."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self._directory = directory
        self.port, http = _free_port(), _free_port()
        self._config = directory / "tidegate.yaml"
        self._config.write_text(_CONFIG.format(port=self.port, http=http, dir=directory, more=more))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Runs it and waits until it listens."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "admission.cli", "serve", "-c", str(self._config),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(30):
            while not await self._listens():
                assert self.process.returncode is None, "the sidecar ended"
                await asyncio.sleep(0.05)

    async def end(self, by: signal.Signals) -> None:
        """Ends it by a signal."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(by)
            await self.process.wait()

    async def in_flight(self) -> int:
        """By its own books."""
        async with grpc.aio.insecure_channel(f"unix:{self._directory}/control.sock") as channel:
            stub = monitor_service_pb2_grpc.MonitorServiceStub(channel)
            request = monitor_service_pb2.GetSnapshotRequest()
            answer = await stub.GetSnapshot(request)  # type: ignore[misc]
            return sum(target.in_flight for target in answer.snapshot.targets)

    async def settles_at(self, count: int) -> None:
        """Fails when its books do not come to the count."""
        async with asyncio.timeout(15):
            while await self.in_flight() != count:
                await asyncio.sleep(0.05)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@pytest.fixture
async def sidecar(tmp_path: Path) -> AsyncIterator[RealSidecar]:
    """A running sidecar."""
    sidecar = RealSidecar(tmp_path)
    await sidecar.start()
    yield sidecar
    await sidecar.end(signal.SIGKILL)


@pytest.fixture
async def client(sidecar: RealSidecar) -> AsyncIterator[AsyncClient]:
    """A client of it."""
    settings = ClientSettings(address=f"127.0.0.1:{sidecar.port}", decision_timeout_ms=2000)
    client = AsyncClient(settings)
    yield client
    await client.close()


async def _hold(client: AsyncClient, count: int) -> list[Permit]:
    ticket = {"model": "m", "prompt_bytes": 400, "max_tokens": 50, "stream": True}
    return [await client.permit(Ticket(**ticket)) for _ in range(count)]  # type: ignore[arg-type]


async def test_books_agree_through_a_life(sidecar: RealSidecar, client: AsyncClient) -> None:
    """First tokens, progress, finishes and heartbeats: no resync is ever asked for."""
    permits = await _hold(client, 20)
    await sidecar.settles_at(20)
    for permit in permits:
        permit.first_token()
        permit.chunks(5)
    await asyncio.sleep(1.2)
    for permit in permits:
        permit.finish(Outcome.OK)
    await sidecar.settles_at(0)
    assert client.stats().get("resyncs", 0) == 0


async def test_kill_and_restart_lose_and_invent_nothing(sidecar: RealSidecar, client: AsyncClient) -> None:
    """The successor knows what runs, local admissions included; all is given back in the end."""
    permits = await _hold(client, 5)
    await sidecar.end(signal.SIGKILL)
    permits.pop().finish()
    local = await client.acquire(Ticket(model="m", prompt_bytes=400, max_tokens=50))
    assert local.answer.local
    await sidecar.start()
    await sidecar.settles_at(5)
    assert client.stats()["restarts_seen"] == 1
    for permit in [*permits, local]:
        permit.finish()
    await sidecar.settles_at(0)


async def test_an_upgrade_refuses_nobody(sidecar: RealSidecar, client: AsyncClient) -> None:
    """SIGTERM: requests one after another go on, alone or asked, while it drains and its successor starts."""
    (await _hold(client, 1))[0].finish()
    refused = 0
    done = asyncio.Event()

    async def load() -> None:
        nonlocal refused
        while not done.is_set():
            permit = await client.acquire(Ticket(model="m", prompt_bytes=40, max_tokens=5))
            refused += not permit.admitted
            permit.finish()
            await asyncio.sleep(0.01)

    task = asyncio.create_task(load())
    await sidecar.end(signal.SIGTERM)
    await sidecar.start()
    async with asyncio.timeout(15):
        while client.stats()["attached"] != 2:
            await asyncio.sleep(0.05)
    done.set()
    await task
    assert refused == 0


async def test_a_frozen_sidecar_is_survived(sidecar: RealSidecar, client: AsyncClient) -> None:
    """SIGSTOP: the connection stands and nobody answers. When it wakes, the books agree again."""
    held = await _hold(client, 2)
    assert sidecar.process is not None
    os.kill(sidecar.process.pid, signal.SIGSTOP)
    small = {"model": "m", "prompt_bytes": 4, "max_tokens": 5}
    refused = await asyncio.wait_for(client.acquire(Ticket(**small)), 5)  # type: ignore[arg-type]
    assert not refused.admitted, "as many run as were held when it froze"
    held.pop().finish()
    local = await asyncio.wait_for(client.acquire(Ticket(**small)), 5)  # type: ignore[arg-type]
    assert local.admitted
    assert local.answer.local
    os.kill(sidecar.process.pid, signal.SIGCONT)
    await asyncio.sleep(1.5)
    await sidecar.settles_at(2)
    local.finish()
    held.pop().finish()
    await sidecar.settles_at(0)


async def _queued(client: AsyncClient) -> Permit:
    """One that the sidecar has queued. A busy machine may miss a decision: then it is asked again."""
    big = {"model": "m", "prompt_tokens": 550, "max_tokens": 40, "priority_class": "batch"}
    async with asyncio.timeout(30):
        while True:
            asked = client.ask(Ticket(**big))  # type: ignore[arg-type]
            await until(functools.partial(_answered, asked))
            if asked.queued:
                return asked
            asked.finish()
            await asyncio.sleep(0.1)


def _answered(asked: Permit) -> bool:
    return asked.queued or not asked.pending


async def test_those_that_a_frozen_sidecar_queued_are_not_left_waiting(tmp_path: Path) -> None:
    """Nobody asks meanwhile, so no decision is missed: pings find that it is frozen."""
    sidecar = RealSidecar(tmp_path, ", limit: {algorithm: fixed, limit_tokens: 600}")
    await sidecar.start()
    client = AsyncClient(ClientSettings(address=f"127.0.0.1:{sidecar.port}", decision_timeout_ms=2000))
    try:
        (held,) = await _hold(client, 1)
        queued = await _queued(client)
        assert sidecar.process is not None
        os.kill(sidecar.process.pid, signal.SIGSTOP)
        answer = await asyncio.wait_for(queued.decided(), 60)
        assert answer.local
        held.finish()
    finally:
        await sidecar.end(signal.SIGKILL)
        await client.close()
