"""Runs the engine model on the event loop's clock and hands its tokens to the requests that wait for them.

One loop serves all: after each step it appends what is new to each request and wakes it; a request that is slow
to read finds several steps' tokens in one go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from admission.simulation.engine import Engine, Sequence, StepResult
from admission.simulation.standin.settings import StandInConfig
from admission.simulation.standin.wire import Ask

CATCH_UP_S = 0.05
"""How late the loop may be before the model's time is moved on; below it steps stay back to back."""


class EngineDownError(RuntimeError):
    """The engine is down, or went down under a request."""


class EngineFullError(RuntimeError):
    """The engine's own static limit refused the request."""


@dataclass(slots=True)
class Delta:
    """New tokens of one sequence of a request."""

    index: int
    tokens: int
    first: bool
    finished: bool


@dataclass(slots=True, eq=False)
class Call:
    """One HTTP request in the engine."""

    id: str
    ask: Ask
    trace_headers: dict[str, str]
    began_ns: int
    open: int = 0
    streams: list[Stream] = field(default_factory=list)
    pending: list[Delta] = field(default_factory=list)
    failed: bool = False
    gone: bool = False
    waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake the request's task if it waits."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def take(self) -> list[Delta]:
        """Wait for news; an empty list means that the caller left.

        Raises:
            EngineDownError: the engine went down.
        """
        while not (self.pending or self.failed or self.gone):
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        if self.failed:
            raise EngineDownError
        taken, self.pending = self.pending, []
        return taken


@dataclass(slots=True, eq=False)
class Stream:
    """One sequence of a request."""

    call: Call
    index: int
    sequence: Sequence
    sent: int = 0


class Driver:
    """The engine in real time.

    Args:
        config: which engine and how fast.
        finished: told of each sequence that ended whole.
        stepped: told of each step, with the seconds since the step before it ended (0 after an idle time).
    """

    def __init__(
        self,
        config: StandInConfig,
        finished: Callable[[Stream], None] = lambda _: None,
        stepped: Callable[[StepResult, float], None] = lambda _, __: None,
    ) -> None:
        self.config = config
        random = Random(config.seed)  # noqa: S311 - step noise, no secret
        sigma = config.noise_ratio
        noise = (lambda: random.lognormvariate(0.0, sigma)) if sigma else None
        self.engine = Engine(config.engine_config(), noise)
        self.rejections_total = 0
        self.aborted_total = 0
        self.lag_s = 0.0
        self.down_until = float("-inf")
        self._finished = finished
        self._stepped = stepped
        self._calls: dict[str, Call] = {}
        self._streams: dict[Sequence, Stream] = {}
        self._decoding: dict[Sequence, Stream] = {}
        self._wake = asyncio.Event()

    @property
    def open_calls(self) -> int:
        """Requests that wait or run."""
        return len(self._calls)

    @property
    def down(self) -> bool:
        """Whether the engine is down now."""
        return time.monotonic() < self.down_until

    def submit(self, id: str, ask: Ask, trace_headers: dict[str, str]) -> Call:
        """Hand a request to the engine.

        Raises:
            EngineDownError: it is down.
            EngineFullError: its own limit on requests is reached.
            ValueError: a sequence can never fit.
        """
        if self.down:
            raise EngineDownError
        if self.config.max_num_queued_reqs and self.open_calls >= self.config.max_num_queued_reqs:
            self.rejections_total += 1
            raise EngineFullError
        call = Call(id, ask, trace_headers, time.time_ns())
        now = time.monotonic()
        self._calls[id] = call
        for index, prompt in enumerate(ask.prompts):
            sequence = self.engine.submit((id, index), prompt, ask.output_tokens, now)
            stream = Stream(call, index, sequence)
            self._streams[sequence] = stream
            call.streams.append(stream)
        call.open = len(call.streams)
        self._wake.set()
        return call

    def leave(self, call: Call) -> None:
        """Forget a request: what has not finished is aborted and its KV freed. Repeating it does nothing."""
        if self._calls.pop(call.id, None) is None:
            return
        for stream in call.streams:
            if self._streams.pop(stream.sequence, None) is not None:
                self._decoding.pop(stream.sequence, None)
                self.aborted_total += self.engine.abort(stream.sequence.id)

    def slow(self, factor: float) -> None:
        """Make each step that begins from now on `factor` times as long.

        Raises:
            ValueError: factor is not positive.
        """
        if not 0 < factor < float("inf"):
            raise ValueError("slow must be positive")
        self.engine.slow = factor

    def stall(self, seconds: float) -> None:
        """Begin no step for that long; what is under way ends."""
        self.engine.stalled_until = time.monotonic() + seconds

    def go_down(self, seconds: float) -> None:
        """Lose everything and refuse requests for that long."""
        self.down_until = time.monotonic() + seconds
        self.engine.reset()
        for call in self._calls.values():
            call.failed = True
            call.notify()
        self._calls.clear()
        self._streams.clear()
        self._decoding.clear()

    async def run(self) -> None:
        """Step the engine until cancelled."""
        ready_at = time.monotonic()
        ended_at: float | None = None
        while True:
            now = time.monotonic()
            if now - ready_at > CATCH_UP_S:
                self.lag_s += now - ready_at if ended_at is not None else 0.0
                ready_at = now
            ends_at = self.engine.begin(min(ready_at, now))
            if ends_at is None:
                ended_at = None
                self._wake.clear()
                await self._wake.wait()
                ready_at = time.monotonic()
                continue
            step = self.engine.step
            await asyncio.sleep(max(0.0, ends_at - time.monotonic()))
            if self.engine.step is not step:
                ended_at, ready_at = None, time.monotonic()
                continue
            result = self.engine.complete(max(ends_at, time.monotonic()))
            self._stepped(result, result.at - ended_at if ended_at is not None else 0.0)
            self._deliver(result)
            ready_at, ended_at = ends_at, result.at

    def _deliver(self, result: StepResult) -> None:
        for sequence in (*result.first, *result.resumed):
            stream = self._streams.get(sequence)
            if stream is not None and stream.call.ask.stream:
                self._decoding[sequence] = stream
        for sequence in result.finished:
            self._finish(sequence)
        chunk = self.config.tokens_per_chunk
        for sequence, stream in self._decoding.items():
            new = self.engine.generated(sequence) - stream.sent
            if new >= chunk or (new > 0 and stream.sent == 0):
                self._emit(stream, new, finished=False)

    def _finish(self, sequence: Sequence) -> None:
        stream = self._streams.pop(sequence, None)
        self._decoding.pop(sequence, None)
        if stream is None:
            return
        call = stream.call
        call.open -= 1
        self._finished(stream)
        self._emit(stream, sequence.output_tokens - stream.sent, finished=True)
        if call.open == 0:
            self._calls.pop(call.id, None)

    @staticmethod
    def _emit(stream: Stream, new: int, *, finished: bool) -> None:
        stream.call.pending.append(Delta(stream.index, new, stream.sent == 0, finished))
        stream.sent += new
        stream.call.notify()
