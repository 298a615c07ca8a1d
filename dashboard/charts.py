"""The one chart that all cards share: ten minutes of lines and areas with the lines that must not be crossed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import altair as alt
import pandas as pd

from dashboard.picture import History, Line
from dashboard.theme import COLOURS

SPANS_S = (60.0, 120.0, 300.0, 600.0)
"""A young history fills its axis: it is as long as the shortest of these that holds it."""
HEIGHT = 118
_GAP_INTERVALS = 3.5
_SHORTEST_GAP_S = 4.0
_GIB = 2**30
_LABELS: Mapping[str, str] = {
    "s": "datum.value < 1 ? format(datum.value * 1000, '.0f') + ' ms' : format(datum.value, '~f') + ' s'",
    "tokens": "format(datum.value, '~s')",
    "ratio": "format(datum.value, '.0%')",
    "bytes": "format(datum.value, '~f') + ' GiB'",
    "count": "datum.value >= 1000 ? format(datum.value, '~s') : format(datum.value, '~f')",
}
UNITS: tuple[str, ...] = tuple(_LABELS)


@dataclass(frozen=True, slots=True)
class Trace:
    """One series to draw: `colour` is a key of the theme, `shape` is line, thick, step, area or stack."""

    name: str
    colour: str
    line: Line
    shape: str = "line"


@dataclass(frozen=True, slots=True)
class Mark:
    """A level that must not be crossed, in the chart's unit."""

    name: str
    value: float
    colour: str = "critical"


@dataclass(frozen=True, slots=True)
class Window:
    """The time axis that all charts of a page share, in unix seconds."""

    start: float
    end: float


def window(history: History, now: float) -> Window:
    """The axis for a history, up to now."""
    first = min((line.unix_s[0] for line in history.lines.values() if line.unix_s), default=now)
    return Window(now - next((span for span in SPANS_S if span >= now - first), SPANS_S[-1]), now)


def frame(
    traces: Sequence[Trace], marks: Sequence[Mark], axis: Window, unit: str, top: float = 0.0
) -> pd.DataFrame:
    """Rows of the chart's data: time `t`, value `v`, series `s`, colour `c`, shape `k`; gaps are rows without a value.

    The values' axis reaches at least up to `top`.
    """
    rows = [row for trace in traces for row in _rows(trace, axis)]
    rows += [
        (at, mark.value, mark.name, mark.colour, "mark") for mark in marks for at in (axis.start, axis.end)
    ]
    rows += [(axis.start, 0.0, "", "limit", "frame"), (axis.end, top, "", "limit", "frame")]
    table = pd.DataFrame(rows, columns=["t", "v", "s", "c", "k"])
    if unit == "bytes":
        table["v"] /= _GIB
    table["t"] = pd.to_datetime(table["t"], unit="s", utc=True).astype("datetime64[ms, UTC]")
    return table


def _rows(trace: Trace, axis: Window) -> Iterator[tuple[float, float, str, str, str]]:
    line = trace.line
    limit = _gap_s(line.unix_s)
    before = None
    for at, value in zip(line.unix_s, line.value, strict=False):
        if at < axis.start or at > axis.end + 1:
            continue
        if before is not None and at - before > limit:
            yield (before + limit / 2, math.nan, trace.name, trace.colour, trace.shape)
        yield (at, value, trace.name, trace.colour, trace.shape)
        before = at


def _gap_s(times: Sequence[float]) -> float:
    """Points further apart than this, in seconds, have a gap between them."""
    steps = [later - earlier for earlier, later in pairwise(times)]
    return max(_SHORTEST_GAP_S, _GAP_INTERVALS * median(steps)) if steps else _SHORTEST_GAP_S


@cache
def specification(unit: str) -> dict[str, Any]:
    """The Vega-Lite chart for a unit, without data: it stays the same while data changes, so nothing flickers."""
    base = alt.Chart(alt.NamedData(name="rows")).encode(
        x=_x(), color=_colour(), detail="s:N", tooltip=_tooltip()
    )
    y = _y(unit)
    layers = [
        base.mark_point(opacity=0).encode(y=y).transform_filter("datum.k === 'frame'"),
        base.mark_area(opacity=0.25, line=False).encode(y=y).transform_filter("datum.k === 'area'"),
        base.mark_line(strokeWidth=1.5).encode(y=y).transform_filter("datum.k === 'area'"),
        base.mark_area(opacity=0.7).encode(y=_y(unit, "zero")).transform_filter("datum.k === 'stack'"),
        base.mark_line(strokeWidth=2, interpolate="step-after")
        .encode(y=y)
        .transform_filter("datum.k === 'step'"),
        base.mark_line(strokeWidth=1.25).encode(y=y).transform_filter("datum.k === 'line'"),
        base.mark_line(strokeWidth=2.25).encode(y=y).transform_filter("datum.k === 'thick'"),
        base.mark_line(strokeWidth=1.5, strokeDash=[5, 4]).encode(y=y).transform_filter("datum.k === 'mark'"),
    ]
    chart = alt.layer(*layers).properties(
        height=HEIGHT, padding={"left": 0, "right": 4, "top": 4, "bottom": 0}
    )
    spec: dict[str, Any] = chart.configure(background="transparent").configure_view(strokeWidth=0).to_dict()
    spec.pop("data", None)
    return spec


def _x() -> alt.X:
    label = "timeFormat(datum.value, seconds(datum.value) ? '%H:%M:%S' : '%H:%M')"
    axis = alt.Axis(
        title=None,
        labelExpr=label,
        tickCount=3,
        grid=False,
        domain=False,
        ticks=False,
        labelFlush=True,
        labelPadding=4,
    )
    return alt.X("t:T", axis=axis, scale=alt.Scale(nice=False))


def _y(unit: str, stack: Literal["zero"] | None = None) -> alt.Y:
    axis = alt.Axis(
        title=None,
        labelExpr=_LABELS[unit],
        tickCount=3,
        domain=False,
        ticks=False,
        gridOpacity=0.5,
        minExtent=44,
        maxExtent=44,
    )
    scale = alt.Scale(domain=[0, 1]) if unit == "ratio" else alt.Scale(zero=True, nice=True)
    return alt.Y("v:Q", axis=axis, scale=scale, stack=stack)


def _colour() -> alt.Color:
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    return alt.Color("c:N", scale=scale, legend=None)


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("t:T", format="%H:%M:%S", title="at"),
        alt.Tooltip("s:N", title="series"),
        alt.Tooltip("v:Q", format=".4~g", title="value"),
    ]
