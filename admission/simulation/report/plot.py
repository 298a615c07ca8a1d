"""What happened over time as a picture: one column for each policy, the same panels and scales in all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from admission.core.slo import INTERACTIVE_SLO, SloConfig
from admission.simulation.report import palette
from admission.simulation.report.columns import Column, columns_of
from admission.simulation.report.panels import Panel, Series, all_panels
from admission.simulation.report.runs import Run
from admission.simulation.timeline import Moment

SUFFIXES = (".png", ".svg")
DPI = 130
_LONGEST_NAME = 56
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": palette.SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": palette.INK,
    "xtick.color": palette.SOFT,
    "ytick.color": palette.SOFT,
    "svg.fonttype": "none",
    "svg.hashsalt": "tidegate",
}


class PlotError(ValueError):
    """What was asked for cannot be drawn: says why."""


def draw(runs: Sequence[Run], slo: SloConfig = INTERACTIVE_SLO, title: str = "") -> Figure:
    """The runs that somebody watched, side by side.

    Args:
        runs: in the order of the columns; those without a time line are left out.
        slo: its targets are drawn into the panels of latency.
        title: above everything.

    Raises:
        PlotError: no run was watched.
    """
    columns = columns_of(runs)
    if not columns:
        raise PlotError("no run was watched over time, so there is nothing to draw")
    panels = all_panels(slo)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(max(8.0, 4.0 * len(columns)), 1.75 * len(panels)), layout="constrained")
        grid = figure.subplots(len(panels), len(columns), sharex=True, squeeze=False)
        for panel, row in zip(panels, grid, strict=True):
            _draw_panel(panel, list(row), columns)
        for axes, column in zip(grid[0], columns, strict=True):
            _name(axes, column.name)
        _draw_time(figure, list(grid[-1]), columns)
        if title:
            figure.suptitle(title, x=0.01, ha="left", size=12)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write it as PNG or SVG, as the name ends; the same picture gives the same bytes.

    Raises:
        PlotError: another ending.
        OSError: the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise PlotError(f"{path.name}: a plot is a .png or a .svg")
    with mpl.rc_context(_STYLE):
        metadata = {"Software": None} if kind == ".png" else {"Date": None}
        figure.savefig(path, format=kind[1:], dpi=DPI, metadata=metadata)


def _name(axes: Axes, name: str) -> None:
    """Above its column; a policy with many settings gets smaller letters, and no more than fit."""
    shown = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    size = 12 if len(shown) <= _LONGEST_NAME // 2 else 7.5
    axes.text(0.5, 1.34, shown, transform=axes.transAxes, ha="center", size=size, weight="bold")


def _draw_panel(panel: Panel, row: Sequence[Axes], columns: Sequence[Column]) -> None:
    shown = [column.moments(panel) for column in columns]
    units = [panel.unit(moments) for moments in shown]
    until = max(column.until for column in columns)
    for axes, column, moments, unit in zip(row, columns, shown, units, strict=True):
        alike = [other for other, its in zip(shown, units, strict=True) if its == unit]
        _draw_background(axes, column, until)
        for series in panel.series:
            _draw_series(axes, series, moments)
        if panel.mark is not None:
            axes.axhline(panel.mark.value, color=palette.MARK, lw=1.2, ls=(0, (4, 2)), label=panel.mark.label)
        _scale(axes, panel, alike)
        axes.set_title(panel.titled(moments, panel.ceiling(alike)), loc="left", size=9, weight="bold")
        if axes is not row[0] and len(set(units)) == 1:
            axes.tick_params(labelleft=False)
    handles, labels = row[0].get_legend_handles_labels()
    row[0].legend(
        handles,
        labels,
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),
        ncols=len(labels),
        frameon=False,
        fontsize=8,
        handlelength=1.4,
        columnspacing=1.0,
        borderaxespad=0.0,
    )


def _draw_series(axes: Axes, series: Series, moments: Sequence[Moment]) -> None:
    times = [moment.at_s + moment.for_s / 2 for moment in moments]
    values = [math.nan if (value := series.value(moment)) is None else value for moment in moments]
    axes.plot(times, values, color=series.colour, lw=1.2, ls=series.dashes, label=series.label)
    if alone := _alone(values):
        points = [times[no] for no in alone], [values[no] for no in alone]
        axes.plot(*points, color=series.colour, ls="", marker=".", ms=3, label="_alone")
    if series.filled:
        axes.fill_between(times, values, 0.0, color=series.colour, alpha=0.18, lw=0)


def _alone(values: Sequence[float]) -> list[int]:
    """Values between two gaps: a line would not show them."""
    padded = [math.nan, *values, math.nan]
    return [
        no
        for no, (before, value, after) in enumerate(zip(padded, values, padded[2:], strict=False))
        if math.isfinite(value) and not math.isfinite(before) and not math.isfinite(after)
    ]


def _draw_background(axes: Axes, column: Column, last: float) -> None:
    """Disturbances, and what is not judged."""
    axes.set_xlim(0.0, last)
    for start, end in ((0.0, column.timeline.from_s), (column.timeline.until_s, last)):
        if start < end:
            axes.axvspan(start, end, color=palette.UNJUDGED, lw=0, zorder=0)
    for start, end in column.disturbances:
        axes.axvspan(start, min(end, last), color=palette.SHADE, lw=0, zorder=0)
        axes.axvline(start, color=palette.MARK, lw=0.6, alpha=0.7, zorder=0.5, label="_disturbance")
    axes.grid(axis="y", color=palette.GRID, lw=0.6)
    axes.set_axisbelow(True)


def _scale(axes: Axes, panel: Panel, alike: Sequence[Sequence[Moment]]) -> None:
    """The same scale for all columns of one unit."""
    top = panel.ceiling(alike)
    if panel.log:
        axes.set_yscale("log")
        axes.set_ylim(panel.floor(alike, top) / 1.3, top * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0.0, top * 1.06)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: panel.write(value)))


def _draw_time(figure: Figure, row: Sequence[Axes], columns: Sequence[Column]) -> None:
    """The x axes in a unit that people think in, and what the shades mean."""
    longest = max(axes.get_xlim()[1] for axes in row)
    unit, one = ("s", 1.0) if longest <= 600 else ("min", 60.0) if longest <= 3 * 3600 else ("h", 3600.0)
    for axes in row:
        axes.xaxis.set_major_locator(_Steps(one))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / one:g}"))
    shades = ["yellow: disturbance"] if any(column.disturbances for column in columns) else []
    if any(column.timeline.from_s > 0 or column.timeline.until_s < longest for column in columns):
        shades.append("grey: not judged")
    figure.supxlabel("; ".join([f"time, {unit} (requests where they arrived)", *shades]), size=9)


class _Steps(MaxNLocator):
    """Round numbers of the unit that is shown, not of seconds."""

    def __init__(self, one: float) -> None:
        super().__init__(nbins=7, steps=[1, 2, 3, 5, 10])
        self._one = one

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Ticks in seconds."""
        return [self._one * tick for tick in super().tick_values(vmin / self._one, vmax / self._one)]
