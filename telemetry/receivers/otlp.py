"""OTLP over gRPC: traces and metrics. Takes everything, answers at once, never makes an exporter wait."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NoReturn

import grpc
import grpc.aio

from telemetry.config import TelemetryConfig, split_address
from telemetry.receivers import Emit
from telemetry.receivers.otlp_intake import RETRY_AFTER_S, Intake, NotNowError, Signal
from telemetry.receivers.otlp_replies import UNAVAILABLE, retry_trailers, success
from telemetry.receivers.otlp_tls import CertificateFiles

SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
MAX_CALLS = 512
MIB = 1 << 20
MAX_BYTES = 16 * MIB
"""A body, unpacked. Parsing takes up to 25 times as much memory for an instant; Collectors send 8192 spans at once."""
MAX_WITHOUT_ROLE = MIB
"""A body of a sender without the telemetry role, which is only shown."""

Context = grpc.aio.ServicerContext[bytes, bytes]


class Role:
    """Does a sender have the telemetry role? With no roles configured at all, everybody has."""

    def __init__(self, config: TelemetryConfig) -> None:
        self._open = not (config.restricted or config.tokens or config.names)
        self._tokens = [token.encode() for token in config.tokens]
        self._names = frozenset(config.names)

    def of(self, authorization: str, names: Iterable[str] = ()) -> bool:
        """By the `authorization` header and the names in the sender's certificate."""
        if self._open:
            return True
        if not self._names.isdisjoint(names):
            return True
        scheme, _, token = authorization.partition(" ")
        shown = token.strip().encode()
        return scheme.lower() == "bearer" and any(hmac.compare_digest(shown, t) for t in self._tokens)


class OtlpGrpcReceiver:
    """A Receiver that hands payloads to the intake. `port` is 0 while it does not listen."""

    name = "otlp_grpc"

    def __init__(self, config: TelemetryConfig, intake: Intake, *, max_bytes: int = MAX_BYTES) -> None:
        self._config = config
        self._intake = intake
        self._role = Role(config)
        self._max_bytes = max_bytes
        self.port = 0

    async def run(self, emit: Emit) -> None:
        """Listens until cancelled. Raises RuntimeError when the port is taken."""
        server = grpc.aio.server(options=self._options(), maximum_concurrent_rpcs=MAX_CALLS)
        server.add_generic_rpc_handlers(tuple(self._handlers()))
        self._bind(server)
        await server.start()
        emit.warn(self.name, "")
        try:
            await server.wait_for_termination()
        finally:
            self.port = 0
            await server.stop(0.1)

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ]

    def _bind(self, server: grpc.aio.Server) -> None:
        host, port = split_address(self._config.otlp_grpc)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._config.tls.cert:
                credentials = CertificateFiles(self._config.tls).credentials()
                self.port = server.add_secure_port(address, credentials)
            else:
                self.port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise RuntimeError(f"{address} cannot be had: is it taken? The setting is otlp_grpc") from error

    def _handlers(self) -> Iterable[grpc.GenericRpcHandler]:
        for signal, service in SERVICES.items():
            # Bytes in, bytes out: a deserializer that fails would answer UNKNOWN instead of INVALID_ARGUMENT.
            method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
                self._export(signal)
            )
            yield grpc.method_handlers_generic_handler(service, {"Export": method})

    def _export(self, signal: Signal) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def export(body: bytes, context: Context) -> bytes:
            steers = self._steers(context)
            if not steers and len(body) > MAX_WITHOUT_ROLE:
                message = f"more than {MAX_WITHOUT_ROLE} bytes need the telemetry role"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
            try:
                answer = await self._intake.take(signal, body, steers=steers)
            except NotNowError:
                await _not_now(context)
            if answer.garbage:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer.garbage)
            return success(answer)

        return export

    def _steers(self, context: Context) -> bool:
        metadata = dict(context.invocation_metadata() or ())
        names = context.auth_context().get("x509_subject_alternative_name", ())
        return self._role.of(_as_text(metadata, "authorization"), [name.decode() for name in names])


def _as_text(metadata: Mapping[str, str | bytes], key: str) -> str:
    value = metadata.get(key, "")
    return value if isinstance(value, str) else ""


async def _not_now(context: Context) -> NoReturn:
    message = "telemetry is starting or stopping"
    trailers = retry_trailers(UNAVAILABLE, message, RETRY_AFTER_S)
    await context.abort(grpc.StatusCode.UNAVAILABLE, message, trailers)
    raise asyncio.CancelledError  # abort has raised already
