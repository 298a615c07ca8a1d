"""One time axis for all, gaps stay gaps, and the specification never changes while data does."""

from __future__ import annotations

import json

import pytest

from dashboard.charts import UNITS, Mark, Trace, Window, frame, specification, window
from dashboard.picture import History, Line
from dashboard.theme import COLOURS

NOW = 1_800_000_000.0
GIB = 2**30
AXIS = Window(NOW - 600, NOW)


def _trace(*ago: float, value: float = 1.0) -> Trace:
    times = sorted(NOW - one for one in ago)
    return Trace("x", "used", Line(times, [value] * len(times)))


def test_every_chart_spans_the_same_ten_minutes() -> None:
    """Eyes go straight down from one card to the next."""
    for traces in ([], [_trace(3.0, 2.0, 1.0)], [_trace(550.0)]):
        rows = frame(traces, [], AXIS, "s")
        assert rows["t"].min().timestamp() == NOW - 600
        assert rows["t"].max().timestamp() == NOW


@pytest.mark.parametrize(
    ("age_s", "span_s"), [(0.0, 60), (42.0, 60), (61.0, 120), (250.0, 300), (599.0, 600), (9e9, 600)]
)
def test_a_young_history_fills_its_axis(age_s: float, span_s: float) -> None:
    """A minute after the start a chart of ten minutes would be an empty sheet."""
    history = History({"x": Line([NOW - age_s, NOW], [1.0, 1.0]), "empty": Line()})

    assert window(history, NOW) == Window(NOW - span_s, NOW)
    assert window(History(), NOW) == Window(NOW - 60, NOW)


def test_a_gap_is_a_row_without_a_value() -> None:
    """A line through the time when nothing was known would be an invention."""
    rows = frame([_trace(30, 28, 26, 24, 8, 6, 4, 2)], [], AXIS, "count")
    gaps = rows[rows["v"].isna()]

    assert len(gaps) == 1
    assert NOW - 24 < gaps["t"].iloc[0].timestamp() < NOW - 8


def test_regular_points_have_no_gap() -> None:
    """One late point is not a hole."""
    rows = frame([_trace(*(2.0 * step for step in range(1, 290) if step != 100))], [], AXIS, "count")

    assert not rows["v"].isna().any()


def test_points_outside_the_axis_are_left_out() -> None:
    """A stale clock or a long answer must not squeeze the chart."""
    rows = frame([_trace(4_000.0, 700.0, 100.0, -500.0)], [], AXIS, "count")

    assert len(rows[rows["k"] == "line"]) == 1


def test_a_mark_runs_from_end_to_end() -> None:
    """The SLO holds before there is a sample, too."""
    rows = frame([], [Mark("SLO", 2.0)], AXIS, "s")
    marks = rows[rows["k"] == "mark"]

    assert list(marks["v"]) == [2.0, 2.0]
    assert [at.timestamp() for at in marks["t"]] == [NOW - 600, NOW]


def test_bytes_are_drawn_in_gib() -> None:
    """Round numbers on the axis are round numbers of GiB."""
    rows = frame([_trace(1.0, value=6.0 * GIB)], [Mark("critical", 3.0 * GIB)], AXIS, "bytes", top=8.0 * GIB)

    assert rows["v"].max() == 8.0
    assert 6.0 in list(rows["v"])


@pytest.mark.parametrize("unit", UNITS)
def test_a_specification_is_valid_and_holds_no_data(unit: str) -> None:
    """Data within it would make the browser build the chart anew each second."""
    spec = specification(unit)

    assert spec is specification(unit)
    assert "data" not in spec
    assert "datasets" not in spec
    assert json.loads(json.dumps(spec))["config"]["background"] == "transparent"


def test_every_shape_has_its_layer_and_every_colour_its_place() -> None:
    """A trace whose shape no layer draws would vanish."""
    text = json.dumps(specification("count"))

    assert all(
        f"datum.k === '{shape}'" in text for shape in ("area", "line", "thick", "step", "stack", "mark")
    )
    assert all(colour in text for colour in COLOURS.values())
