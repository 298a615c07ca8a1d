"""Watches one admitted answer on its way out and gives the permit back when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from admission.client.aio import Permit
from admission.client.containment import Containment
from admission.client.inbox import Inbox
from admission.client.stream import AnswerReader, outcome_of_status
from admission.vocabulary import Outcome

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class Meter:
    """Wraps `send` for one request. Faults of the reading are contained; the message goes out regardless."""

    __slots__ = ("_aborted", "_answered", "_guard", "_inbox", "_permit", "_reader", "_send", "_status")

    def __init__(
        self,
        send: Send,
        permit: Permit,
        inbox: Inbox,
        containment: Containment,
        answered: Callable[[int], None],
    ) -> None:
        self._send, self._permit, self._inbox = send, permit, inbox
        self._answered = answered
        self._guard = containment.at("answer")
        self._reader: AnswerReader | None = None
        self._status = 0
        self._aborted = False

    async def send(self, message: Message) -> None:
        """What the application calls."""
        with self._guard:
            self._look(message)
        try:
            await self._send(message)
        except OSError:
            self._aborted = True
            raise

    def failed(self, error: BaseException) -> None:
        """The application raised."""
        if isinstance(error, asyncio.CancelledError) or self._aborted or self._inbox.disconnected:
            self._finish(Outcome.ABORTED)
        else:
            self._finish(Outcome.ERROR)

    def returned(self) -> None:
        """The application returned. An answer without its end, which nobody left, was cut short by the engine."""
        self._finish(Outcome.ABORTED if self._aborted or self._inbox.disconnected else Outcome.ERROR)

    def _look(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            self._count(message.get("body") or b"")
            if not message.get("more_body", False):
                self._complete()
        elif kind == "http.response.start":
            self._status = message["status"]
            self._reader = _reader_for(message)
            self._answered(self._status)
        elif kind == "http.response.pathsend":
            self._complete()

    def _count(self, body: bytes) -> None:
        reader, permit = self._reader, self._permit
        if reader is None or not body:
            return
        if reader.first_token:
            permit.chunks(reader.feed(body))
            return
        chunks = reader.feed(body)
        if reader.first_token:
            permit.first_token()
        if chunks:
            permit.chunks(chunks)

    def _complete(self) -> None:
        outcome = outcome_of_status(self._status)
        if self._reader is not None and outcome is Outcome.OK:
            outcome = self._reader.error_outcome() or outcome
        if self._inbox.disconnected and outcome is Outcome.OK:
            outcome = Outcome.ABORTED
        self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        usage = None
        with self._guard:
            if self._reader is not None and self._permit.tracked:
                usage = self._reader.usage()
        self._permit.finish(outcome, usage)


def _reader_for(start: Message) -> AnswerReader:
    """A reader that fits the content type; a compressed answer is only counted."""
    headers = {name.lower(): value for name, value in start.get("headers") or ()}
    events = headers.get(b"content-type", b"").startswith(b"text/event-stream")
    encoded = headers.get(b"content-encoding", b"identity") != b"identity"
    return AnswerReader(events=events, opaque=encoded and events)
