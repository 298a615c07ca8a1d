"""A small HTTP GET on asyncio streams with every size and time bounded."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from dataclasses import dataclass
from functools import cache
from urllib.parse import SplitResult, urlsplit

_HEAD_BYTES = 32 << 10


class FetchError(Exception):
    """The page could not be had; the text is one line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Bounds of one GET. Seconds and bytes; `body_bytes` also bounds what gzip unpacks to."""

    connect_s: float = 2.0
    total_s: float = 5.0
    body_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: dict[str, str]


async def fetch(url: str, limits: FetchLimits) -> bytes:
    """Returns the body of a 200 answer. Raises FetchError for everything else; follows no redirect."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(limits.total_s):
            return await _get(parts, limits)
    except TimeoutError:
        raise FetchError(f"no answer within {limits.total_s:g} s") from None
    except OSError as error:
        raise FetchError(_reason(error)) from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, zlib.error):
        raise FetchError("the answer is not HTTP") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return error.strerror or str(error) or type(error).__name__


async def _get(parts: SplitResult, limits: FetchLimits) -> bytes:
    reader, writer = await _connect(parts, limits)
    try:
        writer.write(_request(parts))
        await writer.drain()
        head = await _head(reader)
        if head.status != 200:
            raise FetchError(f"HTTP {head.status}")
        return await _body(reader, head.headers, limits)
    finally:
        writer.close()


async def _connect(
    parts: SplitResult, limits: FetchLimits
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = _tls() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    try:
        async with asyncio.timeout(limits.connect_s):
            return await asyncio.open_connection(parts.hostname, port, ssl=tls, limit=_HEAD_BYTES)
    except TimeoutError:
        raise FetchError(f"no connection within {limits.connect_s:g} s") from None


@cache
def _tls() -> ssl.SSLContext:
    """Verifies against the system's certificates, or those that SSL_CERT_FILE names; loading them takes 10 ms."""
    return ssl.create_default_context()


def _request(parts: SplitResult) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return (
        f"GET {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n"
        "Accept: text/plain;version=0.0.4\r\nAccept-Encoding: gzip\r\n"
        "User-Agent: tidegate\r\nConnection: close\r\n\r\n"
    ).encode("latin-1")


async def _head(reader: asyncio.StreamReader) -> _Head:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = text[:-4].split("\r\n")
    version, status, *_ = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    pairs = (line.partition(":") for line in rest)
    return _Head(int(status), {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _body(reader: asyncio.StreamReader, headers: dict[str, str], limits: FetchLimits) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        raw = await _chunked(reader, limits.body_bytes)
    elif "content-length" in headers:
        raw = await reader.readexactly(_bounded(int(headers["content-length"]), limits.body_bytes))
    else:
        raw = await _until_closed(reader, limits.body_bytes)
    return _unpacked(raw, headers.get("content-encoding", "").lower(), limits.body_bytes)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise FetchError(f"the page is larger than {most} bytes")
    return size


async def _chunked(reader: asyncio.StreamReader, most: int) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            return bytes(body)
        _bounded(len(body) + size, most)
        body += await reader.readexactly(size)
        await reader.readexactly(2)


async def _until_closed(reader: asyncio.StreamReader, most: int) -> bytes:
    body = bytearray()
    while chunk := await reader.read(64 << 10):
        body += chunk
        _bounded(len(body), most)
    return bytes(body)


def _unpacked(raw: bytes, encoding: str, most: int) -> bytes:
    if encoding in {"", "identity"}:
        return raw
    if encoding != "gzip":
        raise FetchError(f"unknown content encoding {encoding[:40]!r}")
    unpacker = zlib.decompressobj(wbits=31)
    body = unpacker.decompress(raw, most + 1)
    _bounded(len(body), most)
    return body
