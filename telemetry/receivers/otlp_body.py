"""Bodies of OTLP over HTTP as they come in: bounded over all requests, in size, and in how tightly they are packed."""

from __future__ import annotations

import zlib
from typing import Any

from telemetry.receivers.otlp_intake import RETRY_AFTER_S
from telemetry.receivers.otlp_replies import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, status

MAX_RATIO = 100
"""Spans and metrics pack 10 to 30 times; a body that unpacks to more is made to."""
FREE_BYTES = 1 << 20
"""Up to this the ratio does not matter."""


class Refused(Exception):  # noqa: N818 - the answer, not a fault
    """An answer other than 200."""

    def __init__(self, http: int, message: str, *, code: int = INVALID_ARGUMENT, retry: bool = False) -> None:
        super().__init__(message)
        self.http = http
        self.status = status(code, message, RETRY_AFTER_S if retry else None)
        self.retry = retry


class Budget:
    """Bytes of bodies that are received or wait to be read, over all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    def hold(self) -> Held:
        """The share of one request."""
        return Held(self)

    def take(self, size: int) -> None:
        """Raises Refused (429) beyond the bound."""
        if self.used + size > self._most:
            raise Refused(429, "too much is being received", code=RESOURCE_EXHAUSTED, retry=True)
        self.used += size


class Held:
    """What one request holds of the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    def take(self, size: int) -> None:
        """More. Raises Refused (429)."""
        self._budget.take(size)
        self._size += size

    def give_back(self) -> None:
        """All of it."""
        self._budget.used -= self._size
        self._size = 0


class Inflate:
    """A body as it comes in, unpacked, up to `max_bytes` before and after, and to no more than honest senders pack."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        if encoding not in {"", "identity", "gzip", "deflate"}:
            raise Refused(415, f"content-encoding {encoding!r} is not known; use gzip")
        self._unpack = zlib.decompressobj(wbits=47) if encoding in {"gzip", "deflate"} else None
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._came = 0
        self.size = 0

    def feed(self, chunk: bytes) -> int:
        """Takes the next piece, returns how many bytes it unpacked to. Raises Refused (413, 400)."""
        self._came += len(chunk)
        part = chunk if self._unpack is None else self._inflate(self._unpack, chunk)
        self.size += len(part)
        if self.size > self._max_bytes:
            raise too_large(self._max_bytes)
        if self.size > self._allowed:
            raise Refused(413, f"a body packed over {MAX_RATIO}:1", code=RESOURCE_EXHAUSTED)
        self._parts.append(part)
        return len(part)

    @property
    def _allowed(self) -> int:
        """Bytes that what came so far may unpack to."""
        if self._unpack is None:
            return self._max_bytes
        return min(self._max_bytes, max(FREE_BYTES, MAX_RATIO * self._came))

    def body(self) -> bytes:
        """All of it. Raises Refused (400) for a cut stream."""
        if self._unpack is not None and self._parts and not self._unpack.eof:
            raise Refused(400, "the compressed body is cut short")
        return b"".join(self._parts)

    def _inflate(self, unpack: Any, chunk: bytes) -> bytes:
        try:
            part: bytes = unpack.decompress(chunk, self._allowed + 1 - self.size)
        except zlib.error as error:
            raise Refused(400, "the body is not compressed as it says") from error
        return part


def too_large(max_bytes: int) -> Refused:
    """The answer to a body beyond its bound."""
    return Refused(413, f"a body of more than {max_bytes} bytes", code=RESOURCE_EXHAUSTED)
