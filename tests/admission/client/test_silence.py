"""When the client stops asking a sidecar that does not answer, and how it begins again."""

from __future__ import annotations

from admission.client.calls import Call
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome
from tests.admission.client.sidecar import admit, silent
from tests.admission.client.wire import Wire


def _admitted(call: Call) -> bool:
    return call.answer is not None and call.answer.admitted


def _silenced() -> Wire:
    wire = Wire(silent, local_limit=1000).up()
    for _ in range(3):
        wire.ask()
        wire.after(0.3)
    assert wire.session.counters.get("silences") == 1
    return wire


def _asked(wire: Wire) -> int:
    """How many of ten questions put now reach the sidecar."""
    before = len(wire.sidecar.tickets)
    for _ in range(10):
        wire.ask()
    return len(wire.sidecar.tickets) - before


def test_three_missed_decisions_stop_the_asking_for_five_seconds() -> None:
    """Each request would else pay the timeout."""
    wire = _silenced()

    assert _asked(wire) == 0
    wire.after(4.5)
    assert _asked(wire) == 0


def test_questions_out_at_the_same_time_are_one_miss() -> None:
    """A hiccup of a quarter second with twenty requests in the air is no reason for five seconds of silence."""
    wire = Wire(silent).up()
    for _ in range(20):
        wire.ask()
        wire.now += 0.01
    for _ in range(20):
        wire.after(0.02)

    assert wire.session.counters.get("missed") == 20
    assert wire.session.counters.get("silences") == 0
    assert _asked(wire) == 10


def test_a_decision_between_misses_starts_the_count_anew() -> None:
    """Only a sidecar that answers nobody is left alone."""
    wire = Wire(silent).up()
    for _ in range(6):
        wire.ask()
        wire.after(0.3)
        if wire.session.counters.get("missed") % 2 == 0:
            wire.sidecar.policy = admit
            wire.ask()
            wire.sidecar.policy = silent

    assert wire.session.counters.get("silences") == 0


def test_a_silence_ends_with_one_question() -> None:
    """Nine of ten requests need not pay the timeout to learn that the sidecar is still away."""
    wire = _silenced()
    wire.after(5.1)

    assert _asked(wire) == 1
    wire.after(0.1)
    assert _asked(wire) == 0


def test_an_unanswered_probe_begins_the_next_silence() -> None:
    """And the probe itself runs by the fail policy."""
    wire = _silenced()
    wire.after(5.1)
    wire.sidecar.policy = silent
    probe = wire.session.acquire(Ticket(), wire.now)

    assert wire.after(0.26) == [probe]
    assert wire.session.counters.get("silences") == 2
    assert _asked(wire) == 0


def test_an_answered_probe_ends_it_wholly() -> None:
    """One miss after it is the first of three again."""
    wire = _silenced()
    wire.after(5.1)
    wire.sidecar.policy = admit
    assert _admitted(wire.ask())
    assert _asked(wire) == 10

    wire.sidecar.policy = silent
    for _ in range(2):
        wire.ask()
        wire.after(0.3)
    assert wire.session.counters.get("silences") == 1
    assert _asked(wire) == 10


def test_a_probe_taken_back_makes_room_for_the_next() -> None:
    """Its caller may leave: the client must not wait for an answer that nobody wants."""
    wire = _silenced()
    wire.after(5.1)
    probe = wire.session.acquire(Ticket(), wire.now)
    wire.session.finish(probe, Outcome.ABORTED, None)
    wire.after(0.3)

    assert _asked(wire) == 1


def test_a_silence_ends_in_a_new_stream_when_nothing_came_meanwhile() -> None:
    """A stream that leads to nobody is replaced."""
    wire = Wire(silent).up()
    for _ in range(3):
        wire.session.acquire(Ticket(), wire.now)
        wire.now += 0.3
        wire.session.wake(wire.now)
    wire.now += 5.1
    wire.session.wake(wire.now)

    assert wire.session.link.hangup


def test_short_requests_that_ended_in_the_hiccup_count_for_what_was_held() -> None:
    """By the time that a miss shows all of them have ended: a bound of one would be an outage at the client."""
    wire = Wire().up()
    held = [wire.ask(max_tokens=10) for _ in range(5)]
    wire.sidecar.policy = silent
    missed = [wire.ask(max_tokens=10) for _ in range(5)]
    for call in held:
        wire.session.finish(call, Outcome.OK, None)
    wire.after(0.26)

    assert [_admitted(call) for call in missed] == [True] * 5
    assert wire.session.gauges()["local_limit"] == 5


def test_what_was_held_long_before_the_break_does_not_count() -> None:
    """A minute; the sidecar may have given that room to others since."""
    wire = Wire().up()
    for call in [wire.ask() for _ in range(5)]:
        wire.session.finish(call, Outcome.OK, None)
    wire.after(5.0)
    wire.after(70.0)
    wire.down()

    assert wire.session.gauges()["local_limit"] == 0
