"""The session for programs without an event loop: the asyncio shell on one background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator

from admission.client.aio import AsyncClient, Permit
from admission.client.calls import Answer, Usage
from admission.client.errors import Refused
from admission.client.fork import tell_of_forks
from admission.client.settings import ClientSettings
from admission.client.transport import Carrier, GrpcCarrier
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome

_START_S = 5.0
_CLOSE_S = 5.0


class SyncClient:
    """Asks for permits from threads. The background thread starts with the first question.

    It may be built before a fork but not asked before it, as AsyncClient: in a child of a process that had asked, a
    new thread starts, the fail policy decides everything, and the log and `forked` in `stats` say so.
    """

    def __init__(
        self,
        settings: ClientSettings | None = None,
        *,
        carrier: Callable[[ClientSettings], Carrier] = GrpcCarrier,
    ) -> None:
        self._settings = settings if settings is not None else ClientSettings.from_environment()
        self._carrier = carrier
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        tell_of_forks(self)

    def acquire(self, ticket: Ticket, timeout_s: float | None = None) -> SyncPermit:
        """Asks and waits for the final answer. TimeoutError after `timeout_s`.

        Whatever else ends the wait, such as a signal's exception, the question or the permit is taken back as well.
        """
        thread = self._running()
        question = _Question(thread, ticket)
        try:
            return SyncPermit(thread.loop, question.ask(timeout_s))
        except concurrent.futures.TimeoutError:
            question.take_back()
            raise TimeoutError(f"no final answer within {timeout_s} s") from None
        except BaseException:
            question.take_back()
            raise

    @contextlib.contextmanager
    def permit(self, ticket: Ticket, timeout_s: float | None = None) -> Iterator[SyncPermit]:
        """Holds a permit for a `with` block: OK at its end, ERROR when it raises. Raises Refused when not admitted."""
        permit = self.acquire(ticket, timeout_s)
        outcome = Outcome.ERROR
        try:
            if not permit.admitted:
                raise Refused(permit.answer)
            yield permit
            outcome = Outcome.OK
        finally:
            permit.finish(outcome)

    def stats(self) -> dict[str, int | str]:
        """A snapshot of the client's state and counts; empty before the first question in this process."""
        thread = self._thread
        return dict(thread.client.stats()) if thread is not None else {}

    def close(self) -> None:
        """Says good-bye and ends the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _running(self) -> _LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread(AsyncClient(self._settings, carrier=self._carrier))
            return self._thread

    def forget_parent(self) -> object:
        """In a forked child: the thread stayed behind, perhaps with the lock. Returns it, not to be freed."""
        self._lock = threading.Lock()
        thread, self._thread = self._thread, None
        return thread


class _Question:
    """One ticket on its way through the loop's thread; it can be taken back at any moment, also before it is asked."""

    def __init__(self, thread: _LoopThread, ticket: Ticket) -> None:
        self._thread, self._ticket = thread, ticket
        self._permit: Permit | None = None
        self._taken_back = False

    def ask(self, timeout_s: float | None) -> Permit:
        """The decided permit. TimeoutError after `timeout_s`."""
        return asyncio.run_coroutine_threadsafe(self._ask(), self._thread.loop).result(timeout_s)

    def take_back(self) -> None:
        """Whatever was or will be granted is given back."""
        self._taken_back = True
        with contextlib.suppress(RuntimeError):  # the client was closed: nothing is held
            self._thread.loop.call_soon_threadsafe(self._give_back)

    async def _ask(self) -> Permit:
        permit = self._permit = self._thread.client.ask(self._ticket)
        if self._taken_back:
            permit.finish(Outcome.ABORTED)
        elif permit.pending:
            await permit.future()
        return permit

    def _give_back(self) -> None:
        if self._permit is not None:
            self._permit.finish(Outcome.ABORTED)
            self._permit.future().cancel()


class SyncPermit:
    """A decided question; its methods may be called from any thread and do not wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, permit: Permit) -> None:
        self._loop, self._permit = loop, permit

    @property
    def answer(self) -> Answer:
        """The final answer."""
        return self._permit.answer

    @property
    def admitted(self) -> bool:
        """True when the request may run."""
        return self._permit.admitted

    def first_token(self) -> None:
        """The first non-empty output came."""
        self._call(self._permit.first_token)

    def chunks(self, count: int = 1) -> None:
        """More output chunks came."""
        self._call(self._permit.chunks, count)

    def finish(self, outcome: Outcome = Outcome.OK, usage: Usage | None = None) -> None:
        """Gives the permit back; may be called again."""
        self._call(self._permit.finish, outcome, usage)

    def _call(self, method: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the client was closed: the permit is free already
            self._loop.call_soon_threadsafe(method, *arguments)


class _LoopThread:
    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="tidegate-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def stop(self) -> None:
        """Closes the client, then the loop and the thread."""
        closing = asyncio.run_coroutine_threadsafe(self.client.close(), self.loop)
        with contextlib.suppress(concurrent.futures.TimeoutError):
            closing.result(_CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_START_S)
