"""History is bounded, gaps stay gaps, and long ranges come down-sampled."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.history.memory import MemoryHistory


def filled(points: int, capacity_s: int = 100) -> MemoryHistory:
    """A series `x` with the value of its second."""
    history = MemoryHistory(capacity_s=capacity_s)
    for second in range(points):
        history.add("a", 1000.0 + second, {"x": ("u", float(second))})
    return history


def test_what_was_added_comes_back_in_order_with_its_unit() -> None:
    """A chart needs times and a unit."""
    (line,) = filled(5).range("a", (), 1004.0, 60.0, 100)

    assert (line.name, line.unit) == ("x", "u")
    assert line.unix_s == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
    assert line.value == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_only_the_asked_range_comes_back() -> None:
    """Ten minutes of an hour."""
    (line,) = filled(50).range("a", ["x"], 1049.0, 9.0, 100)

    assert line.value == [float(second) for second in range(40, 50)]


def test_the_oldest_points_are_overwritten() -> None:
    """Memory is fixed."""
    (line,) = filled(250).range("a", (), 1249.0, 1e6, 1000)

    assert line.value == [float(second) for second in range(150, 250)]


def test_a_gap_is_an_absent_point() -> None:
    """Zero means zero: an exporter that was away must not look like an idle engine."""
    history = MemoryHistory(capacity_s=10)
    for second, value in enumerate([1.0, None, math.nan, 4.0]):
        history.add("a", 1000.0 + second, {"x": ("u", value), "y": ("u", 0.0)})

    x, y = history.range("a", (), 1003.0, 60.0, 100)

    assert (x.unix_s, x.value) == ([1000.0, 1003.0], [1.0, 4.0])
    assert len(y.value) == 4


def test_an_overwritten_slot_without_a_value_is_a_gap() -> None:
    """The ring must not show an hour-old value as new."""
    history = MemoryHistory(capacity_s=3)
    for second in range(3):
        history.add("a", 1000.0 + second, {"x": ("u", 7.0)})
    for second in range(3, 6):
        history.add("a", 1000.0 + second, {"y": ("u", 1.0)})

    (x,) = history.range("a", ["x"], 1005.0, 1e6, 100)

    assert x.value == []


@given(points=st.integers(1, 300), max_points=st.integers(1, 50))
def test_down_sampling_bounds_the_points_and_keeps_the_mean(points: int, max_points: int) -> None:
    """A day on a screen of a thousand pixels."""
    (line,) = filled(points, 300).range("a", (), 1000.0 + points - 1, points - 1.0 or 1.0, max_points)

    assert 1 <= len(line.value) <= max(max_points, 1)
    assert line.unix_s == sorted(line.unix_s)
    assert min(line.value) >= 0.0
    assert max(line.value) <= points - 1


def test_a_gap_stays_a_gap_when_down_sampled() -> None:
    """Bins without points are left out, not interpolated."""
    history = MemoryHistory(capacity_s=100)
    for second in [*range(30), *range(60, 90)]:
        history.add("a", 1000.0 + second, {"x": ("u", 1.0)})

    (line,) = history.range("a", (), 1089.0, 89.0, 9)

    assert not [at for at in line.unix_s if 1031.0 < at < 1058.0]


def test_series_and_targets_are_bounded() -> None:
    """Names of GPUs and reasons come from outside."""
    history = MemoryHistory(capacity_s=10, max_series=2, max_targets=1)

    history.add("a", 1000.0, dict.fromkeys("xyz", ("u", 1.0)))
    history.add("b", 1000.0, {"x": ("u", 1.0)})

    assert len(history.range("a", (), 1000.0, 60.0, 10)) == 2
    assert history.range("b", (), 1000.0, 60.0, 10) == []
    assert history.dropped_series == 2


def test_unknown_names_have_no_line() -> None:
    """Asking for what never was is not an error."""
    assert filled(3).range("a", ["nothing"], 1003.0, 60.0, 10) == []
    assert filled(3).range("b", (), 1003.0, 60.0, 10) == []


def test_a_history_of_nothing_is_refused() -> None:
    """Sizes are positive."""
    with pytest.raises(ValueError, match="positive"):
        MemoryHistory(capacity_s=0)
