"""The ASGI application: routes, streams, disconnects and the control endpoint.

`POST /standin` steers it in tests: {"slow": 3.0}, {"stall_s": 8}, {"down_s": 60}; `GET /standin` tells its state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from admission.simulation.standin.driver import Call, Driver, EngineDownError, EngineFullError, Stream
from admission.simulation.standin.metrics import StandInMetrics
from admission.simulation.standin.settings import StandInConfig
from admission.simulation.standin.spans import Spans
from admission.simulation.standin.wire import OUTPUT_HEADER, BadRequestError, Voice, error_body, parse

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 64 << 20
_JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_FULL = "the engine's limit on queued requests is reached"


class StandIn:
    """An inference server whose engine is a model. Starts and stops with the ASGI lifespan.

    Args:
        config: engine, speed, and how it answers.
    """

    def __init__(self, config: StandInConfig) -> None:
        self.config = config
        self.metrics = StandInMetrics(config.model)
        self.spans = Spans(config.otlp_endpoint, config.model) if config.otlp_endpoint else None
        self.driver = Driver(config, self._finished, self.metrics.stepped)
        self.metrics.driver = self.driver
        self._running: asyncio.Task[None] | None = None
        self._routes: dict[tuple[str, str], Callable[[Scope, Receive, Send], Awaitable[None]]] = {
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._completions,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/standin"): self._state,
            ("POST", "/standin"): self._steer,
        }

    def start(self) -> None:
        """Run the engine on the running event loop."""
        self._running = asyncio.get_running_loop().create_task(self.driver.run())

    async def stop(self) -> None:
        """Stop the engine and send the spans that are left."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            route = self._routes.get((scope["method"], scope["path"]), _not_found)
            if self.driver.down and scope["path"] != "/standin":
                route = _is_down
            await route(scope, receive, send)

    def _finished(self, stream: Stream) -> None:
        self.metrics.finished(stream)
        if self.spans is not None:
            self.spans.finished(stream)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        chat = scope["path"].endswith("/chat/completions")
        name = ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex
        body = await _read(receive)
        if body is None:
            await _error(send, 413, f"the body is over {MAX_BODY_BYTES} bytes", "BadRequestError")
            return
        try:
            ask = parse(
                body, chat=chat, hidden_output=_hidden(headers), context_tokens=self.config.context_tokens
            )
            call = self.driver.submit(name, ask, _trace_headers(headers))
        except BadRequestError as error:
            await _error(send, 400, str(error), "BadRequestError")
        except EngineDownError:
            await _is_down(scope, receive, send)
        except EngineFullError:
            await self._refuse(body, send)
        else:
            await self._serve(call, receive, send)

    async def _serve(self, call: Call, receive: Receive, send: Send) -> None:
        watch = asyncio.get_running_loop().create_task(_watch(receive, call))
        voice = Voice(call.ask, call.id, self.config.model)
        try:
            if call.ask.stream:
                await _stream(call, voice, send)
            else:
                await _whole(call, voice, send)
        except EngineDownError:
            # Returning without the last body message makes the server cut the connection, as a dead engine does.
            return
        finally:
            watch.cancel()
            self.driver.leave(call)

    @staticmethod
    async def _refuse(body: bytes, send: Send) -> None:
        """Refuse as vLLM does: 503, but a 200 whose stream holds only an error when streaming was asked for."""
        if not json.loads(body).get("stream"):
            await _error(send, 503, _FULL, "ServiceUnavailableError")
            return
        await _start(send, 200, _EVENTS)
        event = b"data: " + error_body(_FULL, "ServiceUnavailableError", 503) + b"\n\ndata: [DONE]\n\n"
        await send({"type": "http.response.body", "body": event})

    async def _models(self, _: Scope, __: Receive, send: Send) -> None:
        card = {"id": self.config.model, "object": "model", "created": 0, "owned_by": "standin"}
        card["max_model_len"] = self.config.context_tokens
        await _answer(send, 200, json.dumps({"object": "list", "data": [card]}).encode())

    async def _health(self, _: Scope, __: Receive, send: Send) -> None:
        await _answer(send, 200, b"")

    async def _metrics(self, _: Scope, __: Receive, send: Send) -> None:
        await _answer(send, 200, self.metrics.exposition(), _TEXT)

    async def _state(self, _: Scope, __: Receive, send: Send) -> None:
        await _answer(send, 200, json.dumps(self.state()).encode())

    def state(self) -> dict[str, float | int | bool | str]:
        """The model's state and what it has cost this process."""
        engine = self.driver.engine
        return {
            "engine": self.config.engine,
            "running": engine.running,
            "waiting": engine.waiting,
            "kv_usage_ratio": engine.kv_usage_ratio,
            "open_calls": self.driver.open_calls,
            "preemptions_total": engine.preemptions_total,
            "generation_tokens_total": engine.generation_tokens_total,
            "aborted_total": self.driver.aborted_total,
            "spans": self.spans.sent if self.spans is not None else 0,
            "busy_s": engine.busy_s,
            "lag_s": self.driver.lag_s,
            "cpu_s": time.process_time(),
            "slow": engine.slow,
            "down": self.driver.down,
        }

    async def _steer(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            self.steer(json.loads(await _read(receive) or b""))
        except (ValueError, TypeError, AttributeError) as error:
            await _error(send, 400, str(error), "BadRequestError")
        else:
            await _answer(send, 200, json.dumps(self.state()).encode())

    def steer(self, wish: dict[str, float]) -> None:
        """Change the engine's fortune.

        Raises:
            ValueError: an unknown key or a value that makes no sense.
        """
        actions = {"slow": self.driver.slow, "stall_s": self.driver.stall, "down_s": self.driver.go_down}
        unknown = sorted(wish.keys() - actions.keys())
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(actions)}")
        for key, value in wish.items():
            actions[key](float(value))


async def _stream(call: Call, voice: Voice, send: Send) -> None:
    await _start(send, 200, _EVENTS)
    left = len(call.streams)
    while left:
        deltas = await call.take()
        if call.gone:
            return
        events: list[str] = []
        for delta in deltas:
            if delta.first and call.ask.chat:
                events.append(voice.role(delta.index))
            events.append(voice.tokens(delta.index, delta.tokens, delta.finished))
            left -= delta.finished
        if not left:
            events += [voice.usage_event()] if call.ask.include_usage else []
            events.append("data: [DONE]\n\n")
        await send({"type": "http.response.body", "body": "".join(events).encode(), "more_body": left > 0})


async def _whole(call: Call, voice: Voice, send: Send) -> None:
    left = len(call.streams)
    while left:
        left -= sum(delta.finished for delta in await call.take())
        if call.gone:
            return
    await _answer(send, 200, voice.answer())


async def _watch(receive: Receive, call: Call) -> None:
    """Notice that the caller left, even while nothing is written."""
    while (await receive())["type"] != "http.disconnect":
        pass
    call.gone = True
    call.notify()


async def _read(receive: Receive) -> bytes | None:
    """Read a body, or None when it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _hidden(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(OUTPUT_HEADER)
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise BadRequestError(f"{OUTPUT_HEADER.decode()} must be a positive integer")
    return int(value)


def _trace_headers(headers: dict[bytes, bytes]) -> dict[str, str]:
    names = (b"traceparent", b"tracestate")
    return {name.decode(): headers[name].decode("latin-1") for name in names if name in headers}


async def _start(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def _answer(send: Send, status: int, body: bytes, kind: tuple[bytes, bytes] = _JSON) -> None:
    await _start(send, status, kind, (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.body", "body": body})


async def _error(send: Send, status: int, message: str, kind: str) -> None:
    await _answer(send, status, error_body(message, kind, status))


async def _not_found(_: Scope, __: Receive, send: Send) -> None:
    await _error(send, 404, "not found", "NotFoundError")


async def _is_down(_: Scope, __: Receive, send: Send) -> None:
    await _error(send, 503, "the engine is down", "ServiceUnavailableError")
