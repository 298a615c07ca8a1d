"""Runs a recorded journal through the core again and tells where it decides otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admission.runtime import records, segments
from admission.runtime.inputs import Op

MAX_DIFFERENCES = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """One input whose events came out otherwise: their kinds, reasons and checksum. `now` in monotonic seconds."""

    segment: str
    index: int
    target: str
    op: str
    now: float
    recorded: str
    replayed: str


@dataclass(slots=True)
class ReplayReport:
    """What a replay found. Only the first 100 differences are kept."""

    segments: int = 0
    inputs: int = 0
    events: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Segments that could not be read, and why."""

    @property
    def same(self) -> bool:
        """Whether every input gave the recorded events, and everything could be read."""
        return not self.different and not self.errors


def replay(path: Path) -> ReplayReport:
    """Replays a segment, or each segment of a journal folder from its own snapshot."""
    report = ReplayReport()
    found = segments.segments(path)
    if not found:
        report.errors.append(f"{path}: no journal segments")
    for each in found:
        try:
            _replay_segment(each, report)
        except (segments.JournalError, OSError) as error:
            report.errors.append(f"{each.name}: {error}")
    return report


def _replay_segment(path: Path, report: ReplayReport) -> None:
    report.segments += 1
    controllers: dict[str, Any] = {}
    index = 0
    for kind, payload in segments.frames(path):
        for value in segments.decode(payload):
            if kind == segments.SNAPSHOT:
                controllers = _snapshot(value)
                continue
            for row in _rows(value):
                _replay_row(path.name, index, row, controllers, report)
                index += 1


def _snapshot(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("controllers"), dict):
        raise segments.JournalError("the snapshot is not one")
    controllers: dict[str, Any] = value["controllers"]
    return controllers


def _rows(value: Any) -> Iterator[tuple[Any, ...]]:
    if not isinstance(value, list) or not all(isinstance(row, tuple) and len(row) == 6 for row in value):
        raise segments.JournalError("a batch has something else than inputs")
    return iter(value)


def _replay_row(
    segment: str, index: int, row: tuple[Any, ...], controllers: dict[str, Any], report: ReplayReport
) -> None:
    target, number, now, plain, digest, brief = row
    controller = controllers.get(target)
    if controller is None:
        raise segments.JournalError(f"input {index} is for target {target!r}, which the snapshot has not")
    op = Op(number)
    args = records.input_in(op, plain)
    # Only `first_token` has something after the time.
    before, after = (args[:1], args[1:]) if op is Op.FIRST_TOKEN else (args, ())
    events = getattr(controller, op.method)(*before, now, *after)
    report.inputs += 1
    report.events += len(events)
    replayed_digest, replayed = records.events_out(events)
    if replayed_digest == digest:
        return
    report.different += 1
    if len(report.differences) < MAX_DIFFERENCES:
        difference = Difference(
            segment,
            index,
            target,
            op.name,
            now,
            f"{records.kinds_text(brief)} #{digest:08x}",
            f"{records.kinds_text(replayed)} #{replayed_digest:08x}",
        )
        report.differences.append(difference)
