"""How the sidecar is reached: address, TLS, token; reconnection is the session's, not gRPC's."""

from __future__ import annotations

import os
import socket
from importlib import metadata as distribution
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from admission.client.fork import start_grpc
from admission.client.settings import ClientSettings
from admission.v1.admission_service_pb2 import SessionRequest, SessionResponse

METHOD = "/admission.v1.AdmissionService/Session"
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
]


class Stream(Protocol):
    """One Session stream, as grpc.aio has it. `read` returns grpc.aio.EOF at the end."""

    async def read(self) -> Any:
        """The next SessionResponse. Raises grpc.aio.AioRpcError when the stream broke."""

    async def write(self, message: SessionRequest, /) -> None:
        """Sends; returns when the next may be sent."""

    async def done_writing(self) -> None:
        """Half-close."""

    def cancel(self) -> Any:
        """Ends it now."""


class Carrier(Protocol):
    """How do I get a stream to the sidecar?"""

    def stream(self) -> Stream:
        """Opens one; the connection is made when it is first used."""

    async def close(self) -> None:
        """Closes what is open."""


class GrpcCarrier:
    """Streams over one lazily opened channel."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._channel: grpc.aio.Channel | None = None

    def stream(self) -> Stream:
        """Opens a stream. OSError when a TLS file cannot be read, ForkedError where gRPC cannot work."""
        start_grpc()
        if self._channel is None:
            self._channel = self._open()
        method = self._channel.stream_stream(
            METHOD,
            request_serializer=SessionRequest.SerializeToString,
            response_deserializer=SessionResponse.FromString,
        )
        stream: Stream = method(metadata=metadata(self._settings))
        return stream

    async def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None:
            await self._channel.close()

    def _open(self) -> grpc.aio.Channel:
        secure = credentials(self._settings)
        if secure is None:
            return grpc.aio.insecure_channel(self._settings.address, options=OPTIONS)
        return grpc.aio.secure_channel(self._settings.address, secure, options=OPTIONS)


def credentials(settings: ClientSettings) -> grpc.ChannelCredentials | None:
    """TLS credentials, read from disk now; None without TLS."""
    if not (settings.tls_ca or settings.tls_cert):
        return None
    return grpc.ssl_channel_credentials(
        _read(settings.tls_ca), _read(settings.tls_key), _read(settings.tls_cert)
    )


def metadata(settings: ClientSettings) -> tuple[tuple[str, str], ...]:
    """Call metadata: the token when there is one."""
    return (("authorization", f"Bearer {settings.token}"),) if settings.token else ()


def client_name() -> str:
    """Name and version of this client, for people."""
    try:
        version = distribution.version("tidegate")
    except distribution.PackageNotFoundError:
        version = "unpackaged"
    return f"tidegate-python/{version} {socket.gethostname()[:64]} pid {os.getpid()}"


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
