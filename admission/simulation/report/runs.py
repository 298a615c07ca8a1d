"""The runs that are shown, by load and by policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from admission.simulation.judging import Report
from admission.simulation.timeline import Timeline


class Run(Protocol):
    """What is shown of one run?"""

    @property
    def label(self) -> str:
        """The policy, as people know it."""

    @property
    def load(self) -> float:
        """Factor on the rate of the workload."""

    @property
    def seed(self) -> int:
        """Of the run."""

    @property
    def report(self) -> Report:
        """The verdict."""

    @property
    def limit_requests(self) -> int | None:
        """The requests that a policy lets in at most when it keeps its books in tokens; None: it has no such limit."""

    @property
    def timeline(self) -> Timeline | None:
        """What it looked like over time, where somebody watched."""


def loads(runs: Sequence[Run]) -> list[float]:
    """The load factors, as they were asked for."""
    return list(dict.fromkeys(run.load for run in runs))


def by_policy(runs: Sequence[Run], load: float) -> dict[str, list[Report]]:
    """The reports at one load, one for each seed, by policy as they were asked for."""
    reports: dict[str, list[Report]] = {}
    for run in runs:
        if run.load == load:
            reports.setdefault(run.label, []).append(run.report)
    return reports
