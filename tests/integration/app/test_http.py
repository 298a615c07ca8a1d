"""The HTTP surface by itself: addresses, permissions, TLS, and what is said when it cannot listen."""

from __future__ import annotations

import asyncio
import ssl
import stat
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from admission.runtime.settings import ListenerConfig, TlsFiles
from admission.server.http import MAX_PAGES, HttpServer, http_app
from admission.server.listen import ListenError
from telemetry.idle import CalmProtocol

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


async def test_with_a_client_ca_only_probes_come_without_a_certificate(tmp_path: Path) -> None:
    """A kubelet has none to show, and would kill the sidecar; what /metrics tells is for those who have."""
    authority = trustme.CA()
    files = TlsFiles(
        cert=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"), client_ca=str(tmp_path / "ca.pem")
    )
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(files.key)
    issued.cert_chain_pems[0].write_to_path(files.cert)
    authority.cert_pem.write_to_path(files.client_ca)
    nobody, known = ssl.create_default_context(), ssl.create_default_context()
    for each in (nobody, known):
        authority.configure_trust(each)
    authority.issue_cert("scraper.test").configure_cert(known)
    async with running(ListenerConfig(address="127.0.0.1:0", tls=files)) as server:
        address = f"https://127.0.0.1:{server.port}"
        assert await asyncio.to_thread(fetch, f"{address}/healthz", nobody) == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            await asyncio.to_thread(fetch, f"{address}/metrics", nobody)
        refused.value.close()
        assert await asyncio.to_thread(fetch, f"{address}/metrics", known) == ""


async def test_probes_are_answered_however_many_connections_are_open() -> None:
    """Sixty-four idle sockets made /healthz answer 503: a healthy sidecar would have been killed."""
    async with running(ListenerConfig(address="127.0.0.1:0")) as server:
        idle = [
            await asyncio.open_connection("127.0.0.1", server.port) for _ in range(CalmProtocol.max_idle + 20)
        ]
        assert await asyncio.to_thread(fetch, f"http://127.0.0.1:{server.port}/healthz") == "ok\n"
        # The oldest went, so that there are no more than so many.
        assert await asyncio.wait_for(idle[0][0].read(), 2.0) == b""
        for _, writer in idle:
            writer.close()


async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that began a header and never ends it; one in use stays."""
    monkeypatch.setattr(CalmProtocol, "idle_s", 0.2)
    async with running(ListenerConfig(address="127.0.0.1:0")) as server:
        silent = await asyncio.open_connection("127.0.0.1", server.port)
        slow = await asyncio.open_connection("127.0.0.1", server.port)
        busy = await asyncio.open_connection("127.0.0.1", server.port)
        slow[1].write(b"GET /healthz HT")
        for _ in range(6):
            busy[1].write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(busy[0].readuntil(b"ok\n"), 2.0)
            await asyncio.sleep(0.1)
        for reader, _ in (silent, slow):
            assert await asyncio.wait_for(reader.read(), 2.0) == b""
        for _, writer in (silent, slow, busy):
            writer.close()


async def test_pages_of_metrics_are_bounded_and_probes_are_not() -> None:
    """Scrapers that come faster than pages are written out must not take the threads of everything else."""
    go, under_way = threading.Event(), threading.Semaphore(0)

    class Slow:
        def encoded(self, _accept: str) -> tuple[bytes, str]:
            under_way.release()
            go.wait(5.0)
            return b"page", "text/plain"

    app = httpx.ASGITransport(app=http_app(Slow, str))
    async with httpx.AsyncClient(transport=app, base_url="http://sidecar") as asking:
        pages = [asyncio.create_task(asking.get("/metrics")) for _ in range(MAX_PAGES)]
        for _ in pages:
            assert await asyncio.to_thread(under_way.acquire, timeout=5.0)
        refused, healthy = await asking.get("/metrics"), await asking.get("/healthz")
        go.set()
        told = [page.status_code for page in await asyncio.gather(*pages)]

    assert (refused.status_code, refused.headers["retry-after"], healthy.text) == (503, "1", "ok\n")
    assert told == [200] * MAX_PAGES


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
