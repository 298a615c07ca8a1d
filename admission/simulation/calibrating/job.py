"""One calibration from data to verdict: what it was fitted to, what came out, how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from admission.runtime.segments import SUFFIX
from admission.simulation.calibrating import facts, tables
from admission.simulation.calibrating.fitting import CONSTANTS, EVALUATIONS, Fitter, Progress, silent
from admission.simulation.calibrating.journal import read_journal
from admission.simulation.calibrating.judging import Accuracy, judge
from admission.simulation.calibrating.measured import CalibrationError, Clock, Recording
from admission.simulation.calibrating.points import PointFit, fit_points, points_of
from admission.simulation.engine import EngineConfig

MOST_REQUESTS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What whoever calibrates says of the engine and of the fit; None: to be told from the data, or the default."""

    kv_capacity_tokens: int | None = None
    max_num_seqs: int | None = None
    step_tokens: int = 2_048
    ahead: bool | None = None
    usual: bool = True
    """What requests leave open is held near what is usual on GPUs."""
    clock: Clock = Clock.ARRIVAL
    engines: int | None = None
    share: float = 0.5
    """Of the requests, those that constants are fitted to: the first."""
    evaluations: int = EVALUATIONS
    most_requests: int = MOST_REQUESTS
    """Of a longer recording the busiest so many requests in a row are taken, which bounds the time."""
    where: tuple[str, ...] = ()
    target: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fitted engine and its verdict, from requests (`fitted`, `judged`) or from points (`points`)."""

    source: str
    config: EngineConfig
    engines: int
    open: dict[str, float]
    """By constant, see `linear.open_ratios`."""
    notes: tuple[str, ...] = ()
    fitted: Accuracy | None = None
    judged: Accuracy | None = None
    points: PointFit | None = None


def calibrate(paths: Sequence[Path], wish: Wish, progress: Progress = silent) -> Outcome:
    """Fit an engine to a journal, or to tables of requests, of the server's own figures and of profile points.

    Raises:
        CalibrationError: the data cannot be read, do not belong together or say too little; one line.
    """
    if any(path.is_dir() or path.suffix == SUFFIX for path in paths):
        if len(paths) > 1:
            raise CalibrationError("a journal is calibrated to alone")
        return _to_recording(read_journal(paths[0], wish.target), wish, progress)
    where = tables.choice(wish.where)
    read = [tables.read_table(path, where) for path in paths]
    kinds = [table.kind for table in read]
    if twice := next((kind for kind in ("requests", "series") if kinds.count(kind) > 1), ""):
        raise CalibrationError(f"two tables of {twice}; one is expected")
    if "requests" in kinds:
        if others := sorted({*kinds} - {"requests", "series"}):
            raise CalibrationError(f"requests and points ({', '.join(others)}) are calibrated to apart")
        return _to_recording(_recording(read), wish, progress)
    if not kinds or "series" in kinds:
        raise CalibrationError("a series alone says nothing of single requests: give a table of requests too")
    return _to_points(read, wish)


def _recording(read: Sequence[tables.Table]) -> Recording:
    by_kind = {table.kind: table for table in read}
    series = tables.series(by_kind["series"]) if "series" in by_kind else ()
    return Recording(by_kind["requests"].name, tables.requests(by_kind["requests"]), series)


def _to_recording(recording: Recording, wish: Wish, progress: Progress) -> Outcome:
    engines = wish.engines or recording.engines
    recording = replace(recording, clock=wish.clock, engines=engines)
    bounds, notes = _bounds(recording, wish)
    whole, recording = len(recording.requests), _busiest(recording, wish.most_requests)
    if len(recording.requests) < whole:
        notes = (*notes, f"the busiest {len(recording.requests):,} of {whole:,} requests are taken")
    count = round(wish.share * len(recording.requests))
    fit = Fitter(recording, count, progress, usual=wish.usual).fit(bounds, wish.evaluations, wish.ahead)
    config = rounded(fit.config)
    fitted, judged = judge(config, recording, count)
    return Outcome(recording.name, config, engines, _by_name(fit.open), notes, fitted, judged)


def _busiest(recording: Recording, most: int) -> Recording:
    """So many requests in a row that came in the shortest time."""
    requests = recording.requests
    if len(requests) <= most:
        return recording
    starts = range(len(requests) - most + 1)
    start = min(starts, key=lambda each: requests[each + most - 1].at_s - requests[each].at_s)
    began_s = requests[start].at_s
    taken = (replace(one, at_s=one.at_s - began_s) for one in requests[start : start + most])
    return replace(recording, requests=tuple(taken), series=())


def _bounds(recording: Recording, wish: Wish) -> tuple[EngineConfig, tuple[str, ...]]:
    notes = []
    capacity = wish.kv_capacity_tokens
    if capacity is None:
        capacity = facts.kv_capacity(recording)
        notes.append(f"KV capacity {capacity:,} tokens is told from the data")
    slots = wish.max_num_seqs
    if slots is None and (slots := facts.max_num_seqs(recording)):
        notes.append(f"{slots} sequences at most is told from the data")
    return _config(capacity, slots, wish.step_tokens), tuple(notes)


def _config(capacity: int, slots: int | None, step_tokens: int) -> EngineConfig:
    try:
        config = EngineConfig(kv_capacity_tokens=capacity, step_tokens=max(step_tokens, 257))
        return replace(config, max_num_seqs=slots or config.max_num_seqs, step_tokens=step_tokens)
    except ValueError as error:
        raise CalibrationError(str(error)) from error


def _to_points(read: Sequence[tables.Table], wish: Wish) -> Outcome:
    if wish.kv_capacity_tokens is None:
        raise CalibrationError("nothing tells the KV capacity; give --kv-capacity")
    bounds = _config(wish.kv_capacity_tokens, wish.max_num_seqs, wish.step_tokens)
    bounds = replace(bounds, ahead=bool(wish.ahead))
    names = ", ".join(table.name for table in read)
    fit = fit_points([point for table in read for point in points_of(table, bounds)], bounds, names)
    config = rounded(fit.config)
    return Outcome(names, config, 1, _by_name(fit.open), points=replace(fit, config=config))


def rounded(config: EngineConfig) -> EngineConfig:
    """The same to four digits: no measurement is better, and a file reads better."""
    four: dict[str, Any] = {name: float(f"{getattr(config, name):.4g}") for name in CONSTANTS}
    return replace(config, **four)


def _by_name(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(CONSTANTS, values, strict=True))
