"""Windows: the percentiles of exactly what came lately, in memory that does not grow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.processors.windows import Windows

VALUES = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=300)


@given(VALUES, st.floats(1, 60), st.integers(1, 256))
def test_percentiles_are_those_of_the_newest_values_in_the_window(
    steps: list[tuple[float, float]], over_s: float, most: int
) -> None:
    """Against plain numpy over a plain list: growing and wrapping must not show."""
    windows, now, kept = Windows(span_s=60.0, max_samples=most), 0.0, []
    for value, pause in steps:
        now += pause
        windows.add("t", "interactive", "ttft", value, now)
        kept.append((now, value))
    inside = [value for at, value in kept[-most:] if at >= now - over_s]
    found = windows.percentiles("t", "interactive", "ttft", now, over_s)
    assert found is not None
    assert found.count == len(inside)
    assert (found.p50, found.p95, found.p99) == pytest.approx(tuple(np.percentile(inside, (50, 95, 99))))


def test_no_value_is_no_percentile() -> None:
    """Missing is a state of its own: not 0."""
    windows = Windows()
    assert windows.percentiles("t", "batch", "tpot", 0.0) is None
    windows.add("t", "batch", "tpot", 1.0, 0.0)
    assert windows.percentiles("t", "batch", "tpot", 61.0) is None
    assert windows.percentiles("t", "interactive", "tpot", 0.0) is None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_left_out(odd: float) -> None:
    """One NaN would make every percentile of the minute NaN."""
    windows = Windows()
    windows.add("t", "batch", "tpot", odd, 0.0)
    assert windows.percentiles("t", "batch", "tpot", 0.0) is None


def test_keys_are_bounded_and_the_unused_goes_first() -> None:
    """Targets and classes are few; whoever passes something unbounded must not fill memory."""
    windows = Windows(max_keys=2)
    windows.add("a", "batch", "m", 1.0, 0.0)
    windows.add("b", "batch", "m", 1.0, 0.0)
    windows.add("a", "batch", "m", 1.0, 0.0)
    windows.add("c", "batch", "m", 1.0, 0.0)
    assert len(windows) == 2
    assert windows.percentiles("a", "batch", "m", 0.0) is not None
    assert windows.percentiles("b", "batch", "m", 0.0) is None


@pytest.mark.parametrize("bad", [{"span_s": 0.0}, {"max_samples": 0}, {"max_keys": 0}])
def test_impossible_bounds_are_refused(bad: dict[str, int]) -> None:
    """At construction, not at the first value."""
    with pytest.raises(ValueError, match="positive"):
        Windows(**bad)


@pytest.mark.parametrize("count", [63, 64, 65, 129, 500, 501, 1700])
def test_growing_and_wrapping_lose_nothing(count: int) -> None:
    """A ring starts small and doubles up to its bound; then the newest overwrite the oldest."""
    windows = Windows(max_samples=500)
    for number in range(count):
        windows.add("t", "batch", "m", float(number), 0.0)
    kept = range(count)[-500:]
    found = windows.percentiles("t", "batch", "m", 0.0)
    assert found is not None
    assert found.count == len(kept)
    assert found.p50 == np.percentile(kept, 50)
