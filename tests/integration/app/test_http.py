"""The HTTP surface by itself: addresses, permissions, TLS, and what is said when it cannot listen."""

from __future__ import annotations

import asyncio
import ssl
import stat
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from admission.runtime.settings import ListenerConfig, TlsFiles
from admission.server.http import HttpServer, http_app
from admission.server.listen import ListenError

pytestmark = pytest.mark.integration


class Echo:
    """A page that shows the Accept header."""

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """The header."""
        return accept.encode(), "text/plain"


@asynccontextmanager
async def running(listener: ListenerConfig, why: Callable[[], str] = str) -> AsyncIterator[HttpServer]:
    """A server on the address."""
    server = HttpServer(http_app(Echo, why), listener)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def fetch(url: str, context: ssl.SSLContext | None = None) -> str:
    """The body of a GET."""
    with urllib.request.urlopen(url, timeout=5, context=context) as answer:
        body: bytes = answer.read()
        return body.decode()


async def test_the_scrapers_accept_header_reaches_the_exporter() -> None:
    """OpenMetrics is negotiated; without the header exemplars are lost."""
    async with running(ListenerConfig(address="127.0.0.1:0")) as server:

        def get() -> str:
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}/metrics", headers={"accept": "x/y"}
            )
            with urllib.request.urlopen(request, timeout=5) as answer:
                body: bytes = answer.read()
                return body.decode()

        assert await asyncio.to_thread(get) == "x/y"


async def test_readiness_tells_why_not() -> None:
    """`503` alone starts a search."""
    async with running(ListenerConfig(address="127.0.0.1:0"), lambda: "draining") as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(fetch, f"http://127.0.0.1:{server.port}/readyz")
        body = refused.value.read()
        refused.value.close()

    assert (refused.value.code, body) == (503, b"draining\n")


async def test_a_taken_port_is_a_clear_error() -> None:
    """The text names the address and the setting."""
    async with running(ListenerConfig(address="127.0.0.1:0")) as first:
        second = HttpServer(http_app(Echo, str), ListenerConfig(address=f"127.0.0.1:{first.port}"))
        with pytest.raises(
            ListenError, match=r"listen.http: cannot listen on 127.0.0.1:\d+: the port is taken"
        ):
            await second.start()


async def test_the_port_is_free_again_after_a_stop() -> None:
    """An upgrade starts the next process at once."""
    async with running(ListenerConfig(address="127.0.0.1:0")) as first:
        port = first.port
    async with running(ListenerConfig(address=f"127.0.0.1:{port}")) as second:
        assert second.port == port


async def test_a_unix_socket_is_private_and_goes_away(tmp_path: Path) -> None:
    """What only this user may read must be so in the file system."""
    path = tmp_path / "run" / "http.sock"
    async with running(ListenerConfig(address=f"unix:{path}")):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600

    assert not path.exists()


async def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    """A typo in an address must not delete somebody's file."""
    path = tmp_path / "precious"
    path.write_text("data")
    server = HttpServer(http_app(Echo, str), ListenerConfig(address=f"unix:{path}"))
    with pytest.raises(ListenError, match="is not a socket"):
        await server.start()

    assert path.read_text() == "data"


async def test_a_socket_that_answers_is_left_alone(tmp_path: Path) -> None:
    """Two sidecars by mistake: the first must stay reachable."""
    listener = ListenerConfig(address=f"unix:{tmp_path}/http.sock")
    async with running(listener):
        second = HttpServer(http_app(Echo, str), listener)
        with pytest.raises(ListenError, match="served by another process"):
            await second.start()
        assert (tmp_path / "http.sock").exists()


async def test_tls_is_served_where_it_is_configured(tmp_path: Path) -> None:
    """Beyond loopback the probe listener speaks TLS like the others."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    files = TlsFiles(cert=str(cert), key=str(key))
    async with running(ListenerConfig(address="127.0.0.1:0", tls=files)) as server:
        assert await asyncio.to_thread(fetch, f"https://127.0.0.1:{server.port}/healthz", context) == "ok\n"


async def test_a_certificate_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    """At the start, and with the setting's name."""
    (tmp_path / "x.pem").write_text("nothing")
    files = TlsFiles(cert=str(tmp_path / "x.pem"), key=str(tmp_path / "x.pem"))
    server = HttpServer(http_app(Echo, str), ListenerConfig(address="127.0.0.1:0", tls=files))

    with pytest.raises(ListenError, match=r"listen\.tls: "):
        await server.start()


async def test_stopping_what_never_started_and_twice_is_fine() -> None:
    """Every way down goes through the same stop."""
    server = HttpServer(http_app(Echo, str), ListenerConfig(address="127.0.0.1:0"))
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()
