"""Adaptive request concurrency moves as published: most of these are Vector's own test cases with their ranges."""

from __future__ import annotations

from typing import Any

import pytest

from admission.simulation.policies.vector_arc import MovingAverage, VectorArc, VectorArcConfig
from tests.admission.simulation.policies.hearing import sample
from tests.admission.simulation.policies.link import Link, play


def rule(**settings: Any) -> VectorArc:
    """The published constants."""
    return VectorArc(VectorArcConfig(**settings))


def test_mean_and_variance_move_as_published() -> None:
    """ewma_variance_update_works of vectordotdev/vector lib/vector-common/src/stats/mod.rs."""
    average = MovingAverage(0.5)
    seen = []
    for value in (2.0, 2.0, 1.0, 2.0):
        average.add(value)
        seen.append((average.mean, average.variance))
    assert seen == [(2.0, 0.0), (2.0, 0.0), (1.5, 0.25), (1.75, 0.1875)]


def test_on_a_constant_link_it_climbs_by_one_each_round_trip() -> None:
    """vectordotdev/vector tests/data/adaptive-concurrency/constant-link.yaml."""
    seen = play(Link(requests=500, delay=0.1), rule())
    assert 30 <= seen.in_flight.most <= 31
    assert 15.0 <= seen.in_flight.mean <= 16.0
    assert 22 <= seen.limit.most <= 32
    assert 16.0 <= seen.limit.mean <= 18.0


def test_on_a_link_that_slows_with_load_it_stays_low() -> None:
    """vectordotdev/vector tests/data/adaptive-concurrency/slow-link.yaml."""
    seen = play(Link(requests=200, delay=0.1, scale=1.0), rule())
    assert 2 <= seen.in_flight.most <= 7
    assert 2 <= seen.in_flight.mode <= 5
    assert 1.5 <= seen.in_flight.mean <= 5.0
    assert 1.7 <= seen.limit.mean <= 5.0


def test_it_finds_a_shallow_knee() -> None:
    """vectordotdev/vector tests/data/adaptive-concurrency/shallow-knee.yaml."""
    seen = play(Link(requests=1_000, delay=0.1, knee_start=10, knee_exp=1.1), rule())
    assert seen.limit.most == seen.in_flight.most == 12
    assert 9 <= seen.limit.mode <= 12
    assert 10.0 <= seen.limit.mean <= 12.0
    assert 9.0 <= seen.in_flight.mean <= 11.0


@pytest.mark.parametrize("seed", range(3))
def test_jitter_does_not_keep_it_down(seed: int) -> None:
    """vectordotdev/vector tests/data/adaptive-concurrency/jittery-link-small.yaml."""
    seen = play(Link(requests=1_000, delay=0.1, jitter=0.1), rule(), seed)
    assert 20 <= seen.in_flight.most <= 40
    assert 8.0 <= seen.in_flight.mean <= 20.0
    assert 9.0 <= seen.limit.mean <= 20.0


def test_it_does_not_grow_beyond_what_is_sent() -> None:
    """vectordotdev/vector tests/data/adaptive-concurrency/medium-send.yaml, slow-send-1.yaml and slow-send-2.yaml."""
    medium = play(Link(requests=500, delay=0.1, interval=0.025), rule())
    assert medium.in_flight.most == 8
    assert 4.0 <= medium.in_flight.mean <= 4.5
    assert medium.limit.most == 9
    slow = play(Link(requests=100, delay=0.05, interval=0.1), rule())
    assert slow.in_flight.most == 1
    assert 1.0 <= slow.limit.mean <= 2.0
    even = play(Link(requests=100, delay=0.05, interval=0.05), rule())
    assert 1 <= even.in_flight.most <= 2
    assert 2.0 <= even.limit.mean <= 2.5


def test_back_pressure_is_a_tenth_less_at_the_intervals_end() -> None:
    """Not at once, and only one tenth however many were refused."""
    arc = rule(initial=20)
    arc.on_sample(sample(1.0, 1, now=1.0))
    for _ in range(5):
        arc.on_sample(sample(0.0, 1, now=1.5, dropped=True))
    assert arc.limit == 20
    arc.on_sample(sample(1.0, 1, now=2.0))
    assert arc.limit == 18


def test_refusals_alone_say_nothing_before_the_first_answer() -> None:
    """Without a latency there is no interval."""
    arc = rule(initial=20)
    for no in range(5):
        arc.on_sample(sample(0.0, 1, now=float(no), dropped=True))
    assert arc.limit == 20


def test_the_last_place_is_never_taken_away() -> None:
    """At least one request may always run."""
    arc = rule(initial=2)
    arc.on_sample(sample(0.1, 1, now=0.1))
    for no in range(1, 9):
        arc.on_sample(sample(0.0, 1, now=float(no), dropped=True))
    assert arc.limit == 1


@pytest.mark.parametrize(
    "settings", [{"initial": 0}, {"initial": 300}, {"decrease": 1.0}, {"alpha": 0.0}, {"deviations": -1.0}]
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line instead of a limiter that never moves."""
    with pytest.raises(ValueError, match=r"must|need"):
        VectorArcConfig(**settings)
