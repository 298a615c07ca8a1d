"""Reads recorded traffic row by row: CSV or JSON lines, plain or gzipped, in time order, in flat memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from admission.simulation.inputs.arrival import DEFAULT_MAX_TOKENS, Arrival, TraceError
from admission.simulation.inputs.dialects import Column, Dialect, recognise

BLOCK_TOKENS = 512
CACHE_BLOCKS = 100_000
"""Prefix blocks that are remembered: 51 million tokens, more than any engine keeps on its GPUs."""
_MAX_LINE = 1 << 20
_NEEDED = 3
"""The columns of a dialect that must be there come first."""
_EMPTY: tuple[object, ...] = ("", None)
_GZIP = b"\x1f\x8b"
_ROW_TROUBLE = (csv.Error, OSError, EOFError, UnicodeDecodeError, zlib.error)


def stream(path: Path, cache_blocks: int = CACHE_BLOCKS) -> Iterator[Arrival]:
    """The requests of a trace, read while they are taken. What is wrong shows when its row is reached.

    Columns of CSV, or keys of JSON lines: arrival_s, prompt_tokens, output_tokens, and if there class, tenant, session,
    model, max_tokens, stream, cached_tokens, shared_tokens, prefix; or those of the traces of Azure, Mooncake and
    BurstGPT as published. `cache_blocks` is the size of the prefix cache behind Mooncake's `hash_ids`, in blocks of
    512 tokens.

    Raises:
        TraceError: no such file, not a trace, no rows, not in time order, or a value that makes no sense.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"{path.name}: cannot be read ({error.strerror})") from error
    with closing(file):
        yield from _arrivals(file, path.name, cache_blocks)


def shipped_stream(name: str, cache_blocks: int = CACHE_BLOCKS) -> Iterator[Arrival]:
    """The requests of a trace that comes with the package; its name may leave `.csv.gz` out.

    Raises:
        TraceError: there is no such trace; names those that there are.
    """
    folder = files("admission.simulation") / "data"
    found = next((each for each in (name, f"{name}.csv.gz") if (folder / each).is_file()), None)
    if found is None or "/" in name:
        raise TraceError(f"no shipped trace {name!r}: there are {', '.join(shipped_names())}")
    with (folder / found).open("rb") as file:
        yield from _arrivals(file, found, cache_blocks)


def shipped_names() -> list[str]:
    """The traces that come with the package, without `.csv.gz`."""
    folder = files("admission.simulation") / "data"
    return sorted(
        each.name.removesuffix(".csv.gz")
        for each in folder.iterdir()
        if each.name.endswith(".csv.gz") and "results" not in each.name and "real_runs" not in each.name
    )


def _arrivals(file: IO[bytes], name: str, cache_blocks: int) -> Iterator[Arrival]:
    rows = _Rows(name, cache_blocks)
    count = 0
    try:
        for arrival in rows.read(_lines(file, name)):
            count += 1
            yield arrival
    except _ROW_TROUBLE as error:
        raise TraceError(f"{name}:{rows.line + 1}: {_trouble(error)}") from error
    if not count:
        raise TraceError(f"{name}: no requests")


def _trouble(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"the gzipped file is damaged or cut short ({error})"
    if isinstance(error, UnicodeDecodeError | csv.Error):
        return f"neither CSV nor JSON lines, nor one of them gzipped ({error})"
    return f"cannot be read ({error})"


def _lines(file: IO[bytes], name: str) -> Iterator[str]:
    head = file.read(2)
    file.seek(0)
    raw = gzip.GzipFile(fileobj=file) if head == _GZIP else file
    number = 0
    with io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as lines:
        while line := lines.readline(_MAX_LINE):
            number += 1
            if len(line) >= _MAX_LINE or "\0" in line:
                raise TraceError(f"{name}:{number}: neither CSV nor JSON lines, nor one of them gzipped")
            yield line


class _Rows:
    """Turns lines into arrivals; `line` is the number of the last one taken."""

    def __init__(self, name: str, cache_blocks: int) -> None:
        self._name = name
        self._cache = _PrefixCache(cache_blocks)
        self._origin: float | None = None
        self._before = 0.0
        self.line = 0

    def read(self, lines: Iterator[str]) -> Iterator[Arrival]:
        """The arrivals of CSV or of JSON lines, whichever the first line is."""
        first = ""
        for first in lines:
            if first.strip():
                break
            self.line += 1
        if not first.strip():
            return iter(())
        read = self._json if first.lstrip().startswith(("{", "[")) else self._csv
        return read(_again(first, lines))

    def _csv(self, lines: Iterator[str]) -> Iterator[Arrival]:
        skipped = self.line
        rows = csv.reader(lines)
        names = [name.strip() for name in next(rows)]
        if twice := next((name for name in names if name and names.count(name) > 1), None):
            raise TraceError(f"{self._name}: column {twice} is there twice")
        take = self._taker(recognise(names, self._name), names)
        for row in rows:
            self.line = skipped + rows.line_num
            if len(row) == len(names):
                yield take(row)
            elif row:
                raise self._wrong(f"{len(row)} values where the header has {len(names)} columns")

    def _json(self, lines: Iterator[str]) -> Iterator[Arrival]:
        known: tuple[str, ...] = ()
        for line in lines:
            self.line += 1
            if not line.strip():
                continue
            row = self._object(line)
            if (keys := tuple(row)) != known:
                take, known = self._taker(recognise(keys, f"{self._name}:{self.line}"), keys), keys
            yield take(list(row.values()))

    def _object(self, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._wrong("not JSON: one object on each line is expected") from error
        if not isinstance(row, dict):
            raise self._wrong("not a JSON object: one object on each line is expected")
        return row

    def _taker(self, dialect: Dialect, names: Sequence[str]) -> Callable[[Sequence[Any]], Arrival]:
        """What turns the values of one row into an arrival."""
        columns = [(column, names.index(name)) for column, name in dialect.found(names)]
        needed, optional = columns[:_NEEDED], columns[_NEEDED:]
        at_column = names[columns[0][1]]

        def take(row: Sequence[Any]) -> Arrival:
            try:
                fields = {column.field: column.parse(row[index]) for column, index in needed}
                for column, index in optional:
                    if row[index] not in _EMPTY:
                        fields[column.field] = column.parse(row[index])
            except ValueError as error:
                raise self._unparsed(columns, names, row) from error
            at_s = self._in_order(fields["at_s"], at_column, row[columns[0][1]], dialect.from_first)
            return self._checked(at_s, fields)

        return take

    def _unparsed(
        self, columns: list[tuple[Column, int]], names: Sequence[str], row: Sequence[Any]
    ) -> TraceError:
        for position, (column, index) in enumerate(columns):
            if position >= _NEEDED and row[index] in _EMPTY:
                continue
            try:
                column.parse(row[index])
            except ValueError as error:
                return self._wrong(f"{names[index]} {_shown(row[index])} {error}")
        raise AssertionError("all of it can be parsed")

    def _in_order(self, at: float, name: str, raw: Any, from_first: bool) -> float:
        if self._origin is None:
            self._origin = at if from_first else 0.0
            self._before = at
        if at < self._before:
            unit = "" if from_first and at > 1e9 else f" ({self._before:g} s)"
            raise self._wrong(f"{name} {_shown(raw)} is before the row above{unit}: sort the trace by {name}")
        self._before = at
        return at - self._origin

    def _checked(self, at_s: float, fields: dict[str, Any]) -> Arrival:
        """Fills in what follows from the rest, and refuses what contradicts itself."""
        fields["at_s"] = at_s
        prompt, output = fields["prompt_tokens"], fields["output_tokens"]
        if names := fields.pop("blocks", ()):
            fields["cached_tokens"] = min(prompt, BLOCK_TOKENS * self._cache.leading(names))
        cached, shared = fields.get("cached_tokens", 0), fields.get("shared_tokens", 0)
        if cached > prompt:
            raise self._wrong(f"cached_tokens {cached} are more than prompt_tokens {prompt}")
        if shared > cached:
            raise self._wrong(f"shared_tokens {shared} are more than cached_tokens {cached}")
        if cached == prompt:
            # An engine computes at least the last token of a prompt itself.
            fields["cached_tokens"] = prompt - 1
            fields["shared_tokens"] = min(shared, prompt - 1)
        most = fields["max_tokens"] = fields.get("max_tokens") or max(DEFAULT_MAX_TOKENS, output)
        if output > most:
            raise self._wrong(f"output_tokens {output} are more than max_tokens {most}")
        return Arrival(**fields)

    def _wrong(self, problem: str) -> TraceError:
        return TraceError(f"{self._name}:{self.line}: {problem}")


class _PrefixCache:
    """Blocks seen lately, the longest unused forgotten."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._seen: OrderedDict[int | str, None] = OrderedDict()

    def leading(self, names: tuple[int | str, ...]) -> int:
        """How many leading blocks are known; all of them are from now on."""
        seen = self._seen
        known = next((at for at, name in enumerate(names) if name not in seen), len(names))
        for name in reversed(names):
            # The end of a prompt is forgotten before its beginning, on which it rests.
            seen[name] = None
            seen.move_to_end(name)
        while len(seen) > self._blocks:
            seen.popitem(last=False)
        return known


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _shown(raw: Any) -> str:
    written = raw if isinstance(raw, str) and raw else json.dumps(raw)
    return written if len(written) <= 40 else written[:37] + "..."
