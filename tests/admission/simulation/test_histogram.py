"""Quantiles in constant memory: how far they may be off, and that merging loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.simulation.histogram import HIGHEST, LOWEST, Histogram

VALUES = st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=200)
QUANTILES = st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 1.0])


def filled(values: list[float], error_ratio: float = 0.01) -> Histogram:
    """A histogram of these."""
    histogram = Histogram(error_ratio)
    for value in values:
        histogram.add(value)
    return histogram


@given(VALUES, QUANTILES, st.sampled_from([0.01, 0.05]))
def test_a_quantile_is_within_the_promised_error_of_the_value_at_its_rank(
    values: list[float], q: float, error_ratio: float
) -> None:
    """A verdict quotes p99 to two digits: one percent is what it can bear."""
    exact = sorted(values)[int(q * (len(values) - 1))]
    assert filled(values, error_ratio).quantile(q) == pytest.approx(exact, rel=error_ratio * 1.000001)


@given(VALUES, VALUES, QUANTILES)
def test_merged_is_as_if_counted_in_one(left: list[float], right: list[float], q: float) -> None:
    """Classes add up to the whole without counting twice."""
    merged = filled(left)
    merged.merge(filled(right))
    assert merged.quantile(q) == filled(left + right).quantile(q)
    assert merged.count == len(left) + len(right)


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    """A million requests between a millisecond and a thousand seconds fit into under 700 buckets."""
    histogram = filled([0.001 * 1.0001**no for no in range(138_000)])
    assert len(histogram) < 700


def test_one_value_is_given_back_exactly() -> None:
    """The lowest and the highest are known: a middle of a bucket beyond them would be invented."""
    assert filled([0.123]).quantile(0.99) == 0.123


def test_what_lies_outside_counts_at_the_edge() -> None:
    """A first token in no time at all is still one."""
    histogram = filled([0.0, -1.0, float("inf")])
    assert [histogram.quantile(q) for q in (0.0, 0.5, 1.0)] == pytest.approx(
        [LOWEST, LOWEST, HIGHEST], rel=0.01
    )


def test_nothing_counted_has_no_quantile() -> None:
    """Zero would be a claim."""
    assert Histogram().quantile(0.5) is None


def test_misuse_is_told() -> None:
    """A NaN would hide in a bucket, and unlike buckets would mix up values."""
    with pytest.raises(ValueError, match="NaN"):
        Histogram().add(float("nan"))
    with pytest.raises(ValueError, match="do not match"):
        Histogram(0.01).merge(Histogram(0.05))
    with pytest.raises(ValueError, match="between 0 and 1"):
        Histogram(1.0)
