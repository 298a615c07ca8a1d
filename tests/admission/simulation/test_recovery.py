"""Recovery time on constructed series of goodput."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.simulation.recovery import Recovery

Series = Callable[[int], tuple[int, int]]


def recovered(series: Series, *disturbances: tuple[float, float], length_s: int = 300) -> Recovery:
    """A recovery fed with (good, offered) of each second."""
    recovery = Recovery(disturbances, 0.0)
    for at in range(length_s):
        good, offered = series(at)
        for no in range(offered):
            recovery.add(at + 0.5, good=no < good)
    return recovery


def step(back_at: int, level: int = 10) -> Series:
    """Ten good of ten each second, none from 100 until `back_at`."""
    return lambda at: (0 if 100 <= at < back_at else level, 10)


@pytest.mark.parametrize(("back_at", "after_s"), [(120, 0.0), (121, 1.0), (140, 20.0)])
def test_it_is_the_time_from_the_end_of_the_disturbance_to_goodput_as_before(
    back_at: int, after_s: float
) -> None:
    """The five seconds that begin then are good: what lies before them does not blur it."""
    assert recovered(step(back_at), (100.0, 120.0)).after_s() == (after_s,)


def test_nine_tenths_are_enough_and_less_is_not() -> None:
    """The bar is 90 % of the median before."""
    enough = recovered(lambda at: (10 if at < 100 else 9, 10), (100.0, 120.0))
    short = recovered(lambda at: (10 if at < 100 else 8, 10), (100.0, 120.0))
    assert (enough.after_s(), short.after_s()) == ((0.0,), (None,))


def test_a_lucky_second_is_not_recovery() -> None:
    """One good second among bad ones is smoothed away."""
    series: Series = lambda at: (10 if at < 100 or at == 125 or at >= 140 else 0, 10)  # noqa: E731
    assert recovered(series, (100.0, 120.0)).after_s() == (20.0,)


def test_overload_is_held_to_the_rate_that_was_good_before() -> None:
    """Half of twenty were good before: ten of thirty are as many."""
    series: Series = lambda at: (0 if 100 <= at < 130 else 10, 20 if at < 130 else 30)  # noqa: E731
    assert recovered(series, (100.0, 120.0)).after_s() == (10.0,)


def test_a_lull_after_the_disturbance_is_held_to_what_was_offered() -> None:
    """Nobody can serve more than asks: two of two are as good as ten of ten."""
    series: Series = lambda at: (0 if 100 <= at < 120 else 10 if at < 100 else 2, 10 if at < 120 else 2)  # noqa: E731
    assert recovered(series, (100.0, 120.0)).after_s() == (0.0,)


def test_silence_after_the_disturbance_proves_nothing() -> None:
    """No request, no recovery: it counts from when there are some again."""
    series: Series = lambda at: (0, 0) if 120 <= at < 150 else step(120)(at)  # noqa: E731
    assert recovered(series, (100.0, 120.0)).after_s() == (26.0,)


def test_each_disturbance_has_its_own() -> None:
    """What is normal is not measured inside another one."""
    series: Series = lambda at: (0 if 100 <= at < 125 or 160 <= at < 172 else 10, 10)  # noqa: E731
    assert recovered(series, (100.0, 120.0), (160.0, 170.0)).after_s() == (5.0, 2.0)


def test_without_anything_good_before_there_is_no_bar() -> None:
    """Zero seconds would praise a policy that serves nobody."""
    assert recovered(lambda _: (0, 10), (100.0, 120.0)).after_s() == (None,)
    assert recovered(step(0), (2.0, 5.0)).after_s() == (None,)


def test_one_that_never_ends_is_never_over() -> None:
    """There is no end to count from."""
    assert recovered(step(120), (100.0, float("inf"))).after_s() == (None,)


def test_seconds_far_from_disturbances_are_not_kept() -> None:
    """Memory is bounded by their number, not by the run."""
    recovery = recovered(lambda _: (1, 1), (100.0, 120.0), length_s=5_000)
    assert len(recovery._seconds) == 60 + 20 + 600 + 1
