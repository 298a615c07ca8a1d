"""A dead sidecar must not become an outage of a healthy engine: the local limit after a break, and its recovery."""

from __future__ import annotations

import pytest

from admission.client.calls import Call
from admission.client.local import Load, Peak
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome
from tests.admission.client.wire import Wire


def _admitted(call: Call) -> bool:
    return call.answer is not None and call.answer.admitted


def _burst(wire: Wire, count: int) -> list[Call]:
    return [wire.ask(prompt_tokens=10) for _ in range(count)]


def _end(wire: Wire, calls: list[Call]) -> None:
    for call in calls:
        wire.session.finish(call, Outcome.OK, None)


def _limit(wire: Wire) -> float:
    return wire.session.gauges()["local_limit"]


def _run_for(wire: Wire, seconds: int) -> None:
    for _ in range(seconds):
        wire.after(1.0)


def test_a_break_at_an_idle_moment_leaves_the_peak_of_the_last_minute() -> None:
    """It once left a limit of one for as long as the sidecar was away."""
    wire = Wire().up()
    _end(wire, _burst(wire, 12))
    _run_for(wire, 50)
    wire.down()
    wire.down()
    assert sum(_admitted(call) for call in _burst(wire, 20)) == 12


@pytest.mark.parametrize("seconds", [10, 55])
def test_long_requests_count_until_they_end(seconds: int) -> None:
    """The peak is of what was held, not of what was granted."""
    wire = Wire().up()
    calls = _burst(wire, 12)
    _run_for(wire, 300)
    _end(wire, calls)
    _run_for(wire, seconds)
    wire.down()
    assert _limit(wire) == 12


def test_the_peak_is_capped_and_what_is_held_is_not() -> None:
    """A peak is a guess, so the setting bounds it; what runs at the break runs on."""
    wire = Wire(local_limit=8).up()
    _end(wire, _burst(wire, 20))
    wire.down()
    assert _limit(wire) == 8
    busy = Wire(local_limit=8).up()
    _burst(busy, 20)
    busy.down()
    assert _limit(busy) == 20


def test_the_limit_recovers_by_one_each_second_that_it_binds() -> None:
    """From one to the setting, after a minute alone: an idle break costs a few minutes of narrow service, not an outage."""
    wire = Wire(local_limit=6).up()
    _run_for(wire, 100)
    wire.down()
    wire.down()
    wire.now += 59.0
    running = []
    for _ in range(9):
        wire.now += 1.0
        running.append(len([call for call in _burst(wire, 3) if _admitted(call)]))
    assert running == [2, 1, 1, 1, 1, 0, 0, 0, 0]
    assert _limit(wire) == 6


def test_the_limit_does_not_grow_while_it_does_not_bind() -> None:
    """An hour without requests earns nothing."""
    wire = Wire().up()
    _end(wire, _burst(wire, 2))
    wire.down()
    wire.down()
    wire.now += 3600.0
    _end(wire, _burst(wire, 2))
    assert _limit(wire) == 2


@pytest.mark.parametrize("seconds", [0.9, 10.0, 59.0])
def test_nobody_adds_to_what_was_held_while_a_restart_may_be_under_way(seconds: float) -> None:
    """A crash or an upgrade at twice the load must not put more on the engine than the limit."""
    wire = Wire().up()
    _burst(wire, 3)
    wire.down()
    wire.down()
    wire.now += seconds
    assert not any(_admitted(call) for call in _burst(wire, 50))


def test_larger_requests_than_before_get_their_room_as_well() -> None:
    """Else a bound learned from small ones would hold out the large for ever."""
    wire = Wire().up()
    _end(wire, _burst(wire, 2))
    wire.down()
    wire.down()
    wire.now += 60.0
    assert _admitted(wire.ask(prompt_tokens=10))
    assert _admitted(wire.ask(prompt_tokens=50_000))
    assert not _admitted(wire.ask(prompt_tokens=50_000))
    wire.now += 1.0
    assert _admitted(wire.ask(prompt_tokens=50_000))


def test_what_grew_while_alone_is_not_taken_for_the_sidecars_word() -> None:
    """The next break starts from what the sidecar allowed."""
    wire = Wire(local_limit=6).up()
    _run_for(wire, 100)
    wire.down()
    wire.down()
    wire.now += 60.0
    alone = []
    for _ in range(9):
        wire.now += 1.0
        alone += [call for call in _burst(wire, 3) if _admitted(call)]
    _end(wire, alone)
    wire.up()
    _end(wire, _burst(wire, 2))
    wire.down()
    assert _limit(wire) == 2


def test_refusals_while_alone_are_told_once_a_minute() -> None:
    """Who looks at the log an hour later must see that it goes on, and where the limit is."""
    wire = Wire(local_limit=1)
    wire.down()
    wire.ask()
    wire.session.notices.clear()
    for _ in range(150):
        wire.now += 1.0
        assert not _admitted(wire.ask())
    told = [notice.text for notice in wire.session.notices if "refusing" in notice.text]
    assert len(told) == 3
    assert "local limit of 1" in told[0]


def test_the_peak_forgets_after_a_minute() -> None:
    """To within ten seconds, and in bounded memory."""
    peak, held = Peak(), Load()
    for _ in range(5):
        held.add(Ticket())
    peak.see(held, 0.0)
    peak.see(Load(), 1.0)
    assert peak.of(1.0).count == peak.of(60.0).count == 5
    assert peak.of(70.1).count == 0
    for second in range(1000):
        peak.see(Load(1), float(second))
    assert peak.of(999.0) == Load(1)
    assert len(peak._buckets) <= 7
