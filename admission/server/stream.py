"""One Session stream: reads messages, writes what has gathered, and tells a goodbye from a break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from admission.runtime.host import Host
from admission.server.handlers import CORRUPT, refuse_corrupt
from admission.server.session import Session
from admission.server.sessions import SessionRefusedError, Sessions

_GOODBYE_S = 0.02
"""A break looks like a goodbye first; its cancellation follows at once."""
_STATUS = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "older": grpc.StatusCode.ABORTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class SessionStreams:
    """Serves the Session method."""

    def __init__(self, sessions: Sessions, host: Host, note_decision: Callable[[float, float], None]) -> None:
        self._sessions = sessions
        self._now = host.now
        self._note = note_decision
        self._max_outbox = sessions.config.max_outbox

    async def serve(self, context: Any) -> None:
        """One stream from its Hello to its end."""
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        if first is CORRUPT:
            await refuse_corrupt(context)
        if not first.HasField("hello"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must have hello")
        try:
            session = self._sessions.attach(first.hello, self._now())
        except SessionRefusedError as refused:
            await context.abort(_STATUS[refused.kind], str(refused))
            return
        await _Stream(session, self._sessions, context, self._now, self._note).run(first)


class _Stream:
    """The two halves of one attached stream."""

    def __init__(
        self,
        session: Session,
        sessions: Sessions,
        context: Any,
        now: Callable[[], float],
        note: Callable[[float, float], None],
    ) -> None:
        self._session = session
        self._sessions = sessions
        self._context = context
        self._now = now
        self._note = note
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._attach = session.attach
        self._why_closed = ""
        self._reader = asyncio.current_task()

    async def run(self, first: Any) -> None:
        """Serve until the client leaves, breaks or is replaced."""
        session = self._session
        session.notify, session.close = self._wake.set, self._close
        if session.anything:
            self._wake.set()
        writer = asyncio.create_task(self._write())
        try:
            self._sessions.receive(session, first, self._now())
            if await self._read():
                self._end(self._sessions.leave)
        except asyncio.CancelledError:
            if not self._why_closed:
                raise
            await self._context.abort(grpc.StatusCode.ABORTED, self._why_closed)
        finally:
            writer.cancel()
            self._end(self._sessions.detach)

    def _end(self, how: Callable[[Session], None]) -> None:
        """Once, and never for a stream that was replaced."""
        if self._session.attach == self._attach and self._session.attached:
            how(self._session)

    def _close(self, why: str) -> None:
        self._why_closed = why
        if self._reader:
            self._reader.cancel()

    async def _read(self) -> bool:
        """Reads to the end; True when the client said goodbye."""
        read, receive, session, now = self._context.read, self._sessions.receive, self._session, self._now
        max_outbox = session.config.max_outbox
        while True:
            message = await read()
            if message is grpc.aio.EOF:
                await asyncio.sleep(_GOODBYE_S)
                return True
            if message is CORRUPT:
                await refuse_corrupt(self._context)
            came = now()
            receive(session, message, came)
            session.worked_s = max(session.worked_s, now() - came)
            if len(session.out.decisions) > max_outbox:
                self._drained.clear()
                await self._drained.wait()

    async def _write(self) -> None:
        """Sends at once; what gathers while a write is under way goes with the next."""
        session, wake, write, now = self._session, self._wake, self._context.write, self._now
        while True:
            await wake.wait()
            wake.clear()
            if session.attach != self._attach:
                return
            began = now()
            took_s = session.took(began)
            response = session.take(began)
            if response is None:
                continue
            if took_s is not None:
                self._note(took_s, began)
            session.write_began_at = began
            try:
                await write(response)
            except Exception:  # noqa: BLE001 - gRPC raises several private kinds for one thing
                # The stream is gone: the reading half learns of it by its cancellation.
                return
            finally:
                session.write_began_at = None
                session.free_at = now()
            self._drained.set()
