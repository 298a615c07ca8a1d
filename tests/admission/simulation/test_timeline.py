"""The time line: what a row holds, and that its memory is bounded."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from admission.simulation.fate import Ending
from admission.simulation.timeline import Spread, State, Timeline
from tests.admission.simulation.fates import impatient, refused, served


def test_a_row_says_what_was_seen_and_what_became_of_its_arrivals() -> None:
    """State is of that second; a request counts in the second in which it arrived, whenever it settled."""
    timeline = Timeline()
    timeline.look(0.2, State(limit=100.0, used=40.0, in_flight=4, queued=2, kv_ratio=0.5))
    timeline.look(1.0, State(limit=80.0))
    timeline.settle(served(0.9, ttft_s=1.0, tpot_s=0.05), good=True)
    timeline.settle(refused(0.1), good=False)
    first, second = timeline.moments()
    assert (first.limit, first.used, first.in_flight, first.queued, first.kv_ratio) == (
        100.0,
        40.0,
        4,
        2,
        0.5,
    )
    assert (first.offered, first.good, first.refused) == (2, 1, 1)
    assert first.ttft_p90_s == pytest.approx(1.0, rel=0.02)
    assert (second.at_s, second.limit, second.ttft_p90_s, second.offered) == (1.0, 80.0, None, 0)


def test_leavers_are_not_offered_here_either() -> None:
    """Rows add up to the report."""
    timeline = Timeline()
    timeline.settle(replace(served(), ending=Ending.LEFT), good=False)
    timeline.settle(replace(refused(), leaves=True), good=False)
    (moment,) = timeline.moments()
    assert (moment.offered, moment.refused) == (0, 0)


def test_who_leaves_without_a_token_counts_with_what_it_waited() -> None:
    """As in the verdict: otherwise the worst moments of an engine would be gaps in its line."""
    timeline = Timeline()
    timeline.settle(impatient(after_s=10.0), good=False)
    timeline.settle(impatient(1.0, after_s=10.0, admitted=False), good=False)
    accepted, waited = timeline.moments()
    assert accepted.ttft_p90_s == pytest.approx(10.0, rel=0.02)
    assert waited.ttft_p90_s is None


def test_fewer_rows_are_made_of_the_same_requests() -> None:
    """Counts add up, percentiles are those of all requests in the longer row, and the last row is as long as it is."""
    timeline = Timeline()
    for at in range(7):
        timeline.settle(served(at, ttft_s=1.0 + at), good=True)
    moments = timeline.moments(3)
    assert [(m.at_s, m.for_s, m.good) for m in moments] == [(0, 3, 3), (3, 3, 3), (6, 1, 1)]
    assert moments[1].ttft_p90_s == pytest.approx(5.0, rel=0.02)
    assert len(timeline.moments()) == 7


def test_past_its_bound_two_rows_become_one() -> None:
    """A week fits as well as a minute; counts add up and states average."""
    timeline = Timeline(rows=4)
    for at in range(5):
        timeline.look(at, State(limit=10.0 * at))
        timeline.settle(served(at), good=True)
    assert timeline.row_s == 2.0
    assert [(m.at_s, m.limit, m.good) for m in timeline.moments()] == [(0, 5, 2), (2, 25, 2), (4, 40, 1)]


def test_memory_is_bounded_however_long_the_run() -> None:
    """Halving repeats as often as it must, over a gap as well."""
    timeline = Timeline(rows=8)
    timeline.settle(served(1e6), good=True)
    assert len(timeline.moments()) <= 8
    assert sum(moment.good for moment in timeline.moments()) == 1


def test_an_unlimited_policy_has_no_limit_to_show() -> None:
    """Infinity is no number for a plot or for JSON, and it does not vary."""
    timeline = Timeline()
    timeline.look(0.0, State(limit=math.inf, in_flight=3))
    assert (timeline.moments()[0].limit, timeline.moments()[0].in_flight) == (None, 3)
    assert timeline.limit_variation_ratio is None
    json.dumps(timeline.as_json(), allow_nan=False)


def test_variation_of_the_limit_is_over_the_judged_span() -> None:
    """The way up from the start is no unrest."""
    timeline = Timeline(from_s=2.0, until_s=4.0)
    for at, limit in enumerate([1.0, 1.0, 90.0, 110.0, 1.0]):
        timeline.look(at, State(limit=limit))
    assert timeline.limit_variation_ratio == pytest.approx(0.1)


def test_spread_is_that_of_the_population_and_stays_exact_far_from_zero() -> None:
    """Sums of squares would lose a spread of one around a hundred million."""
    spread = Spread()
    for value in (1e8 - 1, 1e8 + 1):
        spread.add(value)
    assert spread.variation_ratio == pytest.approx(1e-8)
    assert Spread().variation_ratio is None


def test_columns_are_of_one_length() -> None:
    """What reads them plots them side by side."""
    timeline = Timeline()
    timeline.look(2.0, State())
    told = timeline.as_json()
    assert told.pop("row_s") == 1.0
    assert {len(column) for column in told.values()} == {3}


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rows_must_pair_up(rows: int) -> None:
    """Halving an odd number would shift the seconds."""
    with pytest.raises(ValueError, match="even"):
        Timeline(rows=rows)
