"""The link between the processes: nothing waits, the oldest goes first, no wake-up takes long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from admission.core.model import Reading, Sample
from admission.vocabulary import Outcome, SignalKind, Source
from telemetry.frames import Decoder
from telemetry.guard import GuardedSink
from telemetry.link import TelemetryView
from telemetry.process import Link
from telemetry.sender import MAX_WAITING, LinkSender


class Counted:
    """A sink that keeps what comes, and how much came in each turn of the loop."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.samples: list[Sample] = []
        self.views: list[TelemetryView] = []

    def reading(self, target: str, reading: Reading) -> None:
        """Keeps it."""
        self.readings.append(reading)

    def sample(self, target: str, sample: Sample) -> None:
        """Keeps it."""
        self.samples.append(sample)

    def view(self, view: TelemetryView) -> None:
        """Keeps it."""
        self.views.append(view)


def reading(value: float) -> Reading:
    """One of many."""
    return Reading(SignalKind.RUNNING, value, value, Source.SCRAPE, "m")


async def until(true: Callable[[], bool]) -> int:
    """Turns of the loop until something is so; at most 100,000."""
    for turn in range(100_000):
        if true():
            return turn
        await asyncio.sleep(0)
    raise AssertionError("it never became so")


async def test_everything_arrives_in_order() -> None:
    """As long as the other side reads."""
    ours, theirs = socket.socketpair()
    heard = Counted()
    with ours, theirs:
        link, sender = Link(ours, Decoder(heard)), LinkSender(theirs)
        link.open()
        for value in range(1000):
            sender.reading("t", reading(float(value)))
        sender.sample("t", Sample(1.0, Outcome.OK, request_key="k"))
        sender.view(TelemetryView(warnings=["w"]))
        await until(lambda: bool(heard.samples))
        link.close()
    assert [r.value for r in heard.readings] == list(range(1000))
    assert heard.views == [TelemetryView(warnings=["w"])]
    assert sender.dropped == 0


async def test_a_reader_that_is_behind_costs_the_oldest_and_no_memory() -> None:
    """The newest readings are worth most; what was dropped is counted."""
    ours, theirs = socket.socketpair()
    heard = Counted()
    with ours, theirs:
        sender = LinkSender(theirs)
        for value in range(30_000):
            sender.reading("t", reading(float(value)))
            if value % 1000 == 0:
                await asyncio.sleep(0)
        assert len(sender._waiting) <= MAX_WAITING
        assert sender.dropped > 10_000
        link = Link(ours, Decoder(heard))
        link.open()
        await until(lambda: bool(heard.readings) and heard.readings[-1].value == 29_999)
        link.close()
    assert len(heard.readings) + sender.dropped == 30_000
    newest = [reading.value for reading in heard.readings[-MAX_WAITING:]]
    assert newest == list(range(30_000 - MAX_WAITING, 30_000))


async def test_a_flood_takes_a_small_slice_of_each_turn() -> None:
    """Admission runs on this loop: between two of its turns telemetry may take a millisecond or two."""
    ours, theirs = socket.socketpair()
    heard = Counted()
    with ours, theirs:
        sender = LinkSender(theirs)
        for _ in range(5000):
            sender.sample("t", Sample(1.0, Outcome.OK, request_key="k" * 64, emitter="vllm"))
        await until(lambda: sender._blocked and bool(sender._unsent))
        link = Link(ours, Decoder(heard))
        link.open()
        most = before = 0
        while before < 5000:
            await asyncio.sleep(0)
            most, before = max(most, len(heard.samples) - before), len(heard.samples)
        link.close()
    assert 0 < most <= 70


async def test_only_the_newest_view_waits() -> None:
    """A view is 100 kB with many GPUs; a queue of them would be stale and large."""
    ours, theirs = socket.socketpair()
    heard = Counted()
    with ours, theirs:
        sender = LinkSender(theirs)
        for number in range(50):
            sender.view(TelemetryView(counters={"n": number}))
        link = Link(ours, Decoder(heard))
        link.open()
        await until(lambda: bool(heard.views))
        link.close()
    assert [view.counters["n"] for view in heard.views] == [49]


async def test_garbage_breaks_the_link_and_says_so() -> None:
    """Whatever writes there is not our process any more."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(ours, Decoder(Counted()))
        link.open()
        theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
        await link.broken.wait()
    assert "garbage" in link.problem


async def test_both_ends_notice_that_the_other_is_gone() -> None:
    """The process ends with its parent; the parent starts a new one."""
    ours, theirs = socket.socketpair()
    link = Link(ours, Decoder(Counted()))
    link.open()
    theirs.close()
    await link.broken.wait()
    assert link.problem == ""
    ours.close()
    ours, theirs = socket.socketpair()
    sender = LinkSender(theirs)
    ours.close()
    sender.reading("t", reading(1.0))
    await sender.closed.wait()
    theirs.close()


class Failing(Counted):
    """A sink with a bug: it refuses samples."""

    def sample(self, target: str, sample: Sample) -> None:
        """Fails as a controller might."""
        raise ValueError("not a frame of ours")


async def test_a_sink_that_fails_costs_only_what_it_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Its error must not break the link, nor be taken for garbage, nor fill the log."""
    ours, theirs = socket.socketpair()
    heard = Failing()
    guarded = GuardedSink(heard)
    with ours, theirs:
        link, sender = Link(ours, Decoder(guarded)), LinkSender(theirs)
        link.open()
        for value in range(100):
            sender.sample("t", Sample(1.0, Outcome.OK))
            sender.reading("t", reading(float(value)))
        await until(lambda: len(heard.readings) == 100)
        sender.view(TelemetryView())
        await until(lambda: bool(heard.views))
        assert not link.broken.is_set()
        link.close()
    assert heard.views[0].counters["sink_failures"] == 100
    assert len(caplog.records) == 7
