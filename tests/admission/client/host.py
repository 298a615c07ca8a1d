"""An ASGI application and a caller in memory, around the middleware under test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from admission.client.aio import AsyncClient
from admission.client.asgi import AdmissionMiddleware
from tests.admission.client.sidecar import MemoryCarrier, MemorySidecar, Policy, admit

Event = MutableMapping[str, Any]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


@dataclass
class Engine:
    """What is guarded. `script` answers; by default it streams three tokens."""

    script: Callable[[Any, Any, Any], Awaitable[None]] | None = None
    bodies: list[bytes] = field(default_factory=list)
    scopes: list[Any] = field(default_factory=list)
    running: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.running += 1
        try:
            await (self.script or self.stream)(scope, receive, send)
        finally:
            self.running -= 1

    async def read(self, receive: Any) -> bytes:
        """The whole request body, as an application reads it."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the caller left")
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        return body

    async def stream(self, scope: Any, receive: Any, send: Any) -> None:
        """Three tokens, usage, the end."""
        await self.read(receive)
        await start(send, 200, b"text/event-stream; charset=utf-8")
        await say(send, chunk({"role": "assistant", "content": ""}))
        for _ in range(3):
            await say(send, chunk({"content": "x"}))
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
        await say(send, b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await say(send, b"data: [DONE]\n\n", more=False)


async def start(send: Any, status: int, content_type: bytes) -> None:
    """The head of an answer."""
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]}
    )


async def say(send: Any, body: bytes, *, more: bool = True) -> None:
    """A part of an answer."""
    await send({"type": "http.response.body", "body": body, "more_body": more})


def chunk(delta: dict[str, Any]) -> bytes:
    """One chat chunk."""
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


class Caller:
    """One HTTP request. `leave` disconnects."""

    def __init__(
        self,
        body: bytes | list[bytes],
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: dict[str, str] | None = None,
        **scope: Any,
    ) -> None:
        parts = body if isinstance(body, list) else [body]
        self.scope: Event = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            **scope,
        }
        self.sent: list[Event] = []
        self.reads = 0
        self._inbound: asyncio.Queue[Event] = asyncio.Queue()
        for index, part in enumerate(parts):
            more = index < len(parts) - 1
            self._inbound.put_nowait({"type": "http.request", "body": part, "more_body": more})

    async def receive(self) -> Event:
        """For the server side."""
        self.reads += 1
        return await self._inbound.get()

    async def send(self, message: Event) -> None:
        """From the server side."""
        self.sent.append(message)

    def leave(self) -> None:
        """Disconnects."""
        self._inbound.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """Of the answer."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """Of the answer."""
        return b"".join(message.get("body", b"") for message in self.sent)

    def json(self) -> Any:
        """The answer's body."""
        return json.loads(self.body)


class Guarded:
    """The middleware around an engine, with a sidecar in memory."""

    def __init__(self, engine: Any = None, policy: Policy = admit, **settings: Any) -> None:
        self.engine = engine if engine is not None else Engine()
        self.sidecar = MemorySidecar(policy)
        self.carrier = MemoryCarrier(self.sidecar)
        self.app = AdmissionMiddleware(self.engine, **settings)
        self.app.client = AsyncClient(self.app.client.settings, carrier=self.carrier)

    async def call(self, caller: Caller) -> Caller:
        """Serves one request to its end."""
        await self.app(caller.scope, caller.receive, caller.send)
        return caller

    async def post(self, body: Any = None, path: str = "/v1/chat/completions", **more: Any) -> Caller:
        """Serves one JSON request."""
        return await self.call(Caller(json.dumps(CHAT if body is None else body).encode(), path, **more))

    async def settle(self) -> None:
        """Lets everything that was sent arrive."""
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def stats(self) -> dict[str, Any]:
        """Of the client."""
        return self.app.client.stats()
