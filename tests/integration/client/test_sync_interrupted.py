"""A thread that is interrupted while it asks leaves nothing behind: no permit that nobody will ever give back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from admission.client import sync
from admission.client.settings import ClientSettings
from admission.client.sync import SyncClient
from admission.v1.types_pb2 import Ticket
from tests.admission.client.sidecar import MemoryCarrier, MemorySidecar, admit, queue

pytestmark = pytest.mark.integration


class _SoftTimeLimitError(Exception):
    """What task queues raise in the main thread from a signal handler."""


def _until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def _empty(client: SyncClient, sidecar: MemorySidecar) -> bool:
    return (
        not sidecar.held and not sidecar.waiting and client.stats()["held"] == client.stats()["waiting"] == 0
    )


@pytest.fixture
def sidecar() -> MemorySidecar:
    """Admits everything."""
    return MemorySidecar(admit)


@pytest.fixture
def client(sidecar: MemorySidecar) -> Iterator[SyncClient]:
    """A client of it."""
    client = SyncClient(ClientSettings(), carrier=MemoryCarrier(sidecar))
    yield client
    client.close()


def test_a_signal_while_queued_takes_the_question_back(client: SyncClient, sidecar: MemorySidecar) -> None:
    """It was once granted a moment later and held for ever."""
    sidecar.policy = queue

    def handler(*_: Any) -> None:
        raise _SoftTimeLimitError

    def interrupt() -> None:
        _until(lambda: sidecar.waiting)
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(_SoftTimeLimitError):
            client.acquire(Ticket())
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    _until(lambda: _empty(client, sidecar))


def test_an_interrupt_after_the_grant_gives_the_permit_back(
    client: SyncClient, sidecar: MemorySidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grant was there, and the caller will never see it."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sync, "SyncPermit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.acquire(Ticket())
    _until(lambda: len(sidecar.finishes) == 1)
    _until(lambda: _empty(client, sidecar))


def test_a_grant_that_crosses_the_timeout_is_given_back(
    client: SyncClient, sidecar: MemorySidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling a future whose work is done does nothing to what it holds."""
    result = concurrent.futures.Future.result

    def late(future: Any, timeout: float | None = None) -> Any:
        result(future, timeout)
        raise concurrent.futures.TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(concurrent.futures.Future, "result", late)
        with pytest.raises(TimeoutError, match=r"no final answer within 5\.0 s"):
            client.acquire(Ticket(), 5.0)
    _until(lambda: len(sidecar.finishes) == 1)
    _until(lambda: _empty(client, sidecar))


def test_what_is_taken_back_before_it_was_asked_is_not_kept(
    client: SyncClient, sidecar: MemorySidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt may come before the loop's thread has seen the question."""
    client.acquire(Ticket()).finish()

    def interrupted(question: Any, _timeout_s: float | None) -> Any:
        question.take_back()
        concurrent.futures.wait([asyncio.run_coroutine_threadsafe(question._ask(), question._thread.loop)])
        raise KeyboardInterrupt

    monkeypatch.setattr(sync._Question, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.acquire(Ticket())
    _until(lambda: _empty(client, sidecar))
