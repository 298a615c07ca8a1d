"""Records every input of every controller in a ring of self-contained segments, off the loop's path."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from admission.core.model import Event
from admission.runtime import records, segments
from admission.runtime.inputs import ControllerPort, Op
from admission.runtime.settings import JournalConfig

LOG = logging.getLogger(__name__)
RECORD_FORMAT = 1

_STOP = None
_NOTHING = records.events_out(())


class Journal:
    """Keeps inputs in memory for an instant, encodes them in batches, and lets a thread write them.

    When the disk is slower than the inputs, batches are dropped and counted, and the next segment begins with a
    snapshot of its own. When the folder cannot be written, nothing is kept and `warn` hears why, once.
    """

    def __init__(self, folder: Path, config: JournalConfig, warn: Callable[[str], None]) -> None:
        self._config = config
        self._pending: list[tuple[str, Op, tuple[Any, ...], float, list[Event]]] = []
        self._chunk: list[bytes] = []
        self._chunk_bytes = self._chunk_inputs = 0
        self._controllers: Mapping[str, ControllerPort] = {}
        self._whole = False
        """The open segment has every input since its snapshot."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._warn = warn
        self._writer = _Writer(folder, config)
        self.dropped_inputs = 0
        self.unencodable_inputs = 0
        """Of those dropped: what could not be put into bytes, which is a bug."""
        self.recorded_inputs = 0

    @property
    def writable(self) -> bool:
        """False once the folder could not be written: memory only from then on."""
        return self._writer.error == ""

    def start(self, controllers: Mapping[str, ControllerPort]) -> None:
        """Record from now on, on the running loop; the controllers are those that the inputs go to."""
        self._controllers = controllers
        self._writer.start()
        if self.writable:
            self._loop = asyncio.get_running_loop()
            self._begin_segment()
        else:
            self._give_up()

    def close(self) -> None:
        """Write what there is and end the thread, waiting for the disk at most 5 s."""
        self.flush()
        if self._flush_timer:
            self._flush_timer.cancel()
        self._writer.stop()

    def record(self, target: str, op: Op, args: tuple[Any, ...], now: float, events: list[Event]) -> None:
        """One input and what came of it. Cheap: the work is done for many at once."""
        if self._loop is None:
            return
        pending = self._pending
        pending.append((target, op, args, now, events))
        if len(pending) >= self._config.batch:
            self._encode_pending()
            if self._chunk_bytes >= self._config.chunk_bytes:
                self.flush()
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._config.flush_s, self._on_timer)

    def flush(self) -> None:
        """Hand everything recorded so far to the thread."""
        self._encode_pending()
        chunk, count = b"".join(self._chunk), self._chunk_inputs
        self._chunk, self._chunk_bytes, self._chunk_inputs = [], 0, 0
        if not count:
            return
        if not self.writable:
            self._give_up()
        elif self._whole:
            self._write(chunk, count)
        else:
            # Inputs were dropped: what comes cannot be replayed before a new snapshot, which has these in it.
            self.dropped_inputs += count
            if self._writer.has_room:
                self._begin_segment()

    def _on_timer(self) -> None:
        self._flush_timer = None
        self.flush()

    def _encode_pending(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        try:
            data = _encode(pending)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next batch may be fine
            self._not_encoded(error, len(pending))
            return
        self._chunk.append(data)
        self._chunk_bytes += len(data)
        self._chunk_inputs += len(pending)

    def _not_encoded(self, error: Exception, inputs: int) -> None:
        """What follows cannot be replayed before a new snapshot."""
        if not self.unencodable_inputs:
            LOG.error("journal_not_encoded", exc_info=error, extra={"inputs": inputs})
        self.unencodable_inputs += inputs
        self.dropped_inputs += inputs
        self._whole = False

    def _give_up(self) -> None:
        self._loop = None
        self._warn(f"journal not written: {self._writer.error}; inputs are kept nowhere")

    def _write(self, data: bytes, count: int) -> None:
        if not self._writer.offer(segments.BATCH, data):
            self.dropped_inputs += count
            self._whole = False
            return
        self.recorded_inputs += count
        if self._writer.segment_bytes >= self._config.segment_bytes:
            self._begin_segment()

    def _begin_segment(self) -> None:
        """A snapshot first. Called between inputs only, when nothing is pending."""
        snapshot = segments.encode(
            {"format": RECORD_FORMAT, "at_unix_s": time.time(), "controllers": dict(self._controllers)}
        )
        self._writer.segment_bytes = 0
        self._whole = self._writer.offer(segments.SNAPSHOT, snapshot)


def _encode(pending: list[tuple[str, Op, tuple[Any, ...], float, list[Event]]]) -> bytes:
    """Rows of (target, op, now, arguments, digest of the events, their kinds)."""
    out, events_out = records.INPUT_OUT, records.events_out
    rows = [
        (target, int(op), now, out[op](args), *(events_out(events) if events else _NOTHING))
        for target, op, args, now, events in pending
    ]
    return segments.encode(rows)


class _Writer:
    """The thread: compresses, writes, rotates. Compression and writing let the loop run."""

    def __init__(self, folder: Path, config: JournalConfig) -> None:
        self._folder = folder
        self._config = config
        self._queue: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._number = 0
        self.error = ""
        self.segment_bytes = 0
        """Written to the open segment, about."""

    @property
    def has_room(self) -> bool:
        """Whether the disk has caught up by half."""
        return self._waiting_bytes * 2 <= self._config.buffer_bytes

    def start(self) -> None:
        """Begin, if the folder can be made."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._fail(error)
            return
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, then end."""
        if self._thread:
            self._queue.put(_STOP)
            self._thread.join(5.0)

    def offer(self, kind: int, data: bytes) -> bool:
        """Take it for writing; False when too much waits already or nothing can be written."""
        if self.error or self._thread is None:
            return False
        with self._lock:
            if self._waiting_bytes + len(data) > self._config.buffer_bytes and self._waiting_bytes:
                return False
            self._waiting_bytes += len(data)
        self._queue.put((kind, data))
        return True

    def _run(self) -> None:
        file: FileIO | None = None
        try:
            while (item := self._queue.get()) is not _STOP:
                kind, data = item
                if kind == segments.SNAPSHOT:
                    if file:
                        file.close()
                    file = self._next_file()
                if file:
                    self.segment_bytes += file.write(segments.frame(kind, data))
                with self._lock:
                    self._waiting_bytes -= len(data)
        except OSError as error:
            self._fail(error)
        finally:
            if file:
                file.close()

    def _fail(self, error: OSError) -> None:
        self.error = str(error)
        LOG.warning("journal_off", extra={"folder": str(self._folder), "error": self.error})

    def _next_file(self) -> FileIO:
        newest = max((int(path.stem) for path in self._present()), default=0)
        self._number = max(newest, self._number) + 1
        self._make_room()
        file = (self._folder / f"{self._number:010d}{segments.SUFFIX}").open("xb", buffering=0)
        file.write(segments.MAGIC)
        return file

    def _present(self) -> list[Path]:
        return [path for path in segments.segments(self._folder) if path.stem.isdigit()]

    def _make_room(self) -> None:
        """Deletes the oldest segments until one more fits into the ring."""
        sizes = [(path, path.stat().st_size) for path in self._present()]
        total = sum(size for _, size in sizes)
        for path, size in sizes:
            if total + self._config.segment_bytes + self._config.buffer_bytes <= self._config.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size
