"""The gradient controller moves as published."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from admission.simulation.policies.envoy_gradient import EnvoyGradient, EnvoyGradientConfig
from tests.admission.simulation.policies.hearing import sample

MS = 1e-3


def rule(**settings: Any) -> EnvoyGradient:
    """As in the published tests: no jitter, a measurement each 30 s of five requests."""
    settings = {"jitter": 0.0, "measure_every_s": 30.0, "measure_requests": 5, **settings}
    return EnvoyGradient(EnvoyGradientConfig(**settings), Random(0), 0.0)


def measure(envoy: EnvoyGradient, latency_s: float, now: float, count: int = 5) -> None:
    """Bring a measurement to its end."""
    for _ in range(count):
        envoy.on_sample(sample(latency_s, 1, now=now))


def windows(envoy: EnvoyGradient, latency_s: float, count: int, since: float) -> list[float]:
    """So many update intervals of five samples each; the limit after each."""
    seen = []
    for no in range(count):
        now = since + no * 0.101
        for _ in range(5):
            envoy.on_sample(sample(latency_s, 1, now=now))
        envoy.on_tick(now + 0.101)
        seen.append(envoy.limit)
    return seen


def test_it_is_measuring_when_it_begins_and_until_enough_requests_came() -> None:
    """MinRTTLogicTest of envoyproxy/envoy
    test/extensions/filters/http/adaptive_concurrency/controller/gradient_controller_test.cc: 50 requests of 13 ms.
    """
    envoy = rule(floor=7, measure_requests=50)
    for _ in range(50):
        assert (envoy.measuring, envoy.limit) == (True, 7)
        envoy.on_sample(sample(13 * MS, 1, now=1.0))
    assert not envoy.measuring
    assert envoy.ideal_s == 13 * MS


def test_the_ideal_latency_is_the_quantile_of_its_samples() -> None:
    """CancelLatencySample of the same file: of 1 to 5 ms the median is 3 ms."""
    envoy = rule()
    for ms in range(1, 6):
        envoy.on_sample(sample(ms * MS, 1, now=1.0))
    assert envoy.ideal_s == 3 * MS


def test_the_buffer_keeps_it_growing_at_slightly_more_than_the_ideal() -> None:
    """MinRTTBufferTest of the same file: 6 ms against 5 ms with a buffer of half."""
    envoy = rule(buffer=0.5)
    measure(envoy, 5 * MS, 1.0)
    seen = windows(envoy, 6 * MS, 10, 1.0)
    assert seen == sorted(set(seen))
    assert seen[0] > 3


def test_it_grows_below_the_ideal_and_shrinks_above() -> None:
    """ConcurrencyLimitBehaviorTestBasic of the same file: 4 ms, then 6 ms, against 5 ms with a tenth of buffer."""
    envoy = rule(buffer=0.1, floor=7)
    measure(envoy, 5 * MS, 1.0)
    up = windows(envoy, 4 * MS, 10, 1.0)
    assert up == sorted(up)
    assert all(after <= 2 * before + 32 for before, after in pairwise(up))
    down = windows(envoy, 6 * MS, 10, 3.0)
    assert down == sorted(set(down), reverse=True)
    assert min(down) >= 7


def test_after_a_measurement_the_limit_is_what_it_was() -> None:
    """MinRTTReturnToPreviousLimit of the same file."""
    envoy = rule()
    measure(envoy, 5 * MS, 1.0)
    before = windows(envoy, 4 * MS, 5, 2.0)[-1]
    envoy.on_tick(34.0)
    assert (envoy.limit, envoy.measuring) == (3, True)
    measure(envoy, 13 * MS, 35.0)
    assert (envoy.limit, envoy.measuring) == (before, False)


def test_the_limit_does_not_move_while_it_measures() -> None:
    """MinRTTRescheduleTest of the same file."""
    envoy = rule()
    measure(envoy, 5 * MS, 1.0)
    windows(envoy, 4 * MS, 5, 2.0)
    envoy.on_tick(34.0)
    envoy.on_sample(sample(4 * MS, 1, now=34.05))
    envoy.on_tick(34.2)
    assert envoy.limit == 3


def test_without_samples_the_limit_stays() -> None:
    """NoSamplesTest of the same file."""
    envoy = rule()
    measure(envoy, 5 * MS, 1.0)
    before = windows(envoy, 4 * MS, 5, 1.0)[-1]
    for no in range(5):
        envoy.on_tick(2.0 + no * 0.101)
    assert envoy.limit == before


def test_requests_of_the_time_before_a_measurement_say_nothing_in_it() -> None:
    """MinRTTEpoch of the same file: requests sent before it began do not end it."""
    envoy = rule()
    measure(envoy, 5 * MS, 1.0)
    envoy.on_tick(36.0)
    assert envoy.measuring
    measure(envoy, 300.0, 37.0, count=26)
    assert envoy.measuring


class Late(Random):
    """Draws the middle of the jitter."""

    def random(self) -> float:
        return 0.5


def test_jitter_puts_the_next_measurement_off() -> None:
    """TimerAccuracyTest of the same file: 100 s and half of a tenth of it are 105 s; moves come each 123 ms."""
    config = EnvoyGradientConfig(jitter=0.1, measure_every_s=100.0, measure_requests=5, update_s=0.123)
    envoy = EnvoyGradient(config, Late(), 0.0)
    measure(envoy, 5 * MS, 1.0)
    assert envoy.next_at() == 106.0
    envoy.on_sample(sample(5 * MS, 1, now=1.01))
    assert envoy.next_at() == pytest.approx(1.123)


def test_stuck_at_the_floor_it_measures_again() -> None:
    """ConsecutiveMinConcurrencyReset of the same file: 5 ms were measured, 10 ms are true."""
    envoy = rule(floor=7, buffer=0.0, measure_every_s=3_600.0)
    measure(envoy, 5 * MS, 1.0)
    assert windows(envoy, 10 * MS, 5, 1.0) == [7] * 5
    assert envoy.measuring
    measure(envoy, 10 * MS, 3.0)
    seen = windows(envoy, 10 * MS, 10, 3.0)
    assert seen == sorted(set(seen))


def test_the_new_limit_is_the_gradients_plus_its_square_root() -> None:
    """The formulas of envoyproxy/envoy docs/root/configuration/http/http_filters/adaptive_concurrency_filter.rst:
    ideal 100 ms and a quarter of buffer against 125 ms: 3 x 1 + sqrt(3) = 4; against 1 s: the gradient stops at 0.5.
    """
    envoy = rule(ceiling=5)
    measure(envoy, 0.1, 1.0)
    assert windows(envoy, 0.125, 2, 1.0) == [4, 5]
    assert windows(envoy, 1.0, 1, 2.0) == [4]  # 2.5 + 1.58


def test_a_dropped_request_is_no_sample() -> None:
    """It has no latency of an answer."""
    envoy = rule()
    for _ in range(9):
        envoy.on_sample(sample(5 * MS, 1, now=1.0, dropped=True))
    assert envoy.measuring


def test_unpinned_it_measures_live_traffic_at_the_limit_that_it_has() -> None:
    """`min_concurrency_limit` in envoyproxy/envoy docs/root/configuration/http/http_filters/adaptive_concurrency_filter.rst:
    set apart, the limit does not change for a measurement.
    """
    envoy = rule(pinned=False)
    measure(envoy, 5 * MS, 1.0)
    before = windows(envoy, 4 * MS, 5, 2.0)[-1]
    envoy.on_tick(34.0)
    assert (envoy.measuring, envoy.limit) == (True, before)


def test_while_it_measures_no_timer_runs() -> None:
    """Only requests end a measurement."""
    assert rule().next_at() is None


@pytest.mark.parametrize(
    "settings", [{"floor": 0}, {"ceiling": 2}, {"update_s": 0.0}, {"jitter": 1.5}, {"quantile": -0.1}]
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line instead of a limiter that never moves."""
    with pytest.raises(ValueError, match=r"must|need"):
        EnvoyGradientConfig(**settings)
