"""A server on real sockets for a test, in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from admission.core.controller import ControllerConfig
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import JournalConfig, ListenerConfig, ServerConfig
from admission.server.service import TidegateServer
from admission.v1 import (
    admission_service_pb2_grpc,
    control_service_pb2,
    control_service_pb2_grpc,
    monitor_service_pb2,
    monitor_service_pb2_grpc,
)
from tests.admission.server.desk import config, wire

# One stub class serves channels with and without asyncio, which its types do not tell apart.
AdmissionServiceStub: Any = admission_service_pb2_grpc.AdmissionServiceStub
ControlServiceStub: Any = control_service_pb2_grpc.ControlServiceStub
MonitorServiceStub: Any = monitor_service_pb2_grpc.MonitorServiceStub
monitor: Any = monitor_service_pb2
control: Any = control_service_pb2

ANY_PORT = (ListenerConfig(address="127.0.0.1:0"),)


@dataclass
class Running:
    """A server and its parts."""

    host: Host
    server: TidegateServer
    journal: Journal
    folder: Path

    @property
    def address(self) -> str:
        """Where clients ask."""
        return self.server.addresses[0]

    @property
    def in_flight(self) -> int:
        """By the core's count."""
        return self.host.view(self.host.targets[0]).in_flight

    @property
    def queued(self) -> int:
        """By the core's count."""
        return self.host.view(self.host.targets[0]).queued


@asynccontextmanager
async def running(
    folder: Path, server: ServerConfig | None = None, core: ControllerConfig | None = None, **more: Any
) -> AsyncIterator[Running]:
    """Started, with a journal, and stopped at the end."""
    host = Host([TargetSpec(config=core or config())])
    host.start()
    journal = Journal(folder / "journal", JournalConfig(), lambda _: None)
    journal.start(host.controllers)
    host.record_to(journal)
    made = TidegateServer(
        host, server or ServerConfig(listeners=ANY_PORT), runtime_dir=folder, version="test", **more
    )
    await made.start()
    try:
        yield Running(host, made, journal, folder)
    finally:
        await made.stop(0.0)
        host.stop()
        journal.close()


@asynccontextmanager
async def asking(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Any]:
    """A client's stub."""
    async with channel(address, credentials) as opened:
        yield AdmissionServiceStub(opened)


@asynccontextmanager
async def operating(address: str) -> AsyncIterator[tuple[Any, Any]]:
    """Monitor and control."""
    async with channel(address) as opened:
        yield MonitorServiceStub(opened), ControlServiceStub(opened)


def channel(address: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    """Not shared with any other channel, so that each is a connection of its own."""
    options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    options.append(("grpc.ssl_target_name_override", "sidecar.test"))
    return grpc.aio.secure_channel(address, credentials, options=options)


async def hello(stub: Any, identity: bytes | None = None, attach: int = 1, **more: Any) -> Any:
    """An attached stream, its welcome read."""
    stream = stub.Session()
    said = wire.Hello(session=identity or os.urandom(16), attach=attach, client="test")
    await stream.write(wire.SessionRequest(hello=said, **more))
    welcome = await stream.read()
    assert welcome.HasField("welcome")
    return stream


async def eventually(true: Callable[[], bool], within_s: float = 5.0) -> None:
    """Waits until it is so."""
    for _ in range(int(within_s / 0.01)):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {within_s} s")
