"""How much of a journal's traffic is known and how much had to be guessed, told before anybody trusts a figure."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from admission.simulation.asking import AskedWronglyError
from admission.simulation.inputs.journal_trace import JournalReport, JournalTrace


def recollect(path: Path, target: str) -> JournalReport:
    """Read it once.

    Raises:
        TraceError: there is no journal, it has no request, or none of the target.
        AskedWronglyError: it has several targets, and none was chosen: they would share one engine here.
    """
    trace = JournalTrace(path, target or None)
    deque(trace.arrivals(), maxlen=0)
    targets = trace.report.targets
    if not target and len(targets) > 1:
        raise AskedWronglyError(
            f"--journal {path}: has several targets: choose one with --target ({', '.join(targets)})"
        )
    return trace.report


def recollected(report: JournalReport) -> str:
    """For people, in one line."""
    parts = {
        "by the engine's own count": report.known,
        "by streamed chunks": report.counted,
        "as others were lately": report.learned,
    }
    said = ", ".join(f"{_percent(count, report.requests)} {how}" for how, count in parts.items() if count)
    line = f"lengths of answers: {said}; {_percent(report.refused, report.requests)} had been refused"
    if report.unreadable:
        line += f"; could not be read to the end: {', '.join(report.unreadable)}"
    return line


def facts(report: JournalReport) -> dict[str, Any]:
    """For programs."""
    return asdict(report)


def _percent(count: int, of: int) -> str:
    return f"{100 * count / max(1, of):.0f} %"
