"""A scripted sidecar behind real gRPC on loopback, in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from admission.client.aio import AsyncClient
from admission.client.settings import ClientSettings
from admission.client.transport import METHOD
from admission.v1.admission_service_pb2 import SessionRequest, SessionResponse
from tests.admission.client.sidecar import MemorySidecar, Policy, admit


class ScriptedSidecar(grpc.GenericRpcHandler):
    """Serves Session as the sidecar in memory decides. `hang` reads and says nothing."""

    def __init__(self, policy: Policy = admit) -> None:
        self.books = MemorySidecar(policy)
        self.hang = False
        self.metadata: list[dict[str, Any]] = []
        self.port = 0
        self._server: grpc.aio.Server | None = None

    def service(self, details: Any) -> Any:
        """What gRPC asks for."""
        if details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._session,
            request_deserializer=SessionRequest.FromString,
            response_serializer=SessionResponse.SerializeToString,
        )

    async def _session(self, requests: Any, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        async for message in requests:
            if not self.hang:
                answer = self.books.apply(message)
                if answer.seq:
                    await context.write(answer)

    async def start(self, address: str = "127.0.0.1:0", credentials: Any = None) -> ScriptedSidecar:
        """Listens; the port is in `port`."""
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Breaks every stream."""
        if self._server is not None:
            await self._server.stop(None)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"


class Stage:
    """Sidecars and clients of one test, closed at its end whatever happens."""

    def __init__(self) -> None:
        self._sidecars: list[ScriptedSidecar] = []
        self._clients: list[AsyncClient] = []

    async def sidecar(
        self,
        policy: Policy = admit,
        *,
        address: str = "127.0.0.1:0",
        credentials: Any = None,
        boot: bytes = b"boot-1",
    ) -> ScriptedSidecar:
        """One that listens."""
        sidecar = ScriptedSidecar(policy)
        sidecar.books.boot = boot
        self._sidecars.append(sidecar)
        return await sidecar.start(address, credentials)

    def client(self, address: str, **settings: Any) -> AsyncClient:
        """One that has not connected yet."""
        client = AsyncClient(ClientSettings(address=address, **settings))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Ends all."""
        for client in self._clients:
            await client.close()
        for sidecar in self._sidecars:
            await sidecar.stop()


async def until(condition: Any, seconds: float = 10.0) -> None:
    """Waits for a condition on the real clock; fails when it does not come."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
