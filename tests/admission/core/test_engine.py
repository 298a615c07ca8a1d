"""What the engine says of itself, and how old it is."""

from __future__ import annotations

from admission.core.engine import MAX_MEMBERS, EngineReadings, Slots, Untracked
from admission.core.model import Reading
from admission.vocabulary import SignalKind, Source


def reading(kind: SignalKind, value: float, at: float, member: str = "a") -> Reading:
    """A scraped reading."""
    return Reading(kind, value, at, Source.SCRAPE, member)


def test_counts_add_up_and_ratios_take_the_worst_member() -> None:
    """One full replica preempts, however empty the other is."""
    readings = EngineReadings()
    for member, running, kv in (("a", 3.0, 0.2), ("b", 4.0, 0.9)):
        readings.take(reading(SignalKind.RUNNING, running, 1.0, member))
        readings.take(reading(SignalKind.KV_USAGE_RATIO, kv, 1.0, member))
    assert readings.value(SignalKind.RUNNING, 1.0) == 7.0
    assert readings.value(SignalKind.KV_USAGE_RATIO, 1.0) == 0.9


def test_stale_is_none_and_the_age_allowed_follows_the_interval() -> None:
    """A Collector that scrapes every 15 s is slow, not dead."""
    fast, slow = EngineReadings(), EngineReadings()
    for step in range(40):
        fast.take(reading(SignalKind.RUNNING, 1.0, step * 0.2))
        slow.take(reading(SignalKind.RUNNING, 1.0, step * 15.0))
    assert fast.value(SignalKind.RUNNING, 39 * 0.2 + 3.5) is None
    assert slow.value(SignalKind.RUNNING, 39 * 15.0 + 30.0) == 1.0
    assert slow.value(SignalKind.WAITING, 1.0) is None
    assert slow.age(SignalKind.WAITING, 1.0) is None
    assert slow.age(SignalKind.RUNNING, 39 * 15.0 + 30.0) == 30.0


def test_capacity_does_not_go_stale() -> None:
    """It changes with a restart only."""
    readings = EngineReadings()
    readings.take(reading(SignalKind.KV_CAPACITY_TOKENS, 1_000.0, 0.0))
    assert readings.value(SignalKind.KV_CAPACITY_TOKENS, 1e6) == 1_000.0


def test_an_older_reading_does_not_replace_a_newer() -> None:
    """Two paths may bring the same signal."""
    readings = EngineReadings()
    readings.take(reading(SignalKind.RUNNING, 5.0, 10.0))
    readings.take(reading(SignalKind.RUNNING, 1.0, 9.0))
    assert readings.value(SignalKind.RUNNING, 10.0) == 5.0


def test_a_member_silent_for_a_minute_makes_room() -> None:
    """A pool that is rolled over day by day must not come to its bound."""
    readings = EngineReadings()
    for no in range(2 * MAX_MEMBERS):
        readings.take(reading(SignalKind.RUNNING, 1.0, 61.0 * (no // MAX_MEMBERS), str(no)))
    assert readings.value(SignalKind.RUNNING, 61.0) == MAX_MEMBERS


def test_members_are_bounded() -> None:
    """Invented instance names must not fill the memory."""
    readings = EngineReadings()
    for no in range(MAX_MEMBERS + 10):
        readings.take(reading(SignalKind.RUNNING, 1.0, 0.0, str(no)))
    assert readings.value(SignalKind.RUNNING, 0.0) == MAX_MEMBERS


def test_one_scrape_of_more_than_ours_is_not_yet_untracked() -> None:
    """A single scrape races with our own events."""
    untracked = Untracked()
    untracked.on_scrape(5, 5, 1.0)
    untracked.on_scrape(9, 5, 2.0)
    assert untracked.count(2.0) == 0
    untracked.on_scrape(8, 5, 3.0)
    assert untracked.count(10.0) == 3
    assert untracked.count(30.0) == 0
    untracked.forget()
    assert untracked.count(10.0) == 0


def slots(*scrapes: tuple[float, float]) -> Slots:
    """Slots that saw these (running, waiting)."""
    learned = Slots()
    for running, waiting in scrapes:
        learned.on_scrape(running, waiting, 0.3)
    return learned


def test_the_sequence_limit_is_learned_from_a_standing_queue_beside_free_kv() -> None:
    """Twice the same highest running with somebody waiting."""
    assert slots((20, 0), (32, 4), (32, 9)).learned == 32
    assert slots((32, 4)).learned is None
    assert slots((40, 0), (32, 4), (32, 4)).learned is None


def test_full_kv_explains_waiting_without_slots() -> None:
    """Then the sequence limit is not what binds; unknown KV teaches nothing either."""
    full, blind = Slots(), Slots()
    for _ in range(3):
        full.on_scrape(8, 3, 0.95)
        blind.on_scrape(8, 3, None)
    assert (full.learned, blind.learned) == (None, None)


def test_a_limit_learned_too_low_is_found_out() -> None:
    """More running than it says: forgotten. Every half minute one more is tried."""
    learned = slots((32, 4), (32, 4))
    assert learned.room(0.0, 10.0) == 33
    for _ in range(5):
        learned.on_scrape(32, 4, 0.3)
    assert learned.room(0.0, 10.0) == 32
    assert learned.room(40.0, 10.0) == 42
    assert learned.room(0.0, 31.0) == 33
    learned.on_scrape(33, 0, 0.3)
    assert learned.room(0.0, 10.0) is None
    learned.on_scrape(20, 0, 0.3)
    assert learned.learned is None


def test_a_stated_limit_has_a_small_margin() -> None:
    """Exactly at it the engine starves between two requests."""
    stated = Slots()
    stated.stated = 16
    assert stated.room(0.0, 0.0) == 20


def test_a_restarted_engine_is_learned_anew() -> None:
    """It may have other settings."""
    learned = slots((32, 4), (32, 4))
    learned.on_scrape(30, 4, 0.3)
    learned.forget()
    assert learned.learned is None
