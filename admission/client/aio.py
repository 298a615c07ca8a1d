"""The session on an asyncio loop: one stream, one timer, no threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import random
from collections.abc import Callable

import grpc
import grpc.aio

from admission.client.answers import own_fault
from admission.client.calls import Answer, Call, CallState, Usage
from admission.client.containment import Containment
from admission.client.counters import Counters, prometheus_text
from admission.client.errors import ForkedError, Refused
from admission.client.fork import tell_of_forks
from admission.client.session import Session
from admission.client.settings import ClientSettings
from admission.client.switch import LOOK_EVERY_S, Switch
from admission.client.transport import Carrier, GrpcCarrier, Stream, client_name
from admission.v1.admission_service_pb2 import SessionResponse
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome

_LOG = logging.getLogger("tidegate.client")
_EOF = grpc.aio.EOF
_CLOSE_S = 2.0
_LATE_S = 0.05
_SECOND_LOOK_S = 0.02


class AsyncClient:
    """Asks for permits from asyncio code. Nothing is opened before the first question, so it may be built before a fork.

    It may not be asked before a fork: gRPC does not survive one once started. In such a child the fail policy decides
    everything; an error in the log says so once, and `forked` in `stats`.

    Every fault of its own is counted and answered by the fail policy; it raises only `Refused`
    (from `permit`) and `SettingsError` (from the settings).
    """

    def __init__(
        self,
        settings: ClientSettings | None = None,
        *,
        carrier: Callable[[ClientSettings], Carrier] = GrpcCarrier,
    ) -> None:
        self._carrier = carrier
        self.settings = settings if settings is not None else ClientSettings.from_environment()
        self._counters = Counters()
        self._switch = Switch(self.settings, self._counters)
        self._run: _Run | None = None
        self.containment = Containment(self._counters)
        tell_of_forks(self)

    def forget_parent(self) -> object:
        """In a forked child: the run and its counts are the parent's. Returns the run, which is not to be freed."""
        run, self._run = self._run, None
        self._counters.values.clear()
        return run

    def ask(self, ticket: Ticket) -> Permit:
        """Asks without waiting; `await permit.decided()` has the answer. Belongs to the running loop."""
        run = self._running()
        return Permit(run, run.acquire(ticket))

    async def acquire(self, ticket: Ticket) -> Permit:
        """Asks and waits for the final answer; look at `permit.admitted`. Cancelling it takes the question back."""
        permit = self.ask(ticket)
        await permit.decided()
        return permit

    async def permit(self, ticket: Ticket) -> Permit:
        """Like `acquire`, but raises `Refused` when the ticket may not run."""
        permit = await self.acquire(ticket)
        if not permit.admitted:
            raise Refused(permit.answer)
        return permit

    @property
    def passing_all(self) -> bool:
        """True when nothing needs asking: switched off here, or every target is off."""
        run = self._run
        now = run.loop.time() if run is not None else asyncio.get_running_loop().time()
        return self._switch.off(now) or (run is not None and run.session.passing_all)

    def count(self, name: str, label: str = "") -> None:
        """Adds to one of the client's counters."""
        self._counters.count(name, label)

    def stats(self) -> dict[str, int | str]:
        """A snapshot of the client's state and counts; empty before the first question in this process."""
        return self._run.session.stats() if self._run is not None else {}

    def metrics_text(self) -> str:
        """The same as Prometheus text."""
        session = self._running().session
        return prometheus_text(session.counters, session.gauges())

    async def close(self) -> None:
        """Says good-bye: the sidecar frees what this client still holds."""
        run, self._run = self._run, None
        if run is not None:
            await run.close()

    def _running(self) -> _Run:
        """The run of this loop. A new loop, as a fork, gets a new one, with an identity of its own."""
        loop = asyncio.get_running_loop()
        run = self._run
        if run is None or run.loop is not loop:
            run = self._run = _Run(
                self.settings, self._switch, loop, self._counters, self._carrier(self.settings)
            )
        return run


class Permit:
    """One question and, once admitted, the right to run. Give it back with `finish`, exactly in a `finally`."""

    __slots__ = ("_call", "_run")

    def __init__(self, run: _Run, call: Call) -> None:
        self._run, self._call = run, call

    @property
    def answer(self) -> Answer:
        """The final answer. Raises RuntimeError before there is one."""
        if self._call.answer is None:
            raise RuntimeError("not decided yet: await decided() first")
        return self._call.answer

    @property
    def admitted(self) -> bool:
        """True when the request may run."""
        return self.answer.admitted

    @property
    def pending(self) -> bool:
        """True while there is no final answer."""
        return self._call.answer is None

    @property
    def tracked(self) -> bool:
        """True while progress is of interest to somebody."""
        return self._call.state is CallState.HELD

    @property
    def queued(self) -> bool:
        """True when the sidecar said that the ticket waits."""
        return self._call.queued

    async def decided(self) -> Answer:
        """Waits for the final answer. Cancellation takes the question, or a permit just granted, back."""
        if self._call.answer is None:
            try:
                await self.future()
            except asyncio.CancelledError:
                self.finish(Outcome.ABORTED)
                raise
        return self.answer

    def future(self) -> asyncio.Future[None]:
        """Done at the final answer. For callers that wait for several things; they call `finish` when they give up."""
        if self._call.context is None:
            self._call.context = self._run.loop.create_future()
            if self._call.answer is not None:
                self._call.context.set_result(None)
        future: asyncio.Future[None] = self._call.context
        return future

    def first_token(self) -> None:
        """The first non-empty output came."""
        self._run.first_token(self._call)

    def chunks(self, count: int = 1) -> None:
        """More output chunks came; cheap, reported in batches."""
        self._run.session.chunks(self._call, count, self._run.loop.time())

    def finish(self, outcome: Outcome = Outcome.OK, usage: Usage | None = None) -> None:
        """Gives the permit back, or takes the question back. Does not wait; may be called again."""
        self._run.finish(self._call, outcome, usage)


class _Run:
    """A session bound to one loop of one process."""

    def __init__(
        self,
        settings: ClientSettings,
        switch: Switch,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        carrier: Carrier,
    ) -> None:
        self.loop = loop
        self.session = Session(
            settings,
            identity=os.urandom(16),
            name=client_name(),
            random=random.random,
            now=loop.time(),
            counters=counters,
        )
        self._switch = switch
        self._closed_policy = settings.fail == "closed"
        self._something = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._looked = False
        self._carrier = carrier
        self._stream: asyncio.Task[None] | None = None
        self._closing = False
        self._contain = Containment(self.session.counters).at
        if _LOG.getEffectiveLevel() > logging.WARNING and _LOG.level == logging.NOTSET:
            _LOG.setLevel(
                logging.WARNING
            )  # vLLM sets the root to ERROR, which would hide that the sidecar is lost

    def acquire(self, ticket: Ticket) -> Call:
        now = self.loop.time()
        with self._contain("acquire"):
            if self._switch.watched:
                self._resolve(self.session.set_off(self._switch.off(now), now))
            call = self.session.acquire(ticket, now)
            self._kick(now)
            return call
        return untracked(ticket, now, refuse=self._closed_policy and not self.session.in_shadow(ticket))

    def first_token(self, call: Call) -> None:
        with self._contain("first_token"):
            self.session.first_token(call, self.loop.time())
            self._something.set()

    def finish(self, call: Call, outcome: Outcome, usage: Usage | None) -> None:
        with self._contain("finish"):
            self.session.finish(call, outcome, usage)
            self._something.set()

    async def close(self) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        stream = self._stream
        if stream is not None:
            self._something.set()
            await asyncio.wait({stream}, timeout=_CLOSE_S)
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
        await self._carrier.close()

    # ---- timers

    def _kick(self, now: float) -> None:
        self._something.set()
        if self._stream is None and self.session.wants_stream(now):
            self._open()
        self._arm(now)

    def _arm(self, now: float) -> None:
        at = self.session.next_wakeup()
        if self._switch.watched:
            at = min(at if at is not None else now + LOOK_EVERY_S, now + LOOK_EVERY_S)
        if at is None or self._closing:
            return
        if self._timer is not None:
            # Not `when()` of the handle: uvloop, which vLLM runs on, gives one without it for a moment gone by.
            if self._timer_at <= at + 0.001:
                return
            self._timer.cancel()
        self._timer_at = max(at, now)
        self._timer = self.loop.call_at(at, self._tick, context=contextvars.Context())

    def _tick(self) -> None:
        self._timer = None
        now = self.loop.time()
        if self._look_again(now):
            return
        with self._contain("timer"):
            self._resolve(self.session.set_off(self._switch.off(now), now))
            self._resolve(self.session.wake(now))
            if self.session.link.hangup and self._stream is not None:
                self._stream.cancel()
            self._tell()
            self._kick(now)
        if self._timer is None and not self._closing:
            self._timer_at = self.loop.time() + LOOK_EVERY_S
            self._timer = self.loop.call_at(self._timer_at, self._tick)

    def _look_again(self, now: float) -> bool:
        """We were stopped ourselves: what we take for missed may lie unread, so it is read before anything is judged."""
        self._looked = not self._looked and now - self._timer_at > _LATE_S
        if self._looked:
            self._timer_at = now + _SECOND_LOOK_S
            self._timer = self.loop.call_at(self._timer_at, self._tick, context=contextvars.Context())
        return self._looked

    # ---- the stream

    def _open(self) -> None:
        if not self._closing:
            self._stream = self.loop.create_task(self._live(), context=contextvars.Context())

    async def _live(self) -> None:
        """One stream from Hello to its end; whatever ends it, the session hears why."""
        why = "a fault of our own"
        writer: asyncio.Task[None] | None = None
        with self._contain("stream"):
            try:
                self.session.opened(self.loop.time())
                stream = self._carrier.stream()
                writer = self.loop.create_task(self._write(stream))
                why = await self._read(stream)
            except asyncio.CancelledError:
                why = "no answer"
            except ForkedError as error:
                why = self._forked(error)
            finally:
                if writer is not None:
                    writer.cancel()
                self._ended(why)

    def _forked(self, error: ForkedError) -> str:
        self.session.counters.count("forked")
        if self.session.counters.get("forked") == 1:
            _LOG.error("tidegate: %s. The fail policy decides everything here", error)
        return str(error)

    async def _read(self, stream: Stream) -> str:
        """Takes messages until the stream ends; returns why it ended."""
        try:
            while (message := await stream.read()) is not _EOF:
                with self._contain("read"):
                    self._take_in(message)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {(error.details() or '')[:200]}"
        return "closed by the sidecar"

    def _take_in(self, message: SessionResponse) -> None:
        now = self.loop.time()
        self._resolve(self.session.received(message, now))
        if self.session.notices:
            self._tell()
        self._kick(now)

    async def _write(self, stream: Stream) -> None:
        """Writes at once; what gathers while a write is under way goes into the next one."""
        with self._contain("write"):
            with contextlib.suppress(
                grpc.RpcError, asyncio.InvalidStateError
            ):  # the reader sees it too, and why
                while not self._closing:
                    self._something.clear()
                    message = self.session.take(self.loop.time())
                    if message is None:
                        await self._something.wait()
                    else:
                        await stream.write(message)
                await self._say_goodbye(stream)
            return
        stream.cancel()

    async def _say_goodbye(self, stream: Stream) -> None:
        message = self.session.take(self.loop.time())
        if message is not None:
            await stream.write(message)
        await stream.done_writing()

    def _ended(self, why: str) -> None:
        self._stream = None
        with self._contain("close"):
            now = self.loop.time()
            self._resolve(self.session.closed(why, now))
            if not self._closing:
                self._tell()
                self._arm(now)

    # ---- small things

    def _resolve(self, calls: list[Call]) -> None:
        for call in calls:
            future = call.context
            if call.answer is not None and future is not None and not future.done():
                future.set_result(None)

    def _tell(self) -> None:
        while self.session.notices:
            notice = self.session.notices.popleft()
            _LOG.log(logging.WARNING if notice.loud else logging.INFO, "tidegate: %s", notice.text)


def untracked(ticket: Ticket, now: float, *, refuse: bool) -> Call:
    """A call decided without a permit, because we failed to ask for one."""
    call = Call(ticket, now, state=CallState.ENDED if refuse else CallState.PASSED)
    call.answer = own_fault(refuse=refuse)
    return call
