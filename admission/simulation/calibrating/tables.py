"""Reads measurements from CSV, plain or gzipped: requests, the server's own figures over time, or profile points."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from admission.simulation.calibrating.measured import CalibrationError, Measured, Moment

REQUESTS = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
SERIES = ("t_s", "running", "waiting")
DECODE = ("context_len", "itl_ms")
PREFILL = ("isl", "ttft_ms")
BATCHES = ("in_len_eq_out_len", "batch", "latency_s")
KINDS = {"requests": REQUESTS, "series": SERIES, "decode": DECODE, "prefill": PREFILL, "batches": BATCHES}
"""What a table is, by the columns that it must have."""
_RUN_COLUMNS = ("run", "gpu", "n_gpu", "model")
_MOST_TOKENS = 100_000_000
_MOST_S = 1e7

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """The chosen rows of a file, each with its line number."""

    name: str
    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[int, Row], ...]

    def number(self, line: int, row: Row, column: str, most: float = _MOST_S) -> float:
        """A value that is finite, not negative and not absurd.

        Raises:
            CalibrationError: it is none of these; names file, line and column.
        """
        text = (row[column] or "").strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= most:
            raise CalibrationError(f"{self.name}:{line}: {column} {text!r} is no number from 0 to {most:g}")
        return value

    def count(self, line: int, row: Row, column: str, least: int = 0) -> int:
        """A whole number of at least that.

        Raises:
            CalibrationError: it is not; names file, line and column.
        """
        value = self.number(line, row, column, _MOST_TOKENS)
        if value != int(value) or value < least:
            raise CalibrationError(
                f"{self.name}:{line}: {column} {row[column]!r} is no whole number from {least}"
            )
        return int(value)

    def maybe(self, line: int, row: Row, column: str) -> float | None:
        """A value as `number`; None where the column or the cell is empty."""
        return self.number(line, row, column) if (row.get(column) or "").strip() else None


def read_table(path: Path, where: Mapping[str, str] | None = None) -> Table:
    """Read a CSV and tell what it is by its columns; `where` keeps the rows with these values.

    Raises:
        CalibrationError: it cannot be read, has none of the known sets of columns, no rows, or several runs.
    """
    reader = csv.DictReader(io.StringIO(_text(path)))
    columns = tuple(name.strip() for name in reader.fieldnames or ())
    reader.fieldnames = list(columns)
    kind = next((kind for kind, needed in KINDS.items() if set(needed) <= set(columns)), None)
    if kind is None:
        known = "; ".join(f"{kind}: {', '.join(needed)}" for kind, needed in KINDS.items())
        raise CalibrationError(
            f"{path}: columns {', '.join(columns) or 'none'} are of no known table ({known})"
        )
    rows = _chosen(path, reader, where or {})
    table = Table(str(path), kind, columns, rows)
    if kind in {"requests", "series", "batches"}:
        _one_run(table)
    return table


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror or error}") from error
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise CalibrationError(f"{path}: neither CSV nor gzipped CSV ({error})") from error


def _chosen(path: Path, reader: csv.DictReader[str], where: Mapping[str, str]) -> tuple[tuple[int, Row], ...]:
    columns = reader.fieldnames or ()
    if missing := [column for column in where if column not in columns]:
        raise CalibrationError(f"{path}: no column {', '.join(missing)} to choose by")
    rows = []
    try:
        for row in reader:
            if None in row or None in row.values():
                raise CalibrationError(f"{path}:{reader.line_num}: not as many values as columns")
            if all(row[column] == value for column, value in where.items()):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise CalibrationError(f"{path}:{reader.line_num}: {error}") from error
    if not rows:
        raise CalibrationError(f"{path}: no rows" + (" of that choice" if where else ""))
    return tuple(rows)


def _one_run(table: Table) -> None:
    columns = [column for column in _RUN_COLUMNS if column in table.columns]
    runs = {tuple(row[column] for column in columns): None for _, row in table.rows}
    if len(runs) > 1:
        shown = "; ".join(
            " ".join(f"{column}={value}" for column, value in zip(columns, run, strict=True)) for run in runs
        )
        raise CalibrationError(f"{table.name}: {len(runs)} runs in one file, choose one: {shown}")


def requests(table: Table) -> tuple[Measured, ...]:
    """The requests of a table, in order of arrival.

    Raises:
        CalibrationError: a value makes no sense; names file, line and column.
    """
    found = [_request(table, line, row) for line, row in table.rows]
    return tuple(sorted(found, key=lambda request: request.at_s))


def _request(table: Table, line: int, row: Row) -> Measured:
    ttft_s, e2e_s = table.maybe(line, row, "ttft_s"), table.maybe(line, row, "e2e_s")
    if ttft_s is not None and e2e_s is not None and e2e_s < ttft_s:
        raise CalibrationError(f"{table.name}:{line}: e2e_s {e2e_s:g} is less than ttft_s {ttft_s:g}")
    prompt = table.count(line, row, "prompt_tokens", least=1)
    cached = table.count(line, row, "cached_tokens") if (row.get("cached_tokens") or "").strip() else 0
    return Measured(
        table.number(line, row, "arrival_s"),
        prompt,
        table.count(line, row, "output_tokens"),
        ttft_s,
        None if ttft_s is None or e2e_s is None else e2e_s - ttft_s,
        min(cached, prompt - 1),
    )


def series(table: Table) -> tuple[Moment, ...]:
    """The server's own figures, in time order. A KV usage that is 0 throughout was not recorded.

    Raises:
        CalibrationError: a value makes no sense; names file, line and column.
    """
    moments = [
        Moment(
            table.number(line, row, "t_s"),
            table.count(line, row, "running"),
            table.count(line, row, "waiting"),
            _kv_ratio(table, line, row),
        )
        for line, row in table.rows
    ]
    said = any(moment.kv_ratio for moment in moments)
    plain = [moment if said else Moment(moment.at_s, moment.running, moment.waiting) for moment in moments]
    return tuple(sorted(plain, key=lambda moment: moment.at_s))


def _kv_ratio(table: Table, line: int, row: Row) -> float | None:
    for column, whole in (("kv_pct", 100.0), ("kv_ratio", 1.0)):
        if column in table.columns:
            return table.number(line, row, column, 1.01 * whole) / whole
    return None


def choice(pairs: Sequence[str]) -> dict[str, str]:
    """`COLUMN=VALUE` as a mapping.

    Raises:
        CalibrationError: one of them has no `=`.
    """
    for pair in pairs:
        if "=" not in pair:
            raise CalibrationError(f"--where {pair}: COLUMN=VALUE is expected")
    return dict(pair.split("=", 1) for pair in pairs)
