"""The small HTTP surface: /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from admission.runtime.settings import ListenerConfig
from admission.server.listen import ListenError, remove_stale
from telemetry.idle import CERTIFIED, CalmProtocol

LOG = logging.getLogger(__name__)
MAX_PAGES = 4
"""Pages of metrics written out at once."""


class Page(Protocol):
    """What can be written out, by any thread?"""

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """Page and content type for an Accept header."""


def http_app(gather: Callable[[], Page], not_ready: Callable[[], str]) -> Starlette:
    """The three routes. `not_ready` gives why no traffic should come, empty when it may.

    Pages that cost something are bounded; the probes never are: an orchestrator would kill a healthy sidecar.
    """
    pages = asyncio.Semaphore(MAX_PAGES)

    async def metrics(request: Request) -> Response:
        if not getattr(request.state, CERTIFIED, True):
            return PlainTextResponse("needs a certificate\n", 403)
        if pages.locked():
            return PlainTextResponse("too many at once\n", 503, {"retry-after": "1"})
        async with pages:
            # Gathered here, where the state is; written out where no decision waits for it.
            page = gather()
            body, content_type = await asyncio.to_thread(page.encoded, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        why = not_ready()
        return PlainTextResponse(f"{why or 'ready'}\n", 503 if why else 200)

    return Starlette(
        routes=[Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    )


class HttpServer:
    """Serves an ASGI app on one address inside the running loop; port 0 takes any free one."""

    def __init__(self, app: Starlette, listener: ListenerConfig) -> None:
        self._listener = listener
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        tls = listener.tls if not listener.is_unix else None
        self._server = _Embedded(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                http=CalmProtocol,
                timeout_graceful_shutdown=1,
                ssl_certfile=(tls and tls.cert) or None,
                ssl_keyfile=(tls and tls.key) or None,
                ssl_ca_certs=(tls and tls.client_ca) or None,
                # Probes have no certificate to show: it is asked for, and only the page of metrics insists.
                ssl_cert_reqs=ssl.CERT_OPTIONAL if tls and tls.client_ca else ssl.CERT_NONE,
            )
        )

    @property
    def port(self) -> int:
        """The TCP port that listens; 0 for a unix socket."""
        name = self._socket.getsockname() if self._socket else ""
        return int(name[1]) if isinstance(name, tuple) else 0

    async def start(self) -> None:
        """Listens. ListenError: the address is taken, or not ours, or the certificate cannot be used."""
        try:
            self._server.config.load()
        except OSError as error:
            raise ListenError(f"listen.tls: {error}") from error
        if self._listener.is_exposed:
            LOG.warning(
                "listener_insecure", extra={"address": self._listener.address, "setting": "listen.http"}
            )
        self._socket = _bound(self._listener)
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="http")
        await self._server.listening.wait()

    async def stop(self) -> None:
        """Stops listening and ends what is open, within about a second. May be called twice."""
        self._server.should_exit = True
        if self._task:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._socket:
            self._remove_file()
        self._socket, self._task = None, None

    def _remove_file(self) -> None:
        if self._listener.is_unix:
            Path(self._listener.address.removeprefix("unix:")).unlink(missing_ok=True)


class _Embedded(uvicorn.Server):
    """Uvicorn without its signal handlers: the process's signals belong to the sidecar."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bound(listener: ListenerConfig) -> socket.socket:
    try:
        return _unix_socket(listener) if listener.is_unix else _tcp_socket(listener.address)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "the port is taken" if taken else error.strerror or str(error)
        raise ListenError(f"listen.http: cannot listen on {listener.address}: {reason}") from error


def _tcp_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, where = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


def _unix_socket(listener: ListenerConfig) -> socket.socket:
    path = Path(listener.address.removeprefix("unix:"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_stale(path, "listen.http")
    bound = socket.socket(socket.AF_UNIX)
    # The socket must never exist with wider permissions, not even for an instant.
    before = os.umask(0o777 & ~listener.socket_mode)
    try:
        bound.bind(str(path))
        bound.listen()
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound
