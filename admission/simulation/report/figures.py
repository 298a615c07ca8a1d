"""The figures that a table shows, in order: what each is called, where it comes from, how it is written, what is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from statistics import fmean, stdev
from typing import Generic, TypeVar

from admission.core.slo import SloConfig
from admission.simulation.judging import Ending, Report, Row
from admission.vocabulary import PriorityClass

NOTHING = "-"
Slos = Mapping[PriorityClass, SloConfig]
R_contra = TypeVar("R_contra", bound=Row, contravariant=True)


class Better(Enum):
    """Which end of a figure is the good one."""

    MORE = 1
    LESS = -1
    NEITHER = 0


@dataclass(frozen=True, slots=True)
class Figure(Generic[R_contra]):
    """One line of a table: a figure of rows, one row for each seed."""

    label: str
    value: Callable[[R_contra], float | None]
    write: Callable[[float], str]
    better: Better = Better.NEITHER
    spread: bool = False
    """Say the standard deviation over seeds too."""

    def mean(self, rows: Sequence[R_contra]) -> float | None:
        """Over the seeds that have it; None when none has."""
        values = self._values(rows)
        return fmean(values) if values else None

    def cell(self, rows: Sequence[R_contra]) -> str:
        """As it stands in the table."""
        values = self._values(rows)
        if not values:
            return NOTHING
        text = self.write(fmean(values))
        return f"{text} ±{100 * stdev(values):.1f}" if self.spread and len(values) > 1 else text

    def _values(self, rows: Sequence[R_contra]) -> list[float]:
        return [value for row in rows if (value := self.value(row)) is not None]


def percent(ratio: float) -> str:
    """`91.2 %`."""
    return f"{100 * ratio:.1f} %"


def seconds(value: float) -> str:
    """`1.24 s`, with three digits that mean something."""
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def milliseconds(value: float) -> str:
    """`43 ms` from seconds."""
    return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.1f} ms"


def times(value: float) -> str:
    """`0.87 x`."""
    return f"{value:.2f} x"


def count(value: float) -> str:
    """`1,204`; a mean over seeds is rounded."""
    return f"{value:,.0f}"


def _of_offered(row: Row, ratio: float) -> float | None:
    """A share of nothing is not zero."""
    return ratio if row.offered_requests else None


GOODPUT: Figure[Row] = Figure(
    "good / offered, requests",
    lambda r: _of_offered(r, r.goodput_requests_ratio),
    percent,
    Better.MORE,
    spread=True,
)
GOOD_TOKENS: Figure[Row] = Figure(
    "good / offered, tokens",
    lambda r: _of_offered(r, r.goodput_tokens_ratio),
    percent,
    Better.MORE,
    spread=True,
)
ACCEPTED_GOOD: Figure[Row] = Figure(
    "accepted within SLO", lambda r: r.accepted_within_slo_ratio, percent, Better.MORE
)
REFUSED: Figure[Row] = Figure(
    "refused in the end", lambda r: _of_offered(r, r.refused_requests / max(1, r.offered_requests)), percent
)
LIMIT_VARIATION: Figure[Report] = Figure("limit variation (CV)", lambda r: r.limit_variation_ratio, percent)
ATTEMPTS: Figure[Report] = Figure(
    "attempts per request",
    lambda r: r.attempts / max(1, sum(r.endings.values())),
    lambda value: f"{value:.2f}",
)
QUARTERS = ("smallest", "second", "third", "largest")
LATENCIES: tuple[Figure[Row], ...] = tuple(
    Figure(f"{kind.upper()} {p}", attrgetter(f"{kind}_{p}_s"), write, Better.LESS)
    for kind, write in (("ttft", seconds), ("tpot", milliseconds))
    for p in ("p50", "p95", "p99")
)


def headline(reports: Sequence[Report], slos: Slos | None = None) -> list[list[Figure[Report]]]:
    """All figures of a comparison in sections; what no report has is left out, and what needs targets without them."""
    sections: list[list[Figure[Report]]] = [
        [GOODPUT, GOOD_TOKENS, ACCEPTED_GOOD],
        [*LATENCIES, *_quiet(reports), *([_pace(slos)] if slos else [])],
        [REFUSED, *_refusals(reports), *_endings(reports), ATTEMPTS],
        [*_recoveries(reports), LIMIT_VARIATION, *_quarters()],
    ]
    shown = [[figure for figure in section if figure.mean(reports) is not None] for section in sections]
    return [section for section in shown if section]


def of_group(rows: Sequence[Row]) -> list[Figure[Row]]:
    """The figures of a class; what no row has is left out."""
    figures = [GOODPUT, GOOD_TOKENS, ACCEPTED_GOOD, *LATENCIES, REFUSED]
    return [figure for figure in figures if figure.mean(rows) is not None]


def _quiet(reports: Sequence[Report]) -> Iterator[Figure[Report]]:
    """The tail that a promise is about: away from disturbances, of the classes that have a target."""
    undisturbed = ""
    if any(report.disturbances for report in reports):
        undisturbed = ", undisturbed"
        yield Figure("TTFT p99, undisturbed", attrgetter("ttft_p99_quiet_s"), seconds, Better.LESS)
    over = attrgetter("ttft_over_target_p99_quiet_ratio")
    yield Figure(f"TTFT / SLO p99{undisturbed}", over, times, Better.LESS)


def _pace(slos: Slos) -> Figure[Report]:
    """Of the class that is the furthest beyond its target, or the nearest to it."""

    def value(report: Report) -> float | None:
        rows = [(row, slos[rank].tpot_s) for rank in slos if (row := report.of_class(rank))]
        return max((row.tpot_p99_s / most for row, most in rows if row.tpot_p99_s is not None), default=None)

    return Figure("TPOT / SLO p99", value, times, Better.LESS)


def _refusals(reports: Sequence[Report]) -> Iterator[Figure[Report]]:
    for reason in sorted({reason for report in reports for reason in report.refusals}):
        yield Figure(f"  refusals, {reason}", _in("refusals", reason), count)


def _endings(reports: Sequence[Report]) -> Iterator[Figure[Report]]:
    words = {
        Ending.IMPATIENT: "left without a token",
        Ending.FAILED: "failed",
        Ending.INVALID: "answered with an error",
        Ending.OPEN: "still under way",
    }
    for ending, label in words.items():
        if any(ending in report.endings for report in reports):
            yield Figure(label, _in("endings", ending.value), count)


def _in(field: str, key: str) -> Callable[[Report], float | None]:
    def value(report: Report) -> float:
        found: dict[str, int] = getattr(report, field)
        return found.get(key, 0)

    return value


def _quarters() -> Iterator[Figure[Report]]:
    for no, name in enumerate(QUARTERS):
        yield Figure(f"served, {name} quarter", _nth("served_share_by_size_quartile", no), percent)


def _nth(field: str, no: int) -> Callable[[Report], float | None]:
    def value(report: Report) -> float | None:
        found: tuple[float | None, ...] = getattr(report, field)
        return found[no] if no < len(found) else None

    return value


def _recoveries(reports: Sequence[Report]) -> Iterator[Figure[Report]]:
    """One for each disturbance that ends: a policy that did not come back under some seed has infinity."""
    spans = next((report.disturbances for report in reports if report.disturbances), ())
    for no, (start, end) in enumerate(spans):
        span = f"{start:.0f} s" if end == start else f"{start:.0f}-{end:.0f} s"
        if math.isfinite(end):
            yield Figure(f"recovery after {span}", _back(no), _recovery, Better.LESS)


def _back(no: int) -> Callable[[Report], float | None]:
    def value(report: Report) -> float | None:
        if no >= len(report.recovery_s):
            return None
        found = report.recovery_s[no]
        return float("inf") if found is None else found

    return value


def _recovery(value: float) -> str:
    return "not back" if value == float("inf") else f"{value:.0f} s"
