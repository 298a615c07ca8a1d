"""How the limit moves."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.limits.aimd import Aimd, AimdConfig
from admission.core.limits.base import Load
from admission.core.model import Why

BUSY = Why("the engine preempted 1")


def limit(at: int = 100_000, *, slow_start: bool = False, **settings: Any) -> Aimd:
    """A limit at a value, past its slow start, that steers to the very SLO in plain steps, unless asked otherwise."""
    settings = {"set_point": 1.0, "growth": 0.0, **settings}
    aimd = Aimd(AimdConfig(initial_tokens=at, floor_tokens=1_000, **settings))
    if not slow_start:
        aimd._slow_start_to = None
    return aimd


def load(used: int, excess: float | None, **fields: Any) -> Load:
    """What the limit sees: forty requests with a mean of 1,000 tokens."""
    fields.setdefault("mean_cost", 1_000.0)
    fields.setdefault("in_flight", 40)
    return Load(used=used, excess=excess, **fields)


def test_it_grows_by_one_mean_request_while_the_budget_binds() -> None:
    """Additive increase."""
    aimd = limit()
    aimd.on_tick(load(90_000, 0.2), 0.0)
    assert aimd.value == 101_000


def test_the_step_is_never_less_than_a_share_of_the_limit() -> None:
    """A step fixed in tokens is right at 30k and useless at 4M."""
    aimd = limit(4_000_000)
    aimd.on_tick(load(3_900_000, 0.2), 0.0)
    assert aimd.value == 4_008_000


def test_on_a_small_engine_a_step_is_less_than_a_request_and_smaller_near_the_edge() -> None:
    """Where six requests are the limit, one more leaps over the edge; then every cut is followed by the same leap."""
    roomy, close = limit(6_000), limit(6_000)
    roomy.on_tick(load(5_900, 0.3), 0.0)
    close.on_tick(load(5_900, 0.1), 0.0)
    assert (roomy.value, close.value) == (6_480, 6_240)


def test_on_a_large_engine_the_edge_does_not_slow_the_step() -> None:
    """There one mean request is a hundredth of the limit: it lands softly anyhow."""
    aimd = limit()
    aimd.on_tick(load(95_000, 0.06), 0.0)
    assert aimd.value == 101_000


def test_it_steers_to_the_set_point_and_not_to_the_slo() -> None:
    """Whoever aims at the edge itself is over it half of the time: under the SLO, over the set point, is too slow."""
    cut, held, grown = (limit(set_point=0.9) for _ in range(3))
    why = cut.on_tick(load(99_000, 0.01), 0.0)
    held.on_tick(load(99_000, 0.12), 0.0)
    grown.on_tick(load(99_000, 0.2), 0.0)
    assert (cut.value, held.value, grown.value) == (95_000, 100_000, 101_000)
    assert why is not None
    assert why.threshold == 0.9


def test_far_from_the_edge_it_grows_in_large_steps_and_near_it_in_small_ones() -> None:
    """One mean request a second would need minutes to find a capacity that a mix shift has doubled."""
    values = []
    for room in (0.06, 0.1, 0.3):
        aimd = limit(growth=0.6)
        aimd.on_tick(load(95_000, room), 0.0)
        values.append(aimd.value)
    assert values == [101_000, 101_000, 105_400]


def test_growth_waits_until_what_the_last_cut_was_for_is_gone() -> None:
    """Those that ended since the cut are few and mostly short: what they say may cut again, but not yet raise."""
    waits, grows, holds = limit(), limit(), limit()
    waits.on_tick(load(95_000, 0.3, lasting=-0.5), 0.0)
    grows.on_tick(load(95_000, 0.3, lasting=0.3), 0.0)
    holds.on_tick(load(95_000, 0.3, lasting=0.04), 0.0)
    assert (waits.value, grows.value, holds.value) == (100_000, 101_000, 100_000)


def test_growth_takes_the_lesser_room_of_both() -> None:
    """A step that is large because of a few short answers would leap over the edge that the many still show."""
    aimd = limit(growth=0.6)
    aimd.on_tick(load(95_000, 0.35, lasting=0.1), 0.0)
    assert aimd.value == 101_000


def test_what_ended_lately_cuts_nothing_by_itself_and_holds_no_cut_back() -> None:
    """It was punished once already; and a new slowdown is no less one while the past looks well."""
    punished, slow = limit(), limit()
    for second in range(20):
        punished.on_tick(load(95_000, 0.02, lasting=-0.9), float(second))
    slow.on_tick(load(99_000, -0.2, lasting=0.5), 0.0)
    assert (punished.value, slow.value) == (100_000, 90_000)


def test_an_idle_limit_does_not_grow() -> None:
    """Else it floats up, and a burst meets it."""
    aimd = limit()
    assert aimd.on_tick(load(50_000, 0.5), 0.0) is None
    assert aimd.value == 100_000


def test_a_refusal_alone_is_not_enough_when_little_is_used() -> None:
    """One huge ticket that does not fit is no reason to grow."""
    aimd = limit()
    aimd.on_tick(load(50_000, 0.3, refused_for_limit=True), 0.0)
    assert aimd.value == 100_000


def test_it_starts_slowly_until_the_first_congestion_and_again_with_much_room() -> None:
    """Twenty percent a second finds the capacity; after a mix shift it finds it again."""
    aimd = limit(slow_start=True)
    aimd.on_tick(load(90_000, 0.2), 0.0)
    assert aimd.value == 120_000
    aimd.on_tick(load(120_000, -0.1), 1.0)
    cut = aimd.value
    aimd.on_tick(load(cut, 0.2), 2.0)
    assert aimd.value == cut + 1_000
    aimd.on_tick(load(aimd.value, 0.5), 3.0)
    assert aimd.value == int((cut + 1_000) * 1.2)


def test_it_holds_in_the_dead_zone_and_when_kv_is_hot() -> None:
    """Growth up to the very threshold overshoots it."""
    aimd = limit()
    aimd.on_tick(load(95_000, 0.03), 0.0)
    aimd.on_tick(load(95_000, 0.3, kv_hot=True), 1.0)
    assert aimd.value == 100_000


def test_a_cut_is_in_proportion_to_the_excess_and_bounded() -> None:
    """Three percent too slow costs 1.5 percent, not thirty."""
    small, large = limit(), limit()
    small.on_tick(load(99_000, -0.03), 0.0)
    large.on_tick(load(99_000, -5.0), 0.0)
    assert (small.value, large.value) == (98_500, 70_000)


def test_no_second_cut_until_the_first_has_taken_effect() -> None:
    """The requests in flight all saw the same congestion and must not each be punished for it."""
    aimd = limit()
    aimd.on_tick(load(100_000, -0.4), 0.0)
    assert aimd.value == 80_000
    for second in range(1, 20):
        aimd.on_tick(load(95_000, -0.4), float(second))
    assert aimd.value == 80_000
    aimd.on_tick(load(80_000, -0.4), 20.0)
    assert aimd.value == 64_000


def test_a_cut_deepens_while_the_excess_grows() -> None:
    """The first tick of a slowdown shows little of it; waiting for its small cut to take effect would waste seconds."""
    aimd = limit()
    for second, excess in enumerate((-0.04, -0.2, -0.8, -0.3)):
        aimd.on_tick(load(100_000, excess), float(second))
    assert aimd.value == 70_000
    aimd.on_tick(load(100_000, 0.01), 5.0)
    assert aimd.on_tick(load(100_000, -0.8), 6.0) is None


def test_a_cut_starts_from_what_is_in_use() -> None:
    """A limit far above the use would take many cuts to matter."""
    aimd = limit()
    aimd.on_tick(load(40_000, -0.2), 0.0)
    assert aimd.value == int(44_000 * 0.9)


def test_untracked_work_counts_and_cannot_block_the_cut_for_ever() -> None:
    """With one request of ours left, the cut has taken all the effect it can."""
    aimd = limit()
    aimd.on_tick(load(2_000, -0.2, untracked=200_000, in_flight=1), 0.0)
    assert aimd.value == 90_000
    blocked = limit()
    assert blocked.on_tick(load(50_000, -0.2, untracked=200_000), 0.0) is None


def test_congestion_cuts_hard_but_once_in_two_seconds() -> None:
    """KV critical and preemptions come in volleys."""
    aimd = limit()
    assert aimd.on_tick(load(90_000, 0.5, congested=BUSY), 10.0) is BUSY
    assert aimd.value == 76_500
    assert aimd.on_tick(load(70_000, 0.5, congested=BUSY), 11.0) is None
    aimd.on_tick(load(70_000, 0.5, congested=BUSY), 12.0)
    assert aimd.value == 65_025
    assert aimd.on_tick(load(90_000, 0.5, congested=BUSY), 20.0) is None


def test_a_refusal_of_the_engine_does_not_throw_the_limit_to_the_floor() -> None:
    """The refused requests have left the ledger already: what was in use lately is what was too much."""
    aimd = limit()
    aimd.on_tick(load(95_000, 0.03), 0.0)
    aimd.on_tick(load(1_000, 0.03, congested=BUSY), 1.0)
    assert aimd.value == int(95_000 * 0.97 * 0.85)


def test_a_class_with_little_room_can_make_it_grow() -> None:
    """Internal tickets may use half of the limit: at the very end of their room the budget binds."""
    aimd = limit()
    aimd.on_tick(load(48_000, 0.3, refused_for_limit=True, room=0.49), 0.0)
    assert aimd.value == 101_000


def test_restarts_in_a_row_do_not_halve_it_for_good() -> None:
    """Each time it climbs to what was good before the first."""
    aimd = limit()
    aimd.on_tick(load(95_000, 0.2), 0.0)
    for _ in range(6):
        aimd.after_outage()
        assert aimd.good in (100_000, 101_000)


def test_without_a_signal_it_stands_still() -> None:
    """No signal is not a good one."""
    aimd = limit()
    assert aimd.on_tick(load(99_000, None), 0.0) is None
    assert aimd.on_tick(load(99_000, -0.5, frozen=True), 1.0) is None
    assert aimd.value == 100_000


def test_an_unused_limit_sinks_while_something_else_binds() -> None:
    """A limit started four times too high ends near what is used, so that no burst meets it later."""
    aimd = limit(400_000)
    for second in range(120):
        aimd.on_tick(load(80_000, 0.3, refused_for_other=True), float(second))
    assert 99_000 <= aimd.value <= 101_000


def test_it_stays_within_its_bounds() -> None:
    """For any excess."""
    aimd = limit(2_000, ceiling_tokens=2_100)
    aimd.on_tick(load(2_000, 0.9), 0.0)
    assert aimd.value == 2_100
    for second in range(50):
        aimd.on_tick(load(0, -3.0, in_flight=0), float(second))
    assert aimd.value == 1_000
    assert aimd.on_tick(load(0, -3.0, in_flight=0), 99.0) is None


def test_the_floor_is_at_most_a_tenth_of_a_small_engine() -> None:
    """2,000 tokens are nothing for an H200 and two thirds of a 3,072-token cache."""
    aimd = limit(2_000)
    for second in range(20):
        aimd.on_tick(load(0, -3.0, in_flight=0, capacity=3_072), float(second))
    assert aimd.value == 307


def test_after_an_outage_it_climbs_from_half_to_the_last_good_value() -> None:
    """Not all at once: the engine is cold."""
    aimd = limit()
    aimd.on_tick(load(95_000, 0.2), 0.0)
    aimd.after_outage()
    assert aimd.value == 50_500
    for second in range(1, 10):
        aimd.on_tick(load(aimd.value, 0.2), float(second))
    assert 100_000 < aimd.value < 130_000


def test_an_operator_and_new_settings_are_bounded() -> None:
    """A typing error must not switch the bounds off."""
    aimd = limit(ceiling_tokens=200_000)
    aimd.override(10**12)
    assert aimd.value == 200_000
    aimd.reconfigure(AimdConfig(ceiling_tokens=150_000))
    assert aimd.value == 150_000


@pytest.mark.parametrize(
    "bad",
    [
        {"floor_tokens": 0},
        {"initial_tokens": 10, "floor_tokens": 20},
        {"slow_start": 1.0},
        {"landing": 0.0},
        {"max_cut": 1.0},
        {"set_point": 0.0},
        {"growth": 1.0},
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    """At start, not at the first cut."""
    with pytest.raises(ValueError, match=r"floor_tokens|slow_start|landing|max_cut|set_point|growth"):
        AimdConfig(**bad)  # type: ignore[arg-type]
