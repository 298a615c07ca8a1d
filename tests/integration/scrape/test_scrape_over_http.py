"""Whatever answers on the metrics port is a page or a reason, in bounded time and memory."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from admission.vocabulary import SignalKind
from telemetry.config import TargetBinding
from telemetry.receivers.fetch import FetchError, FetchLimits, _tls, fetch
from telemetry.receivers.scrape import ScrapeReceiver
from tests.telemetry.receivers import pages
from tests.telemetry.receivers.recording import Recording

pytestmark = pytest.mark.integration

LIMITS = FetchLimits(connect_s=10.0, total_s=20.0, body_bytes=1 << 20)
PAGE = pages.vllm().encode()
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server that reads a request and does with the connection what the test wants."""
    over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work = asyncio.ensure_future(_answered(reader, writer, answer))
        end = asyncio.ensure_future(over.wait())
        await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
        for task in (work, end):
            task.cancel()
        await asyncio.gather(work, end, return_exceptions=True)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, ssl=tls)
    try:
        scheme = "https" if tls else "http"
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    finally:
        over.set()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):  # the client had enough
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer)


def says(*parts: bytes) -> Answer:
    """Writes these bytes and closes."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return answer


def http(body: bytes, status: str = "200 OK", **headers: str) -> Answer:
    """A whole answer with its length."""
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{''.join(lines)}\r\n"
    return says(head.encode(), body)


def chunked(body: bytes, size: int = 1000) -> Answer:
    """An answer in chunks, as vLLM's server sends its page."""
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", coded, b"0\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        http(PAGE),
        chunked(PAGE),
        says(b"HTTP/1.0 200 OK\r\n\r\n", PAGE),
        http(gzip.compress(PAGE), content_encoding="gzip"),
    ],
    ids=["length", "chunked", "until closed", "gzip"],
)
async def test_every_way_to_send_a_page_is_read(answer: Answer) -> None:
    """Servers differ, and gzip is asked for."""
    async with serving(answer) as url:
        assert await fetch(url, LIMITS) == PAGE


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(b"oops", "500 Internal Server Error"), "HTTP 500"),
        (http(b"", "302 Found", location="http://169.254.169.254/"), "HTTP 302"),
        (http(b"x" * (10 << 20)), "larger than"),
        (says(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * (1 << 20)] * 10), "larger than"),
        (chunked(b"x" * (10 << 20), 1 << 19), "larger than"),
        (http(gzip.compress(b"x" * (10 << 20)), content_encoding="gzip"), "larger than"),
        (http(b"not gzip at all", content_encoding="gzip"), "not HTTP"),
        (http(PAGE, content_encoding="br"), "unknown content encoding"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "not HTTP"),
        (says(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nshort"), "not HTTP"),
        (says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), "not HTTP"),
        (says(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000), "not HTTP"),
        (says(), "not HTTP"),
    ],
)
async def test_what_is_no_page_is_a_reason(answer: Answer, reason: str) -> None:
    """One line for people, and no more memory than a page may take."""
    async with serving(answer) as url:
        with pytest.raises(FetchError, match=reason):
            await fetch(url, LIMITS)


async def test_https_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for is refused by name; one of a named authority is taken."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    _tls.cache_clear()
    async with serving(http(PAGE), tls=tls) as url:
        with pytest.raises(FetchError, match="TLS failed: CERTIFICATE_VERIFY_FAILED"):
            await fetch(url, LIMITS)
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        _tls.cache_clear()
        assert await fetch(url, LIMITS) == PAGE
    _tls.cache_clear()


async def test_a_server_that_never_answers_costs_its_time_limit() -> None:
    """A hung engine must not hang the receiver."""

    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with serving(hang) as url:
        with pytest.raises(FetchError, match=r"no answer within 0\.2 s"):
            await fetch(url, FetchLimits(total_s=0.2))


async def test_a_server_that_drips_costs_no_more() -> None:
    """A limit on each read would let it drip for ever."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(300):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(drip) as url:
        with pytest.raises(FetchError, match="no answer within"):
            await fetch(url, FetchLimits(total_s=0.3))


async def test_a_port_where_nobody_listens_is_refused_by_name() -> None:
    """The commonest mistake of all."""
    async with serving(says()) as url:
        pass
    with pytest.raises(FetchError, match="connection refused"):
        await fetch(url, LIMITS)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits, at most ten seconds, for what must come."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never came: {what}")


async def test_an_engine_that_goes_and_comes_is_followed() -> None:
    """Up, down with the reason, up again, all without a restart of ours."""
    emit = Recording()
    async with serving(http(PAGE)) as url:
        port = int(url.split(":")[2].split("/")[0])
        receiver = ScrapeReceiver((TargetBinding(metrics_urls=(url,)),), interval_s=0.05)
        running = asyncio.create_task(receiver.run(emit))
        await until(lambda: emit.values().get(SignalKind.RUNNING) == 7.0, "the first page")
    await until(lambda: emit.values().get(SignalKind.ENGINE_UP) == 0.0, "the engine down")
    assert "connection refused" in next(iter(emit.warnings.values()))
    async with serving(http(PAGE), port):
        await until(lambda: emit.values().get(SignalKind.ENGINE_UP) == 1.0, "the engine up again")
        assert emit.warnings == {}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_one_member_that_hangs_does_not_hold_the_others() -> None:
    """Each member has a task and a time limit of its own."""

    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    emit = Recording()
    async with serving(hang) as slow, serving(http(PAGE)) as good:
        receiver = ScrapeReceiver((TargetBinding(metrics_urls=(slow, good)),), interval_s=0.05)
        running = asyncio.create_task(receiver.run(emit))
        await until(lambda: emit.counts["scrapes"] >= 5, "five scrapes of the good one")
        assert {reading.member for _, reading in emit.readings} == {good.split("/")[2]}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
