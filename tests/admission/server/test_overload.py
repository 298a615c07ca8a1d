"""The sidecar knows when it is late, and does not mistake a hiccup or a slow client for it."""

from __future__ import annotations

from admission.runtime.processor import Usage
from admission.runtime.settings import OverloadConfig
from admission.server.overload import Echo, LoopLag

CONFIG = OverloadConfig()


LATE = [(0.15, 0.13)] * 4
"""Every turn of the loop takes longer than a decision may."""


def lag(*probes: tuple[float, float], ran: float = 0.95, waited: float = 0.0, age_s: float = 60.0) -> LoopLag:
    """After probes of (passed, late) seconds; the thread ran, and waited for a processor, for such shares of the time."""
    judged, now = LoopLag(CONFIG, lambda: 0.0), age_s
    for passed_s, late_s in probes:
        now += passed_s
        judged.note(now, late_s, Usage(now * ran, now * waited))
    return judged


def test_a_loop_on_time_is_not_behind() -> None:
    """The usual state."""
    assert not lag(*[(0.02, 0.001)] * 50).behind


def test_one_pause_is_no_overload() -> None:
    """A garbage collection must not refuse anybody."""
    assert not lag(*[(0.02, 0.0)] * 20, (0.2, 0.18)).behind


def test_pause_after_pause_is_overload() -> None:
    """Whoever waits behind it would wait longer than a decision may take."""
    assert lag(*LATE).behind


def test_one_turn_longer_than_a_quarter_second_is_overload() -> None:
    """Whoever waits behind it is late already."""
    assert lag(*[(0.02, 0.0)] * 20, (0.4, 0.38)).behind


def test_a_loop_that_is_late_because_others_have_the_processor_is_not_behind() -> None:
    """No refusal gives it back: the sidecar itself has next to nothing to do."""
    judged = lag(*LATE, ran=0.05, waited=0.9)

    assert not judged.behind
    assert not judged.too_late(0.3)


def test_a_loop_that_sleeps_is_not_behind_however_late_it_wakes() -> None:
    """A suspended machine, a debugger, a slow disk: not work that refusing would take away."""
    assert not lag(*LATE, ran=0.3).behind


def test_a_full_loop_is_behind_although_others_take_half_of_the_processor() -> None:
    """It computes whenever it may, and there is more: only refusing helps those who wait."""
    assert lag(*LATE, ran=0.48, waited=0.5).behind


def test_nobody_is_refused_in_the_first_moments() -> None:
    """Every first call is slow; those who wait then are few."""
    first = lag(*LATE, age_s=0.0)

    assert not first.behind
    assert not first.too_late(0.3)
    assert lag(*LATE, age_s=CONFIG.grace_s).behind


def test_it_ends_when_the_loop_is_on_time_again() -> None:
    """Refusing must stop as soon as it has helped; with a margin, or it would flap."""
    assert lag(*LATE, (0.1, 0.08)).behind
    assert not lag(*LATE, (0.03, 0.01)).behind


def test_old_input_counts_only_while_our_own_thread_is_the_cause() -> None:
    """A client that is slow itself must not be refused for it."""
    idle, busy = lag(*[(0.02, 0.0)] * 50, ran=0.1), lag(*[(0.02, 0.0)] * 50)

    assert not idle.too_late(0.3)
    assert busy.too_late(0.3)
    assert not busy.too_late(0.05)


def test_memory_of_probes_is_bounded() -> None:
    """Half a second of them."""
    judged = lag(*[(0.02, 0.001)] * 10_000)

    assert len(judged._notes) < 40
    assert abs(judged._late_s - sum(note.lag_s for note in judged._notes)) < 1e-6


def test_the_age_of_a_message_is_what_exceeds_the_shortest_round_trip() -> None:
    """A client far away is not a sidecar that is behind."""
    echo = Echo()
    echo.round_trip(0.2, 1.0)
    echo.round_trip(0.5, 2.0)

    echo.unseen(0.25)
    assert abs(echo.age_s - 0.05) < 1e-9
    echo.unseen(0.1)
    assert echo.age_s == 0.0


def test_without_a_round_trip_nothing_is_judged() -> None:
    """The first message tells nothing about its age."""
    echo = Echo()

    echo.unseen(5.0)

    assert echo.age_s == 0.0


def test_a_client_that_knows_everything_is_not_behind() -> None:
    """Nothing unacknowledged: the message is as new as can be."""
    echo = Echo()
    echo.round_trip(0.01, 1.0)
    echo.unseen(1.0)

    echo.unseen(None)

    assert echo.age_s == 0.0


def test_a_longer_route_is_learned_after_a_minute() -> None:
    """A client that moved must not look late for ever."""
    echo = Echo()
    echo.round_trip(0.01, 0.0)
    echo.round_trip(0.3, 61.0)

    echo.unseen(0.35)

    assert abs(echo.age_s - 0.05) < 1e-9
