"""How long a decision takes, as the sidecar tells it of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from admission.server.stream import SessionStreams
from tests.admission.server.desk import Context, Desk, ticket, wire

SLOW_S = 1.5


class Line(Context):
    """A stream's other end: it says what the test puts in, and takes an answer when the test lets it."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.room = asyncio.Semaphore(0)
        self.answers = 0
        self.say(wire.SessionRequest(hello=wire.Hello(session=b"s" * 16, attach=1)))

    def say(self, message: Any) -> None:
        """The client says something."""
        self.inbox.put_nowait(message)

    async def read(self) -> Any:
        """What the server reads."""
        return await self.inbox.get()

    async def write(self, _answer: Any) -> None:
        """Blocks while the client's end takes nothing."""
        self.answers += 1
        await self.room.acquire()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _served(desk: Desk, times: list[float]) -> tuple[Line, asyncio.Task[None]]:
    """A stream whose welcome is written and taken."""
    line = Line(desk)
    streams = SessionStreams(desk.sessions, desk.host, lambda took_s, _now: times.append(took_s))
    serving = asyncio.create_task(streams.serve(line))
    line.room.release()
    await _settle()
    assert line.answers == 1
    return line, serving


async def test_a_slow_link_is_not_a_slow_decision() -> None:
    """What waits for the client to take the answer before it was decided at once."""
    desk, times = Desk(), list[float]()
    line, serving = await _served(desk, times)
    line.say(wire.SessionRequest(acquires=[ticket(1)], seen=1))
    await _settle()
    line.say(wire.SessionRequest(acquires=[ticket(2)], seen=1, held_count=0))
    await _settle()
    assert line.answers == 2, "the second answer waits for the first to be taken"

    desk.now += SLOW_S
    line.room.release()
    await _settle()

    assert line.answers == 3
    assert times == [0.0, 0.0]
    line.room.release()
    line.say(grpc.aio.EOF)
    await serving


async def test_what_we_make_an_answer_wait_is_a_slow_decision() -> None:
    """Also when the write was free, or came free in the meantime."""
    desk, times = Desk(), list[float]()
    line, serving = await _served(desk, times)
    desk.step_s = 0.125
    line.say(wire.SessionRequest(acquires=[ticket(1)], seen=1))
    await _settle()

    assert len(times) == 1
    assert times[0] >= 0.25
    line.room.release()
    line.say(grpc.aio.EOF)
    await serving
