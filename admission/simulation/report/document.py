"""Everything about some runs as one JSON document, for programs: keys are stable, units are in the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from admission.simulation.report.runs import Run

FORMAT = 1
"""Raised when a key changes its meaning or goes away."""


def document(runs: Sequence[Run], about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The runs with their reports and, where somebody watched, their time lines.

    Args:
        runs: in the order in which they are shown.
        about: what was run: workload, engine, versions; anything that JSON can hold.
    """
    return {"format": FORMAT, "about": dict(about or {}), "runs": [_run(run) for run in runs]}


def _run(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = {"policy": run.label, "load": run.load, "seed": run.seed}
    told["report"] = run.report.as_json()
    if run.timeline is not None:
        told["timeline"] = run.timeline.as_json()
    return told
