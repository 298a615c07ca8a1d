"""What a run looked like over time: one row a second, halved in resolution whenever it grows too long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from admission.simulation.fate import Ending, Fate
from admission.simulation.histogram import Histogram
from admission.simulation.tally import first_token_or_wait_s

ROWS = 2_048
ERROR_RATIO = 0.02
"""Of the latencies of a row: a plot shows no more, and it keeps a row small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One row. State is the mean of what was seen in it, None when nobody looked; requests count where they arrived.

    Limit and used are in the policy's own unit, KV-cache tokens or requests.
    """

    at_s: float
    """Its beginning."""
    for_s: float
    """How long it is."""
    limit: float | None
    used: float | None
    in_flight: float | None
    queued: float | None
    engine_running: float | None
    engine_waiting: float | None
    kv_ratio: float | None
    ttft_p90_s: float | None
    tpot_p90_s: float | None
    offered: int
    good: int
    refused: int
    """Requests whose last attempt was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the policy and the engine looked like at one instant; `limit` is infinite where nothing limits."""

    limit: float = math.inf
    used: float = 0.0
    in_flight: float = 0.0
    queued: float = 0.0
    engine_running: float = 0.0
    engine_waiting: float = 0.0
    kv_ratio: float = 0.0


_STATE = tuple(one.name for one in fields(State))


@dataclass(slots=True)
class _Cell:
    """Sums over one row."""

    looks: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * len(_STATE))
    offered: int = 0
    good: int = 0
    refused: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(ERROR_RATIO))
    tpot: Histogram = field(default_factory=lambda: Histogram(ERROR_RATIO))

    def merge(self, other: _Cell) -> None:
        self.looks += other.looks
        self.sums = [mine + theirs for mine, theirs in zip(self.sums, other.sums, strict=True)]
        self.offered += other.offered
        self.good += other.good
        self.refused += other.refused
        self.ttft.merge(other.ttft)
        self.tpot.merge(other.tpot)

    def moment(self, at_s: float, for_s: float) -> Moment:
        means = {
            name: total / self.looks if self.looks and math.isfinite(total) else None
            for name, total in zip(_STATE, self.sums, strict=True)
        }
        return Moment(
            at_s=at_s,
            for_s=for_s,
            **means,
            ttft_p90_s=self.ttft.quantile(0.9),
            tpot_p90_s=self.tpot.quantile(0.9),
            offered=self.offered,
            good=self.good,
            refused=self.refused,
        )


class Timeline:
    """Rows from second 0 on. Memory is bounded: past `rows` rows, each two become one.

    Args:
        from_s: limit_variation_ratio looks from here
        until_s: to here.
        rows: the most it keeps, an even number.

    Raises:
        ValueError: `rows` is odd or below 2.
    """

    def __init__(self, *, from_s: float = 0.0, until_s: float = math.inf, rows: int = ROWS) -> None:
        if rows < 2 or rows % 2:
            raise ValueError(f"rows must be even and at least 2, not {rows}")
        self.from_s = from_s
        self.until_s = until_s
        self.row_s = 1.0
        """How long a row lasts; doubles when the run outgrows the rows."""
        self._rows = rows
        self._cells: list[_Cell] = []
        self._limits = Spread()

    def look(self, at_s: float, state: State) -> None:
        """Add a look at policy and engine; once a second is enough."""
        cell = self._cell(at_s)
        cell.looks += 1
        for no, name in enumerate(_STATE):
            cell.sums[no] += getattr(state, name)
        if self.from_s <= at_s < self.until_s and math.isfinite(state.limit):
            self._limits.add(state.limit)

    def settle(self, fate: Fate, *, good: bool) -> None:
        """Add a settled request where it arrived; leavers show no more than their latency.

        Latencies are of the accepted, as in the verdict.
        """
        cell = self._cell(fate.arrival.at_s)
        if not (fate.leaves or fate.ending is Ending.LEFT):
            cell.offered += 1
            cell.good += good
            cell.refused += fate.ending is Ending.REFUSED
        ttft_s = first_token_or_wait_s(fate)
        if fate.admitted and ttft_s is not None:
            cell.ttft.add(ttft_s)
        if fate.admitted and fate.tpot_s is not None:
            cell.tpot.add(fate.tpot_s)

    @property
    def limit_variation_ratio(self) -> float | None:
        """Standard deviation over mean of the limit in the judged span; None when there was no finite limit."""
        return self._limits.variation_ratio

    def moments(self, most: int | None = None) -> list[Moment]:
        """All rows so far, in time order; with `most`, as many of them made one as it takes to be no more."""
        together = 1 if most is None else max(1, math.ceil(len(self._cells) / most))
        parts = [self._cells[at : at + together] for at in range(0, len(self._cells), together)]
        return [
            _together(part).moment(no * together * self.row_s, len(part) * self.row_s)
            for no, part in enumerate(parts)
        ]

    def as_json(self) -> dict[str, Any]:
        """The rows by column, under stable names with units."""
        moments = [asdict(moment) for moment in self.moments()]
        columns = {one.name: [moment[one.name] for moment in moments] for one in fields(Moment)}
        return {"row_s": self.row_s, **columns}

    def _cell(self, at_s: float) -> _Cell:
        while at_s >= self.row_s * self._rows:
            self._halve()
        no = int(at_s / self.row_s)
        while len(self._cells) <= no:
            self._cells.append(_Cell())
        return self._cells[no]

    def _halve(self) -> None:
        self.row_s *= 2
        for even, odd in zip(self._cells[::2], self._cells[1::2], strict=False):
            even.merge(odd)
        self._cells = self._cells[::2]


def _together(cells: Sequence[_Cell]) -> _Cell:
    if len(cells) == 1:
        return cells[0]
    total = _Cell()
    for cell in cells:
        total.merge(cell)
    return total


@dataclass(slots=True)
class Spread:
    """Mean and spread of a stream in three numbers.

    Welford's update (Welford: Note on a method for calculating corrected sums of squares, Technometrics 4, 1962).
    """

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self._squares += off * (value - self.mean)

    @property
    def variation_ratio(self) -> float | None:
        """The coefficient of variation (of the population); None without values or around zero."""
        if not self.count or not self.mean:
            return None
        return math.sqrt(self._squares / self.count) / abs(self.mean)
