"""An exception in one part of the sidecar once lost answers and stopped the timer of all targets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from admission.core.model import Admitted, Event, Ticket, TicketId
from admission.runtime.host import Host
from admission.runtime.replay import replay
from tests.admission.runtime.test_host import Ears, Scripted, host_of
from tests.admission.runtime.test_journal import SMALL, Recording, _drain

EVENT = Admitted(Ticket(TicketId("o", 1)), 0.0, 1)


class Broken:
    """A listener and a journal with a bug."""

    def on_event(self, _target: str, _event: Event, _now: float) -> None:
        """Fails."""
        raise OverflowError("a bug")

    def record(self, *_: Any) -> None:
        """Fails."""
        raise TypeError("a bug")


def submitted(host: Host, controller: Scripted) -> list[Event]:
    """Two events of one input."""
    controller.answers = [[EVENT, EVENT]]
    return host.submit("a", EVENT.ticket)


def test_a_listener_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The answers behind it were lost: their callers waited for ever. Once in the log is enough."""
    host, (controller,) = host_of()
    ears = Ears()
    host.listen(Broken())
    host.listen(ears)

    with caplog.at_level(logging.ERROR):
        submitted(host, controller)
        host.tell("a", EVENT)

    assert len(ears.heard) == 3
    assert host.failures == {"Broken": 3}
    assert [record.message for record in caplog.records] == ["contained"]


def test_a_journal_that_fails_keeps_nothing_from_anybody() -> None:
    """A record is worth less than an answer."""
    host, (controller,) = host_of()
    ears = Ears()
    host.listen(ears)
    host.record_to(Broken())

    assert submitted(host, controller) == [EVENT, EVENT]
    assert len(ears.heard) == 2
    assert host.failures == {"Broken": 1}


class Failing(Scripted):
    """A controller that fails when it is woken, for as long as it wants to be."""

    def wake(self, now: float) -> list[Event]:
        """Fails."""
        raise ValueError(now)


async def test_a_controller_that_fails_stops_neither_the_timer_nor_the_others() -> None:
    """Nobody was woken after it: waiters of every target stayed past their patience."""
    host, (first, second) = host_of("a", "b")
    failing = host._controllers["a"] = Failing(host.configs["a"], random=None, now=0.0, saved=None)  # type: ignore[arg-type]
    failing.wakeup = second.wakeup = 5.0
    host.start()
    try:
        host._wake()

        assert [name for name, _ in second.seen] == ["wake"]
        assert host.failures == {"controller a": 1}
        assert first.seen == []
        timer = host._timer
        assert timer is not None
        # Not at once either: it would have the loop for itself.
        assert timer.when() - asyncio.get_running_loop().time() > 0.05
    finally:
        host.stop()


async def test_a_batch_that_cannot_be_encoded_is_dropped_and_the_rest_replays(tmp_path: Path) -> None:
    """It stayed pending: from then on nothing was recorded, every input failed, and memory grew."""
    recording = Recording(tmp_path).start()
    recording.live(40)
    _drain(recording)

    def strange() -> None:
        """A function cannot be put into bytes."""

    recording.host.renew(cast("Any", strange), ("a",))
    recording.journal.flush()
    dropped = recording.journal.unencodable_inputs
    recording.live(200, seed=6)
    _drain(recording)
    recording.live(200, seed=7)
    recording.journal.close()

    assert 0 < dropped <= SMALL.batch
    assert recording.host.failures == {}
    report = replay(recording.folder)
    assert report.same, (report.differences[:3], report.errors)
    assert report.inputs == recording.journal.recorded_inputs > 200
