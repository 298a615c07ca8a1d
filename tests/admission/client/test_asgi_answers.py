"""Admitted answers to their end: every permit comes back, with the right outcome, however it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from admission.vocabulary import Outcome
from tests.admission.client.host import CHAT, Caller, Engine, Guarded, chunk, say, start
from tests.admission.client.sidecar import queue


def _outcomes(guarded: Guarded) -> list[Outcome]:
    return [Outcome(finish.outcome) for finish in guarded.sidecar.finishes]


async def _engine_error(receive: Any, send: Any, status: int) -> None:
    await receive()
    await start(send, status, b"application/json")
    await say(send, b'{"error": {"code": 1}}', more=False)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (503, Outcome.BUSY),
        (429, Outcome.BUSY),
        (500, Outcome.ERROR),
        (400, Outcome.INVALID),
        (404, Outcome.INVALID),
        (200, Outcome.OK),
    ],
)
async def test_the_engines_status_becomes_the_outcome(status: int, outcome: Outcome) -> None:
    """The law must not take a refusal of the engine for a fast success."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await _engine_error(receive, send, status)

    guarded = Guarded(Engine(script))
    await guarded.post()
    await guarded.settle()
    assert _outcomes(guarded) == [outcome]


async def test_an_ok_stream_with_only_an_error_is_busy() -> None:
    """vLLM's --max-num-queued-reqs answers 200 and an error event to streaming callers."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send, 200, b"text/event-stream")
        await say(send, b'data: {"error": {"message": "full", "code": 503}}\n\n')
        await say(send, b"data: [DONE]\n\n", more=False)

    guarded = Guarded(Engine(script))
    await guarded.post()
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.BUSY]
    assert guarded.sidecar.first_tokens == []


async def test_an_engine_that_raises_gives_the_permit_back() -> None:
    """And the exception goes its way."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send, 200, b"text/event-stream")
        await say(send, chunk({"content": "x"}))
        raise RuntimeError("engine died")

    guarded = Guarded(Engine(script))
    with pytest.raises(RuntimeError, match="engine died"):
        await guarded.post()
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.ERROR]
    assert guarded.sidecar.held == set()


async def test_an_answer_that_the_application_cuts_short_is_an_error() -> None:
    """A dead engine may return without an end; taken for a caller that left, it would never be an outage."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send, 200, b"text/event-stream")
        await say(send, chunk({"content": "x"}))

    guarded = Guarded(Engine(script))
    await guarded.post()
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.ERROR]
    assert guarded.sidecar.held == set()


async def test_a_caller_that_left_mid_stream_is_aborted() -> None:
    """vLLM returns without a final message and without an exception."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send, 200, b"text/event-stream")
        await say(send, chunk({"content": "x"}))
        assert (await receive())["type"] == "http.disconnect"

    guarded = Guarded(Engine(script))
    caller = Caller(json.dumps(CHAT).encode())
    caller.leave()
    await guarded.call(caller)
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.ABORTED]
    assert len(guarded.sidecar.first_tokens) == 1


async def test_a_send_that_fails_is_an_abort() -> None:
    """Some servers raise OSError when the caller is gone."""
    guarded = Guarded()
    caller = Caller(json.dumps(CHAT).encode())

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await guarded.app(caller.scope, caller.receive, send)
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.ABORTED]


async def test_a_cancelled_request_gives_the_permit_back() -> None:
    """Servers cancel the task of a request on shutdown."""
    running = asyncio.Event()

    async def script(_scope: Any, _receive: Any, _send: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    guarded = Guarded(Engine(script))
    task = asyncio.create_task(guarded.post())
    await running.wait()
    assert len(guarded.sidecar.held) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await guarded.settle()
    assert _outcomes(guarded) == [Outcome.ABORTED]
    assert guarded.sidecar.held == set()


async def test_a_caller_that_leaves_while_it_waits_is_taken_back_at_once() -> None:
    """An abandoned waiter must not keep its place, nor be run."""
    guarded = Guarded(policy=queue)
    caller = Caller(json.dumps(CHAT).encode())
    task = asyncio.create_task(guarded.call(caller))
    while not guarded.sidecar.waiting:
        await asyncio.sleep(0)
    caller.leave()
    await task
    await guarded.settle()
    assert guarded.sidecar.waiting == {}
    assert guarded.engine.scopes == []
    assert caller.sent == []
    assert guarded.stats["cancelled"] == 1


async def test_a_waiter_that_is_admitted_runs_with_its_whole_body() -> None:
    """Watching for its leaving must lose no message, also none that comes later."""
    guarded = Guarded(policy=queue)
    caller = Caller(json.dumps(CHAT).encode())
    task = asyncio.create_task(guarded.call(caller))
    while not guarded.sidecar.waiting or caller.reads < 2:
        await asyncio.sleep(0)
    guarded.carrier.streams[0].say(guarded.sidecar.grant(next(iter(guarded.sidecar.waiting))))
    await task
    await guarded.settle()
    assert caller.status == 200
    assert json.loads(guarded.engine.bodies[0]) == CHAT
    assert guarded.sidecar.held == set()
    assert caller.reads == 2, "nobody reads on when the request is over"


async def test_cancelled_waiters_leave_nothing() -> None:
    """The task is cancelled in the very moment of the grant."""
    guarded = Guarded(policy=queue)
    tasks = [asyncio.create_task(guarded.post()) for _ in range(50)]
    while len(guarded.sidecar.waiting) < 50:
        await asyncio.sleep(0)
    for index, no in enumerate(list(guarded.sidecar.waiting)):
        guarded.carrier.streams[0].say(guarded.sidecar.grant(no))
        for _ in range(index % 4):
            await asyncio.sleep(0)
        tasks[index].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await guarded.settle()
    assert guarded.stats["held"] == 0
    assert guarded.sidecar.held == set()
