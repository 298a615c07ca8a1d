"""Vegas moves as published."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from admission.simulation.policies.vegas import Vegas, VegasConfig, magnitude
from tests.admission.simulation.policies.hearing import sample

MS = 1e-3


def rule(**settings: Any) -> Vegas:
    """The limiter of the published tests: 10 requests, at most 20, marks at 3 and 6."""
    settings = {"initial": 10, "ceiling": 20, **settings}
    return Vegas(VegasConfig(**settings), Random(0))


class Halving(Vegas):
    """One step down is half of the limit, as in the published tests of smoothing."""

    def lowered(self) -> float:
        return self._limit / 2


@pytest.mark.parametrize(
    ("rtt_s", "in_flight", "after"),
    [(10 * MS, 11, 16), (50 * MS, 11, 9), (14 * MS, 14, 10), (12 * MS, 11, 11)],
)
def test_it_grows_shrinks_and_stays_as_published(rtt_s: float, in_flight: int, after: int) -> None:
    """increaseLimit, decreaseLimit, noChangeIfWithinThresholds of Netflix/concurrency-limits
    concurrency-limits-core/src/test/java/com/netflix/concurrency/limits/limit/VegasLimitTest.java; the fourth is the
    step between them by the formula: a queue of 2 is short, not none.
    """
    vegas = rule()
    vegas.on_sample(sample(10 * MS, 10))
    assert vegas.limit == 10
    vegas.on_sample(sample(rtt_s, in_flight))
    assert vegas.limit == after


def test_a_large_limit_grows_by_its_magnitude() -> None:
    """largeLimitIncrease of the same file: 6 x log10(10,000) = 24."""
    vegas = rule(initial=10_000, ceiling=20_000)
    vegas.on_sample(sample(10.0, 5_000))
    vegas.on_sample(sample(10.0, 6_000))
    assert vegas.limit == 10_024


@pytest.mark.parametrize(("smoothing", "limits"), [(0.5, [100, 75, 56]), (1.0, [100, 50, 25])])
def test_smoothing_takes_over_a_share_of_the_step(smoothing: float, limits: list[int]) -> None:
    """decreaseSmoothing and decreaseWithoutSmoothing of the same file."""
    vegas = Halving(VegasConfig(initial=100, ceiling=200, smoothing=smoothing), Random(0))
    seen = []
    for rtt_s in (10 * MS, 20 * MS, 20 * MS):
        vegas.on_sample(sample(rtt_s, 100))
        seen.append(vegas.limit)
    assert seen == limits


@pytest.mark.parametrize(("limit", "expected"), [(100, 2), (10_000, 4), (9, 1), (0, 1)])
def test_the_unit_is_the_whole_logarithm(limit: float, expected: int) -> None:
    """testInRange and testOutofLookupRange of Netflix/concurrency-limits
    concurrency-limits-core/src/test/java/com/netflix/concurrency/limits/limit/functions/Log10RootIntFunctionTest.java;
    the last two are its lower bound.
    """
    assert magnitude(limit) == expected


def test_a_drop_shrinks_whatever_the_latency() -> None:
    """A refusal is a stronger sign than a fast answer."""
    vegas = rule()
    vegas.on_sample(sample(10 * MS, 10))
    vegas.on_sample(sample(10 * MS, 10, dropped=True))
    assert vegas.limit == 9


def test_an_idle_limit_does_not_grow() -> None:
    """Below half of the limit nothing was put to the test."""
    vegas = rule()
    vegas.on_sample(sample(10 * MS, 10))
    vegas.on_sample(sample(10 * MS, 4))
    assert vegas.limit == 10


def test_the_best_latency_is_forgotten_now_and_then() -> None:
    """After 30 x limit samples at most a slower engine's latency is the new best: it does not shrink for ever."""
    vegas = rule()
    vegas.on_sample(sample(10 * MS, 10))
    for _ in range(2 * 30 * 10):
        vegas.on_sample(sample(50 * MS, 10))
    assert vegas.limit == 20


def test_the_limit_never_leaves_its_bounds() -> None:
    """At least one request may always run."""
    vegas = rule()
    vegas.on_sample(sample(10 * MS, 10))
    for _ in range(50):
        vegas.on_sample(sample(1.0, 20, dropped=True))
    assert vegas.limit == 1


@pytest.mark.parametrize(
    "settings",
    [{"initial": 0}, {"initial": 9, "ceiling": 8}, {"low_mark": 7}, {"smoothing": 0.0}, {"probe": 0}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line instead of a limiter that never moves."""
    with pytest.raises(ValueError, match=r"must|need"):
        VegasConfig(**settings)
