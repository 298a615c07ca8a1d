"""The columns of the picture: the runs that somebody watched, cut into the same stretches of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from admission.simulation.report.panels import Panel
from admission.simulation.report.runs import Run
from admission.simulation.timeline import Moment, Timeline

POINTS = 240
"""A column shows no more: rows are put together until it is enough."""
REQUESTS_IN_A_POINT = 20
"""Of lines that count requests, on average: fewer would show the dice of their arrivals, not the policy."""
FEWEST_POINTS = 30


@dataclass(frozen=True, slots=True)
class Column:
    """One run."""

    name: str
    states: list[Moment]
    requests: list[Moment]
    timeline: Timeline
    disturbances: tuple[tuple[float, float], ...]
    until: float
    """Where its time line ends."""

    def moments(self, panel: Panel) -> list[Moment]:
        """The rows that a panel shows."""
        return self.requests if panel.of_requests else self.states


def columns_of(runs: Sequence[Run]) -> list[Column]:
    """The runs with a time line, each cut as coarsely as the one that needs it most: their curves can be compared."""
    watched = [(run, run.timeline) for run in runs if run.timeline is not None]
    timelines = [timeline for _, timeline in watched]
    states, requests = (
        common_width(timelines, points) for points in (_points_of_states, _points_of_requests)
    )
    return [
        Column(
            _name(run, [one for one, _ in watched]),
            _in_its_unit(_cut(timeline, states), run.limit_requests),
            _cut(timeline, requests),
            timeline,
            run.report.disturbances,
            len(timeline.moments()) * timeline.row_s or 1.0,
        )
        for run, timeline in watched
    ]


def common_width(timelines: Sequence[Timeline], points: Callable[[Timeline], int]) -> float:
    """The seconds of a point that all time lines can be cut into: what the coarsest needs, or hardly more.

    Args:
        timelines: the runs.
        points: how many points one of them shows at most.
    """
    rows = [(len(one.moments()), one.row_s) for one in timelines]
    needed = max(
        (row_s * math.ceil(count / points(one)) for one, (count, row_s) in zip(timelines, rows, strict=True)),
        default=1.0,
    )
    step = max((row_s for _, row_s in rows), default=1.0)
    width = max(needed, step)
    while not all(_fits(count, width / row_s) for count, row_s in rows):
        width += step
    return width


def _fits(count: int, together: float) -> bool:
    """Can so many rows be asked for in parts of that size? A time line is asked for a number of points."""
    return count <= together or math.ceil(count / math.ceil(count / together)) == together


def _cut(timeline: Timeline, width_s: float) -> list[Moment]:
    """In parts of that length, the last one too, so that a rate in it is the same for all."""
    together = width_s / timeline.row_s
    points = max(1, math.ceil(len(timeline.moments()) / together))
    return [replace(moment, for_s=width_s) for moment in timeline.moments(points)]


def _in_its_unit(moments: list[Moment], limit_requests: int | None) -> list[Moment]:
    """A policy that limits requests shows requests, in whatever unit it keeps its books."""
    if limit_requests is None:
        return moments
    return [
        replace(one, limit=None if one.limit is None else float(limit_requests), used=one.in_flight)
        for one in moments
    ]


def _points_of_states(_: Timeline) -> int:
    return POINTS


def _points_of_requests(timeline: Timeline) -> int:
    offered = sum(moment.offered for moment in timeline.moments())
    return min(POINTS, max(FEWEST_POINTS, offered // REQUESTS_IN_A_POINT))


def _name(run: Run, runs: Sequence[Run]) -> str:
    """The policy, with what tells it from the others."""
    loads, seeds = {one.load for one in runs}, {one.seed for one in runs}
    load = f", load x{run.load:g}" if len(loads) > 1 else ""
    return run.label + load + (f", seed {run.seed}" if len(seeds) > 1 else "")
