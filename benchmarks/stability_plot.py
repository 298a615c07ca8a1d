"""The step responses as a picture: the limit of every seed over time, and what one who knew was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from admission.simulation.report import palette
from admission.simulation.report.plot import save as save_figure
from benchmarks.stability_courses import SETTLED_S, STEADY
from benchmarks.stability_runs import NEAR, Ridden

COLUMNS = 2
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": palette.SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": palette.INK,
}


def save(ridden: Sequence[Ridden], best: Mapping[str, int], path: Path) -> None:
    """Draw every course and write the picture.

    Raises:
        PlotError: the name ends in neither .png nor .svg.
        OSError: the file cannot be written.
    """
    rows = -(-len(ridden) // COLUMNS)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 2.0 * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS, squeeze=False)
        for one, place in zip(ridden, [each for row in axes for each in row], strict=False):
            _draw(place, one, best)
        for place in [each for row in axes for each in row][len(ridden) :]:
            place.set_axis_off()
        shown = {
            label: handle
            for place in figure.axes
            for handle, label in zip(*place.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            list(shown.values()), list(shown), loc="outside upper left", ncols=4, frameon=False, fontsize=9
        )
        figure.supxlabel("time, s", size=9)
    save_figure(figure, path)


def _draw(axes: Axes, one: Ridden, best: Mapping[str, int]) -> None:
    course = one.course
    until_s = course.scenario.duration_s
    for no, watched in enumerate(one.ours):
        axes.plot(
            watched.limit, color=palette.INK, lw=0.9, alpha=0.8, label="limit, each seed" if not no else ""
        )
    axes.plot(one.theirs[0].limit, color=palette.REFUSED, lw=1.1, ls=(0, (4, 2)), label="one who was told")
    for no, step in enumerate(course.steps):
        if step.at_s > 0:
            axes.axvline(step.at_s, color=palette.MARK, lw=0.8, label="" if no else "change")
        settled = [
            sum(each.limit[-int(SETTLED_S + until_s - step.until_s) :][: int(SETTLED_S)]) for each in one.ours
        ]
        middle = sum(settled) / len(settled) / SETTLED_S
        low, high = (1 - NEAR) * middle, (1 + NEAR) * middle
        name = "" if no else f"where it settles, {100 * NEAR:.0f} % to either side"
        axes.fill_between(
            [step.at_s, step.until_s], low, high, color=palette.USED, alpha=0.15, lw=0, label=name
        )
    shown = max(max(each.limit[5:]) for each in one.ours)
    top = min(shown, 1.8 * max(best[name] for name in STEADY if name in _names(one)))
    axes.set_xlim(0.0, until_s)
    axes.set_ylim(0.0, 1.05 * top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:.0f}k"))
    axes.grid(axis="y", color=palette.GRID, lw=0.6)
    title = course.steps[0].name + (" and back" if len(course.steps) > 1 else "")
    axes.set_title(
        f"{title} (up to {shown / 1000:.0f}k)" if shown > top else title, loc="left", size=9, weight="bold"
    )


def _names(one: Ridden) -> set[str]:
    return {one.course.before, *(step.after for step in one.course.steps)}
