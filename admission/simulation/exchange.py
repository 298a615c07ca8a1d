"""One HTTP request and its streamed answer on a connection of its own, with the moments that matter.

No task per chunk: bytes go from the socket through the parser to a few counters, so that one core carries
thousands of streams.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httptools

from admission.simulation.fate import Ending

__all__ = ["Attempt", "Ending", "Request", "exchange"]


@dataclass(slots=True)
class Attempt:
    """One try of a request. Moments are monotonic seconds; None: did not happen."""

    began_at: float
    ending: Ending = Ending.FAILED
    status: int = 0
    reason: str = ""
    retry_after_s: float | None = None
    first_token_at: float | None = None
    ended_at: float = 0.0
    chunks: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the attempt's start to its first token."""
        return None if self.first_token_at is None else self.first_token_at - self.began_at

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first, None below two tokens."""
        if self.first_token_at is None or (self.output_tokens or 0) < 2:
            return None
        return (self.ended_at - self.first_token_at) / ((self.output_tokens or 0) - 1)


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. `leave_after_chunks` is 0 for a caller that stays to the end."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    patience_s: float = 10.0
    leave_after_chunks: int = 0


async def exchange(host: str, port: int, request: Request) -> Attempt:
    """Send one request and follow its answer to the end; never raises for what the network does."""
    attempt = Attempt(time.monotonic())
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    wire = _Wire(request, f"{host}:{port}", attempt, done)
    timer = loop.call_later(request.patience_s, wire.lose_patience)
    try:
        await loop.create_connection(lambda: wire, host, port)
        await done
    except OSError as error:
        attempt.reason = type(error).__name__
    finally:
        timer.cancel()
        wire.close()
        attempt.ended_at = attempt.ended_at or time.monotonic()
    return attempt


@dataclass(slots=True)
class _Answer:
    events: bool = False
    rest: bytes = b""
    whole: list[bytes] = field(default_factory=list)


class _Wire(asyncio.Protocol):
    """Feeds the parser; the parser's callbacks fill the attempt."""

    def __init__(self, request: Request, host: str, attempt: Attempt, done: asyncio.Future[None]) -> None:
        self._request = request
        self._host = host
        self._attempt = attempt
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._answer = _Answer()
        self._transport: asyncio.Transport | None = None
        self._failed = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_connection makes
        self._transport = transport
        lines = [
            f"POST {self._request.path} HTTP/1.1",
            f"host: {self._host}",
            "content-type: application/json",
        ]
        lines += [f"{name}: {value}" for name, value in self._request.headers]
        lines += [f"content-length: {len(self._request.body)}", "connection: close", "", ""]
        transport.write("\r\n".join(lines).encode() + self._request.body)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Ending.FAILED, type(error).__name__)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Ending.FAILED, "connection lost" if exc is None else type(exc).__name__)

    def lose_patience(self) -> None:
        """Leave when no token has come; called by the timer."""
        if self._attempt.first_token_at is None:
            self._end(Ending.IMPATIENT)

    def close(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        if key == b"x-tidegate-reason":
            self._attempt.reason = value.decode("latin-1")
        elif key == b"retry-after":
            self._attempt.retry_after_s = float(value) if value.replace(b".", b"", 1).isdigit() else None
        elif key == b"content-type":
            self._answer.events = value.startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        self._attempt.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if not self._answer.events:
            self._answer.whole.append(body)
            return
        *events, self._answer.rest = (self._answer.rest + body).split(b"\n\n")
        for event in events:
            self._event(event)

    def on_message_complete(self) -> None:
        status = self._attempt.status
        if status != 200:
            ending = Ending.REFUSED if status in (429, 503) else Ending.INVALID
            self._end(ending, self._attempt.reason or f"http {status}")
        elif self._failed:
            self._end(Ending.FAILED, self._failed)
        else:
            if not self._answer.events:
                self._read_whole()
            self._end(Ending.SERVED)

    def _event(self, event: bytes) -> None:
        if b'"error"' in event or b"completion_tokens" in event or self._attempt.first_token_at is None:
            self._read_event(event)
        elif b'"choices":[{' in event or b'"choices": [{' in event:
            self._count()

    def _read_event(self, event: bytes) -> None:
        document = _json(event.removeprefix(b"data: "))
        if "error" in document:
            self._failed = (
                f"error {document['error'].get('code', '')}"
                if isinstance(document["error"], dict)
                else "error"
            )
        self._read_usage(document)
        if any(_has_token(choice) for choice in document.get("choices") or ()):
            if self._attempt.first_token_at is None:
                self._attempt.first_token_at = time.monotonic()
            self._count()

    def _count(self) -> None:
        self._attempt.chunks += 1
        if self._attempt.chunks == self._request.leave_after_chunks:
            self._end(Ending.LEFT)

    def _read_whole(self) -> None:
        self._read_usage(_json(b"".join(self._answer.whole)))

    def _read_usage(self, document: dict[str, Any]) -> None:
        usage = document.get("usage")
        if isinstance(usage, dict):
            self._attempt.prompt_tokens = usage.get("prompt_tokens")
            self._attempt.output_tokens = usage.get("completion_tokens")

    def _end(self, ending: Ending, reason: str = "") -> None:
        if self._done.done():
            return
        self._attempt.ending = ending
        self._attempt.reason = reason
        self._attempt.ended_at = time.monotonic()
        self._done.set_result(None)


def _json(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _has_token(choice: Any) -> bool:
    """Whether a choice carries text, reasoning or a tool call: a role alone does not count."""
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta") or {}
    return bool(
        choice.get("text") or any(delta.get(key) for key in ("content", "reasoning_content", "tool_calls"))
    )
