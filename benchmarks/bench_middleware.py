"""What the middleware costs a server: CPU microseconds per request and per streamed chunk, against the bare application.

The sidecar is scripted, in this process and without sockets, so that only the middleware and the client are measured;
`over gRPC` adds a real stream on loopback with the sidecar in a child process. As a script it is that child.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from admission.client.aio import AsyncClient
from admission.client.asgi import AdmissionMiddleware
from admission.client.settings import ClientSettings
from admission.v1.admission_service_pb2 import SessionRequest, SessionResponse
from admission.v1.types_pb2 import Decision
from benchmarks.result import Result

REQUESTS, CHUNKS, ROUNDS = 200, 400, 9
BODY = json.dumps(
    {
        "model": "m",
        "stream": True,
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "hello " * 300}],
    }
).encode()
CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
LAST = {"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False}
PART = {"type": "http.response.body", "body": CHUNK, "more_body": True}
_BARS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "us_per_chunk": ("<= 5", lambda value: value <= 5),
    "us_per_unguarded_request": ("<= 2", lambda value: value <= 2),
}
_ADMITTED = Decision.FromString(b"\x10\x01")
Call = Callable[[Any, Any, Any], Awaitable[None]]


def application(chunks: int) -> Call:
    """Streams that many chunks and does nothing else."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(HEAD)
        for _ in range(chunks):
            await send(PART)
        await send(LAST)

    return app


class Instant:
    """A carrier whose sidecar admits everything in the same turn of the loop."""

    def __init__(self, _settings: ClientSettings) -> None:
        self._answers: asyncio.Queue[SessionResponse] = asyncio.Queue()

    def stream(self) -> Any:
        """Opens the one stream."""
        return self

    async def read(self) -> SessionResponse:
        """The next answer."""
        return await self._answers.get()

    async def write(self, message: SessionRequest) -> None:
        """Admits."""
        answer = SessionResponse(seq=1)
        if message.HasField("hello"):
            answer.welcome.boot = b"b"
        for ticket in message.acquires:
            answer.decisions.add(no=ticket.no).MergeFrom(_ADMITTED)
        self._answers.put_nowait(answer)

    async def done_writing(self) -> None:
        """Nothing to close."""

    def cancel(self) -> None:
        """Nothing to end."""

    async def close(self) -> None:
        """Nothing to close."""


async def serve(app: Call, requests: int, path: str = "/v1/chat/completions") -> float:
    """Microseconds of this process's CPU time per request, one after another."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-type", b"application/json")],
    }

    async def send(_message: Any) -> None:
        return None

    began = time.process_time()
    for _ in range(requests):
        sent = False

        async def receive() -> Any:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": BODY, "more_body": False}
            return await asyncio.Event().wait()

        await app(dict(scope), receive, send)
    return (time.process_time() - began) / requests * 1e6


def guarded(app: Call, carrier: Any, **settings: Any) -> AdmissionMiddleware:
    """The middleware around an application, with a carrier of ours."""
    middleware = AdmissionMiddleware(app, **settings)
    if carrier is not None:
        middleware.client = AsyncClient(middleware.client.settings, carrier=carrier)
    return middleware


async def measure(carrier: Any, **settings: Any) -> dict[str, float]:
    """Medians over rounds, bare and guarded taking turns; what is left is the middleware's."""
    short, long = application(1), application(CHUNKS)
    rows: dict[str, list[float]] = {
        name: [] for name in ("bare_1", "bare_n", "guarded_1", "guarded_n", "passed_1")
    }
    one, many = guarded(short, carrier, **settings), guarded(long, carrier, **settings)
    for _ in range(ROUNDS):
        rows["bare_1"].append(await serve(short, REQUESTS))
        rows["guarded_1"].append(await serve(one, REQUESTS))
        rows["passed_1"].append(await serve(one, REQUESTS, "/tokenize"))
        rows["bare_n"].append(await serve(long, REQUESTS // 4))
        rows["guarded_n"].append(await serve(many, REQUESTS // 4))
    middle = {name: statistics.median(values) for name, values in rows.items()}
    await one.client.close()
    await many.client.close()
    per_chunk = (middle["guarded_n"] - middle["bare_n"] - middle["guarded_1"] + middle["bare_1"]) / (
        CHUNKS - 1
    )
    return {
        "us_per_request": middle["guarded_1"] - middle["bare_1"],
        "us_per_chunk": per_chunk,
        "us_per_unguarded_request": middle["passed_1"] - middle["bare_1"],
    }


async def sidecar() -> None:
    """A sidecar that admits everything, over real gRPC; ends with its standard input."""
    import grpc.aio

    async def session(requests: Any, context: Any) -> None:
        instant = Instant(ClientSettings())
        async for message in requests:
            await instant.write(message)
            await context.write(await instant.read())

    handler = grpc.stream_stream_rpc_method_handler(
        session,
        request_deserializer=SessionRequest.FromString,
        response_serializer=SessionResponse.SerializeToString,
    )
    server = grpc.aio.server()
    service = grpc.method_handlers_generic_handler("admission.v1.AdmissionService", {"Session": handler})
    server.add_generic_rpc_handlers((service,))
    bound = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(bound, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


async def main() -> dict[str, dict[str, float]]:
    """All carriers."""
    results = {"in memory": await measure(Instant)}
    results["off"] = await measure(None, off=True)
    with subprocess.Popen(  # noqa: ASYNC220 - before anything else runs
        [sys.executable, "-m", "benchmarks.bench_middleware"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        results["over gRPC"] = await measure(None, address=f"127.0.0.1:{int(child.stdout.readline())}")
        child.stdin.close()  # type: ignore[union-attr]
    return results


def run() -> Iterator[Result]:
    """Per carrier: in memory (middleware and client alone), off, and a real stream to a process of its own."""
    for carrier, row in asyncio.run(main()).items():
        for name, value in row.items():
            bar, reached = _BARS.get(name, ("", None))
            met = reached(value) if reached is not None else None
            yield Result(f"middleware, sidecar {carrier}: {name}", value, "us CPU", bar, met)


if __name__ == "__main__":
    asyncio.run(sidecar())
