"""OTLP over HTTP: protobuf and JSON, gzip, sizes bounded after decompression; errors carry a google.rpc.Status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import uvicorn
from google.protobuf.json_format import MessageToJson

from admission.wire.rpc_pb2 import RpcStatus
from telemetry.config import TelemetryConfig, split_address
from telemetry.idle import CalmProtocol
from telemetry.receivers import Emit
from telemetry.receivers.otlp import MAX_BYTES, MAX_WITHOUT_ROLE, MIB, Role
from telemetry.receivers.otlp_body import Budget, Held, Inflate, Refused, too_large
from telemetry.receivers.otlp_intake import RETRY_AFTER_S, Answer, Intake, NotNowError, Signal
from telemetry.receivers.otlp_json import to_protobuf
from telemetry.receivers.otlp_replies import (
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    success,
)
from telemetry.receivers.otlp_tls import CertificateFiles

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
PATHS = {"/v1/traces": Signal.TRACES, "/v1/metrics": Signal.METRICS}
OFF_LOOP_BYTES = 8 << 10
MAX_JSON_BYTES = 4 * MIB
RECEIVE_WITHIN_S = 10.0
MAX_REQUESTS = 512
LOOK_AT_FILES_S = 1.0
REJECTED = {Signal.TRACES: "rejectedSpans", Signal.METRICS: "rejectedDataPoints"}


class OtlpApp:
    """The ASGI application of /v1/traces and /v1/metrics."""

    def __init__(
        self, intake: Intake, role: Role, max_bytes: int, *, receive_s: float = RECEIVE_WITHIN_S
    ) -> None:
        self._intake = intake
        self._role = role
        self._max_bytes = max_bytes
        self._receive_s = receive_s
        self._budget = Budget(2 * max_bytes)
        self._requests = 0
        self._one_json = asyncio.Lock()
        """JSON costs many times its bytes, in memory and in time: one body after the other."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        json_wanted = headers.get("content-type", "").partition(";")[0].strip().lower() == JSON
        try:
            signal = _signal(scope, headers)
            answer = await self._serve(signal, headers, receive, json_wanted=json_wanted)
        except Refused as refused:
            await _send(
                send, refused.http, _encode(refused.status, json_wanted=json_wanted), refused, json_wanted
            )
        else:
            await _send(send, 200, _success(signal, answer, json_wanted=json_wanted), None, json_wanted)

    async def _serve(
        self, signal: Signal, headers: dict[str, str], receive: Receive, *, json_wanted: bool
    ) -> Answer:
        """The answer. What the request holds of the budget is given back after it was read, in any case."""
        if self._requests >= MAX_REQUESTS:
            raise Refused(429, "too many requests at once", code=RESOURCE_EXHAUSTED, retry=True)
        steers = self._role.of(headers.get("authorization", ""))
        max_bytes = self._most(steers=steers, json_wanted=json_wanted)
        held = self._budget.hold()
        self._requests += 1
        try:
            async with asyncio.timeout(self._receive_s):
                body = await _receive(headers, receive, held, max_bytes)
            return await self._take(signal, body, steers=steers, json_wanted=json_wanted)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self._receive_s:g} s") from None
        finally:
            self._requests -= 1
            held.give_back()

    def _most(self, *, steers: bool, json_wanted: bool) -> int:
        """Bytes that the body may have. Refused (403): reading it would cost more than its sender may cause."""
        if not steers and json_wanted:
            raise Refused(403, f"JSON needs the telemetry role; use {PROTOBUF}", code=PERMISSION_DENIED)
        most = self._max_bytes if steers else min(self._max_bytes, MAX_WITHOUT_ROLE)
        return min(most, MAX_JSON_BYTES) if json_wanted else most

    async def _take(self, signal: Signal, body: bytes, *, steers: bool, json_wanted: bool) -> Answer:
        try:
            if json_wanted:
                async with self._one_json:
                    body = await _from_json(signal, body)
            answer = await self._intake.take(signal, body, steers=steers)
        except NotNowError:
            text = "telemetry is starting or stopping"
            raise Refused(503, text, code=UNAVAILABLE, retry=True) from None
        except ValueError as error:
            raise Refused(400, f"not an OTLP {signal} request: {error}") from error
        if answer.garbage:
            raise Refused(400, answer.garbage)
        return answer


async def _receive(headers: dict[str, str], receive: Receive, held: Held, max_bytes: int) -> bytes:
    """The whole body, unpacked. Raises Refused."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise too_large(max_bytes)
    inflate, more = Inflate(headers.get("content-encoding", "").lower(), max_bytes), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the sender left")
        held.take(inflate.feed(message.get("body", b"")))
        more = message.get("more_body", False)
    return inflate.body()


def _signal(scope: Scope, headers: dict[str, str]) -> Signal:
    signal = PATHS.get(scope["path"])
    if signal is None:
        raise Refused(404, f"there is only {' and '.join(PATHS)}", code=UNIMPLEMENTED)
    if scope["method"] != "POST":
        raise Refused(405, "use POST", code=UNIMPLEMENTED)
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in {PROTOBUF, JSON}:
        raise Refused(415, f"content-type {content_type!r} is not known; use {PROTOBUF} or {JSON}")
    return signal


async def _from_json(signal: Signal, body: bytes) -> bytes:
    if len(body) <= OFF_LOOP_BYTES:
        return to_protobuf(signal, body)
    return await asyncio.to_thread(to_protobuf, signal, body)


def _success(signal: Signal, answer: Answer, *, json_wanted: bool) -> bytes:
    if not json_wanted:
        return success(answer)
    if not answer.rejected:
        return b"{}"
    partial = {REJECTED[signal]: str(answer.rejected), "errorMessage": answer.message}
    return json.dumps({"partialSuccess": partial}).encode()


def _encode(refusal: RpcStatus, *, json_wanted: bool) -> bytes:
    if not json_wanted:
        return refusal.SerializeToString()
    short = RpcStatus(code=refusal.code, message=refusal.message)
    return MessageToJson(short, indent=None).encode()


async def _send(send: Send, code: int, body: bytes, refused: Refused | None, json_wanted: bool) -> None:
    kind = JSON if json_wanted else PROTOBUF
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    if refused is not None and refused.retry:
        headers.append((b"retry-after", str(max(1, round(RETRY_AFTER_S))).encode()))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """Signals belong to the process, not to one of its listeners."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class OtlpHttpReceiver:
    """A Receiver that hands payloads to the intake. `port` is 0 while it does not listen."""

    name = "otlp_http"

    def __init__(self, config: TelemetryConfig, intake: Intake, *, max_bytes: int = MAX_BYTES) -> None:
        self._config = config
        self._app = OtlpApp(intake, Role(config), max_bytes)
        self.port = 0

    async def run(self, emit: Emit) -> None:
        """Listens until cancelled. Raises RuntimeError when the port is taken."""
        sock = self._bind()
        server = _Server(self._uvicorn_config())
        emit.warn(self.name, "")
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            await self._watch(serving, server, emit)
        finally:
            self.port = 0
            server.should_exit = True
            await asyncio.wait((serving,), timeout=2.0)
            sock.close()

    async def _watch(self, serving: asyncio.Task[None], server: uvicorn.Server, emit: Emit) -> None:
        """Until the server ends, with a look at its certificates each second."""
        files = CertificateFiles(self._config.tls)
        while not serving.done():
            await asyncio.wait((serving,), timeout=LOOK_AT_FILES_S)
            if server.config.ssl is not None and not files.refresh(server.config.ssl):
                emit.warn(
                    f"{self.name}_tls", "the new OTLP certificate and key do not fit; the old ones stay"
                )
        serving.result()

    def _bind(self) -> socket.socket:
        host, port = split_address(self._config.otlp_http)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            address = self._config.otlp_http
            raise RuntimeError(
                f"{address} cannot be had ({error.strerror}); the setting is otlp_http"
            ) from error
        self.port = int(sock.getsockname()[1])
        return sock

    def _uvicorn_config(self) -> uvicorn.Config:
        tls = self._config.tls
        return uvicorn.Config(
            self._app,
            http=CalmProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=tls.cert or None,
            ssl_keyfile=tls.key or None,
            ssl_ca_certs=tls.client_ca or None,
            ssl_cert_reqs=2 if tls.client_ca else 0,
        )
