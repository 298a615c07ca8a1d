"""Fits the constants of a step to profile points: times of steps whose composition is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from admission.simulation.calibrating.driving import drive
from admission.simulation.calibrating.linear import Equations, open_ratios, solve
from admission.simulation.calibrating.measured import CalibrationError, Measured
from admission.simulation.calibrating.tables import Row, Table
from admission.simulation.engine import EngineConfig

LEAST_POINTS = 6
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Point:
    """One measured duration: what the steps in it did (four sums), and whether it has a request's overhead in it."""

    kind: str
    work: tuple[float, float, float, float]
    overhead: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PointFit:
    """A fitted engine, how far the points leave each constant open, and the relative errors by kind of point."""

    config: EngineConfig
    open: tuple[float, ...]
    fitted: dict[str, tuple[float, ...]]
    judged: dict[str, tuple[float, ...]]


def points_of(table: Table, bounds: EngineConfig) -> list[Point]:
    """The points of a table of decode steps, of lone prefills or of whole batches.

    Raises:
        CalibrationError: a value makes no sense; names file, line and column.
    """
    make = {"decode": _decode, "prefill": _prefill, "batches": _batch}[table.kind]
    return [make(table, line, row, bounds) for line, row in table.rows]


def _seconds(table: Table, line: int, row: Row, column: str, unit: float = 1.0) -> float:
    value = table.number(line, row, column)
    if value == 0:
        raise CalibrationError(f"{table.name}:{line}: {column} is 0")
    return value * unit


def _decode(table: Table, line: int, row: Row, bounds: EngineConfig) -> Point:
    """One decode step. Sequences from `batch`, or from tokens per second; KV from its usage, or from the context."""
    seconds = _seconds(table, line, row, "itl_ms", 1e-3)
    if "batch" in table.columns:
        batch = table.number(line, row, "batch")
    elif "out_tok_s" in table.columns:
        batch = table.number(line, row, "out_tok_s", 1e9) * seconds
    else:
        raise CalibrationError(f"{table.name}: decode points need a column batch or out_tok_s")
    if "kv_usage" in table.columns:
        kv = table.number(line, row, "kv_usage", 1.0) * bounds.kv_capacity_tokens
    else:
        kv = batch * table.number(line, row, "context_len", 1e8)
    return Point("decode step", (1.0, 0.0, batch, kv), 0.0, seconds)


def _prefill(table: Table, line: int, row: Row, bounds: EngineConfig) -> Point:
    """The TTFT of a lone request: chunk after chunk, each reading what is there so far."""
    tokens = table.count(line, row, "isl", least=1)
    ends = [*range(bounds.step_tokens, tokens, bounds.step_tokens), tokens]
    seconds = _seconds(table, line, row, "ttft_ms", 1e-3)
    return Point("lone TTFT", (len(ends), tokens, 0.0, sum(ends)), 1.0, seconds)


def _batch(table: Table, line: int, row: Row, bounds: EngineConfig) -> Point:
    """A batch of equal requests from its beginning to its end: the model itself says what its steps do."""
    tokens, batch = (
        table.count(line, row, "in_len_eq_out_len", least=1),
        table.count(line, row, "batch", least=1),
    )
    seconds = _seconds(table, line, row, "latency_s")
    driven = drive(bounds, [Measured(0.0, tokens, tokens)] * batch)
    work = tuple(sum(each.sums[-1] for each in driven.work).tolist())
    return Point("whole batch", work, 0.0, seconds)


def fit_points(points: Iterable[Point], bounds: EngineConfig, name: str) -> PointFit:
    """Constants from every other point; the rest judges them.

    Raises:
        CalibrationError: fewer than six points.
    """
    ordered = list(points)
    if len(ordered) < LEAST_POINTS:
        raise CalibrationError(f"{name}: {len(ordered)} points; {LEAST_POINTS} are needed")
    fitted, judged = ordered[::2], ordered[1::2]
    equations = _equations(fitted)
    base_s = 0.5 * min(point.seconds / point.work[0] for point in ordered)
    for _ in range(_ROUNDS):
        costs = solve(equations, base_s)
        base_s = max(float(costs[0]), 1e-5)
    base, prefill, decode, kv, overhead = (float(cost) for cost in costs)
    config = replace(
        bounds,
        base_s=max(base, 1e-5),
        prefill_s_per_token=prefill,
        decode_s_per_sequence=decode,
        kv_s_per_token=kv,
        overhead_s=overhead,
    )
    ratios = tuple(open_ratios(equations, costs).tolist())
    return PointFit(config, ratios, _errors(fitted, config), _errors(judged, config))


def _equations(points: list[Point]) -> Equations:
    rows = np.array([[*point.work, point.overhead] for point in points])
    seconds = np.array([point.seconds for point in points])
    return Equations(rows, seconds, seconds)


def _errors(points: list[Point], config: EngineConfig) -> dict[str, tuple[float, ...]]:
    costs = np.array(
        [
            config.base_s,
            config.prefill_s_per_token,
            config.decode_s_per_sequence,
            config.kv_s_per_token,
            config.overhead_s,
        ]
    )
    off = _equations(points).residuals(costs).tolist()
    kinds = dict.fromkeys(point.kind for point in points)
    return {
        kind: tuple(error for point, error in zip(points, off, strict=True) if point.kind == kind)
        for kind in kinds
    }
