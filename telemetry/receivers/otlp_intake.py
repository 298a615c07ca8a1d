"""Where OTLP payloads wait, raw and bounded, until they are parsed: the newest first, the oldest dropped."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError

from admission.wire.otlp_pb2 import TraceRequest
from telemetry.receivers import Emit
from telemetry.receivers.otlp_spans import Batch, SpanReader

MAX_WAITING = 1024
MAX_WAITING_BYTES = 32 << 20
ANSWER_WITHIN_S = 0.25
MAX_EMPTY = 65_536
"""Empty messages in one payload: parsing one costs 25 times its two bytes, and time that nobody else has."""
RETRY_AFTER_S = 1.0


_EMPTY = tuple(bytes((field << 3 | 2, 0)) for field in range(1, 16))
"""Fields of length 0, with a tag of one byte."""


class Signal(StrEnum):
    """What a payload holds."""

    TRACES = "traces"
    METRICS = "metrics"


class NotNowError(Exception):
    """The intake does not run: it starts or stops."""


class Answer(NamedTuple):
    """What the sender is told. `garbage` is why nothing of it could be read."""

    rejected: int = 0
    message: str = ""
    garbage: str = ""


ACCEPTED = Answer()

MetricsReader = Callable[[bytes, Batch], Answer]
"""Emits what one metrics payload says. Raises DecodeError for garbage."""


@dataclass(slots=True, eq=False)
class Payload:
    """Bytes as they came, and who waits for the answer."""

    signal: Signal
    body: bytes
    batch: Batch
    answer: asyncio.Future[Answer] = field(repr=False)


class Intake:
    """A Receiver that parses what listeners take. It never pushes back while it runs.

    A sender waits for its answer a quarter of a second; one whose payload is still waiting then, or was dropped for
    newer ones, is told that it was accepted: sending it again would help nobody.
    """

    name = "otlp"

    def __init__(
        self,
        spans: SpanReader,
        metrics: MetricsReader,
        *,
        slice_of: int = 256,
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spans = spans
        self._metrics = metrics
        self._slice_of = slice_of
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._clock = clock
        self._wall_ns = wall_ns
        self._waiting: deque[Payload] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._emit: Emit | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes not parsed yet."""
        return self._bytes

    async def take(self, signal: Signal, body: bytes, *, steers: bool) -> Answer:
        """The answer to a payload. Raises NotNowError before `run` and after it."""
        answer = self.offer(signal, body, steers=steers)
        await asyncio.wait((answer,), timeout=ANSWER_WITHIN_S)
        return answer.result() if answer.done() else ACCEPTED

    def offer(self, signal: Signal, body: bytes, *, steers: bool) -> asyncio.Future[Answer]:
        """Keeps a payload, at the cost of the oldest. Raises NotNowError before `run` and after it."""
        if self._emit is None:
            raise NotNowError
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        batch = Batch(self._emit, self._clock(), self._wall_ns(), steers)
        self._waiting.append(Payload(signal, body, batch, answer))
        self._bytes += len(body)
        self._drop_oldest(self._emit)
        self._arrived.set()
        return answer

    async def run(self, emit: Emit) -> None:
        """Parses until cancelled."""
        self._emit = emit
        try:
            while True:
                if not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                payload = self._waiting.pop()
                self._bytes -= len(payload.body)
                await self._parse(payload, emit)
        finally:
            self._emit = None
            while self._waiting:
                _tell(self._waiting.pop(), ACCEPTED)
            self._bytes = 0

    def _drop_oldest(self, emit: Emit) -> None:
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._max_waiting or self._bytes > self._max_waiting_bytes
        ):
            oldest = self._waiting.popleft()
            self._bytes -= len(oldest.body)
            emit.count("otlp_dropped_payloads")
            emit.count("otlp_dropped_bytes", len(oldest.body))
            _tell(oldest, ACCEPTED)

    async def _parse(self, payload: Payload, emit: Emit) -> None:
        batch = payload.batch
        emit.count(f"otlp_{payload.signal}_payloads")
        try:
            _check_empty(payload.body)
            if payload.signal is Signal.METRICS:
                answer = self._metrics(payload.body, batch)
            else:
                for _ in self._read_spans(payload.body, batch):
                    await asyncio.sleep(0)
                answer = Answer(batch.rejected, batch.message)
        except (DecodeError, ValueError) as error:
            emit.count("otlp_garbage_payloads")
            answer = Answer(garbage=f"not an OTLP {payload.signal} request: {type(error).__name__}")
        _tell(payload, answer)
        await asyncio.sleep(0)

    def _read_spans(self, body: bytes, batch: Batch) -> Iterator[None]:
        return self._spans.read(TraceRequest.FromString(body), batch, self._slice_of)


def _check_empty(body: bytes) -> None:
    """Before the parser, which holds everybody up for seconds and cannot be interrupted. Counting is cheap."""
    if len(body) > 2 * MAX_EMPTY and sum(body.count(each) for each in _EMPTY) > MAX_EMPTY:
        raise ValueError(f"more than {MAX_EMPTY} empty messages")


def _tell(payload: Payload, answer: Answer) -> None:
    if not payload.answer.done():
        payload.answer.set_result(answer)
