"""Gradient2 moves as published."""

from __future__ import annotations

from typing import Any

import pytest

from admission.simulation.policies.gradient2 import Gradient2, Gradient2Config, LongTerm
from admission.simulation.policies.window import WindowConfig, Windowed, windowed
from tests.admission.simulation.policies.hearing import sample


def rule(**settings: Any) -> Gradient2:
    """The published constants, the floor out of the way."""
    return Gradient2(Gradient2Config(**{"floor": 1, **settings}))


def test_the_long_term_average_begins_as_a_mean_and_goes_on_exponentially() -> None:
    """testWarmup of Netflix/concurrency-limits
    concurrency-limits-core/src/test/java/com/netflix/concurrency/limits/limit/ExpAvgMeasurementTest.java.
    """
    average = LongTerm(100)
    warming = [average.add(value) for value in range(10, 20)]
    assert warming == pytest.approx([10.0, 10.5, 11, 11.5, 12, 12.5, 13, 13.5, 14, 14.5], abs=0.01)
    assert average.add(100.0) == pytest.approx(16.2, abs=0.1)


def test_at_a_steady_latency_it_grows_by_the_smoothed_queue() -> None:
    """The formula in the class comment of Netflix/concurrency-limits
    concurrency-limits-core/src/main/java/com/netflix/concurrency/limits/limit/Gradient2Limit.java with its constants:
    gradient 1, 20 x 0.8 + (20 + 4) x 0.2 = 20.8, then 21.6.
    """
    gradient = rule()
    gradient.on_sample(sample(0.1, 20))
    assert gradient.limit == 20
    gradient.on_sample(sample(0.1, 20))
    assert gradient.limit == 21


def test_it_shrinks_by_the_gradient_but_never_by_more_than_half() -> None:
    """The same formula: nine samples of 0.1 s, then one of 1 s: long = 0.19 s, 1.5 x 0.19 / 1 = 0.285, taken as 0.5;
    100 x 0.8 + (100 x 0.5 + 4) x 0.2 = 90.8.
    """
    gradient = rule(initial=100)
    for _ in range(9):
        gradient.on_sample(sample(0.1, 1))
    gradient.on_sample(sample(1.0, 100))
    assert gradient.limit == 90


def test_half_as_slow_again_is_tolerated() -> None:
    """Up to 1.5 times the long-term latency counts as no queue at all."""
    gradient = rule(initial=100)
    for _ in range(9):
        gradient.on_sample(sample(0.1, 1))
    gradient.on_sample(sample(0.15, 100))
    assert gradient.limit == 100  # 100.8


def test_an_idle_limit_does_not_move() -> None:
    """Below half of the limit nothing was put to the test."""
    gradient = rule()
    for _ in range(20):
        gradient.on_sample(sample(0.1, 9))
    assert gradient.limit == 20


def test_after_a_long_overload_the_average_comes_down_quickly() -> None:
    """At more than twice the present latency it decays by a twentieth with each sample."""
    gradient = rule()
    for _ in range(10):
        gradient.on_sample(sample(10.0, 1))
    gradient.on_sample(sample(1.0, 1))
    assert gradient._long.value == pytest.approx(0.95 * (10.0 - 9.0 * 2 / 601))


def test_the_limit_stays_within_its_bounds() -> None:
    """The published floor is 20 and the ceiling 200."""
    up, down = Gradient2(Gradient2Config()), Gradient2(Gradient2Config())
    for no in range(3_000):
        up.on_sample(sample(0.1, 200))
        down.on_sample(sample(0.1 * 1.01**no, 200))
    assert (up.limit, down.limit) == (200, 20)


def test_a_window_passes_on_the_mean_of_a_second() -> None:
    """calculateAverage of Netflix/concurrency-limits
    concurrency-limits-core/src/test/java/com/netflix/concurrency/limits/limit/window/ImmutableAverageSampleWindowTest.java:
    5,000, 500 and 10 average to 1,836.
    """
    heard = Hearing()
    window = Windowed(heard, WindowConfig(least=3))
    window.on_sample(sample(1.0, 1, now=0.0))  # closes the window before the first, too small to count
    for at, rtt_s in ((0.1, 5_000.0), (0.2, 500.0), (1.1, 10.0)):
        window.on_sample(sample(rtt_s, 1, now=at))
    assert [int(one) for one in heard.rtts] == [1_836]


def test_a_window_with_few_samples_is_thrown_away() -> None:
    """Ten are asked for by default: fewer say too little."""
    heard = Hearing()
    window = windowed(heard, WindowConfig())
    for no in range(20):
        window.on_sample(sample(1.0, 1, now=no * 0.2))
    assert heard.rtts == []


def test_without_a_window_each_sample_counts() -> None:
    """None is no wrapper at all."""
    gradient = rule()
    assert windowed(gradient, None) is gradient


class Hearing(Gradient2):
    """Keeps what it hears."""

    def __init__(self) -> None:
        super().__init__(Gradient2Config())
        self.rtts: list[float] = []

    def on_sample(self, sample: Any) -> None:
        self.rtts.append(sample.rtt_s)


@pytest.mark.parametrize(
    "settings",
    [
        {"floor": 0},
        {"initial": 300},
        {"smoothing": 2.0},
        {"tolerance": 0.9},
        {"long_window": 0},
        {"queue": -1},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line instead of a limiter that never moves."""
    with pytest.raises(ValueError, match=r"must|need"):
        Gradient2Config(**settings)


@pytest.mark.parametrize("settings", [{"length_s": 0.0}, {"least": 0}])
def test_a_window_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    """A window without length or samples passes nothing on."""
    with pytest.raises(ValueError, match="need"):
        WindowConfig(**settings)
