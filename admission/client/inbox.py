"""Reads ahead in a request's messages and plays them back, so that the application misses none."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class Inbox:
    """Wraps `receive`. What was read ahead comes first; `disconnected` turns true when the caller left."""

    __slots__ = ("_ahead", "_complete", "_limit", "_pending", "_receive", "_size", "disconnected")

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit = receive, limit
        self._ahead: deque[Message] = deque()
        self._pending: asyncio.Task[None] | None = None
        self._size, self._complete = 0, False
        self.disconnected = False

    async def body(self) -> bytes | None:
        """The whole body; None when it is longer than the limit or the caller left. Nothing is lost either way."""
        while not self._complete and not self.disconnected and self._size <= self._limit:
            await self._read_one()
        if self.disconnected or self._size > self._limit:
            return None
        if len(self._ahead) == 1:
            return self._ahead[0].get("body") or b""
        return b"".join(message.get("body") or b"" for message in self._ahead)

    async def start(self) -> bytes:
        """The first part of the body."""
        if not self._ahead:
            await self._read_one()
        return self._ahead[0].get("body") or b""

    def next_message(self) -> asyncio.Task[None] | None:
        """A task that ends when one more message was read ahead; None when enough was read."""
        if self._size > self._limit or self.disconnected:
            return None
        if self._pending is None or self._pending.done():
            self._pending = asyncio.create_task(self._read_one())
        return self._pending

    async def receive(self) -> Message:
        """What the application calls."""
        if not self._ahead and self._pending is not None:
            pending, self._pending = self._pending, None
            await pending
        if self._ahead:
            return self._ahead.popleft()
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.disconnected = True
        return message

    async def _read_one(self) -> None:
        message = await self._receive()
        self._ahead.append(message)
        if message["type"] == "http.disconnect":
            self.disconnected = True
        else:
            self._size += len(message.get("body") or b"")
            self._complete = not message.get("more_body", False)

    def close(self) -> None:
        """Ends a read that nobody waits for."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
