"""The telemetry process's end of the link: a bounded queue that drops the oldest while the loop is behind."""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from admission.core.model import Reading, Sample
from telemetry.frames import Encoder
from telemetry.link import TelemetryView

MAX_WAITING = 8192
BATCH = 64


class LinkSender:
    """A TelemetrySink that writes to a socket and never waits. What it drops it counts in `dropped`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._encoder = Encoder()
        self._waiting: deque[tuple[str, Reading | Sample]] = deque()
        self._view: TelemetryView | None = None
        self._unsent = b""
        self._blocked = False
        self.dropped = 0
        self.closed = asyncio.Event()
        """Set when the admission loop is gone."""

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value."""
        self._offer((target, reading))

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request."""
        self._offer((target, sample))

    def view(self, view: TelemetryView) -> None:
        """The newest view replaces one not sent yet."""
        self._view = view
        self._wake()

    def _offer(self, record: tuple[str, Reading | Sample]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(record)
        self._wake()

    def _wake(self) -> None:
        if not self._blocked and not self.closed.is_set():
            self._blocked = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Writes until all is sent or the socket is full; what gathers meanwhile goes in one write."""
        self._loop.remove_writer(self._sock)
        try:
            while self._unsent or self._waiting or self._view is not None:
                self._unsent = self._unsent or self._next()
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._write)
            return
        except OSError:
            self.closed.set()
            return
        self._blocked = False

    def _next(self) -> bytes:
        frames = []
        if self._view is not None:
            frames.append(self._encoder.view(self._view))
            self._view = None
        for _ in range(min(BATCH, len(self._waiting))):
            target, record = self._waiting.popleft()
            if isinstance(record, Reading):
                frames.append(self._encoder.reading(target, record))
            else:
                frames.append(self._encoder.sample(target, record))
        return b"".join(frames)
