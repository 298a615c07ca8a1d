"""Tables for people: policies side by side, as many beside each other as the terminal is wide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from admission.simulation.judging import OTHER, Report, Row
from admission.simulation.report.figures import (
    GOOD_TOKENS,
    GOODPUT,
    Better,
    Figure,
    Slos,
    count,
    headline,
    of_group,
)
from admission.simulation.report.runs import Run, by_policy, loads
from admission.vocabulary import PriorityClass

LEGEND = (
    "Good: served whole, its first token and its pace within the SLO of its class. TTFT is over the accepted, from the "
    "arrival of the attempt; one that left without a token counts with what it had waited. Quarters are of equally many "
    "requests by prompt plus answer."
)
BOLD = " Bold: the best of a line."
SPREAD = " ±: standard deviation over seeds, in points."
_R = TypeVar("_R", bound=Row)
_GAP = 2
_NARROWEST = 8
_LONGEST_NAME = 16
_LONGEST_TENANT = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what it is about, a cell for each column, and which of the cells are the best."""

    label: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Columns beside each other while they fit; the rest below, with the labels again."""

    title: str
    columns: tuple[str, ...]
    sections: tuple[tuple[Line, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A table for each set of columns that fits."""
        yield Text(self.title, style="bold")
        for chosen in self._fitting(options.max_width):
            yield self._table(chosen)
            yield Text()

    def _fitting(self, width: int) -> Iterator[list[int]]:
        """Numbers of the columns of each table: at least one, however narrow it is."""
        labels = max((len(line.label) for section in self.sections for line in section), default=0)
        chosen: list[int] = []
        taken = labels
        for no in range(len(self.columns)):
            needed = self._width(no) + _GAP
            if chosen and taken + needed > width:
                yield chosen
                chosen, taken = [], labels
            chosen.append(no)
            taken += needed
        yield chosen

    def _width(self, no: int) -> int:
        cells = max((len(line.cells[no]) for section in self.sections for line in section), default=0)
        return max(cells, min(len(self.columns[no]), _LONGEST_NAME), _NARROWEST)

    def _table(self, chosen: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        table.add_column("")
        for no in chosen:
            width = self._width(no)
            heading = "\n".join(broken(self.columns[no], width))
            table.add_column(Text(heading, overflow="fold"), justify="right", width=width)
        for section in self.sections:
            for line in section:
                cells = [Text(line.cells[no], style="bold" if no in line.best else "") for no in chosen]
                table.add_row(Text(line.label), *cells)
            if section is not self.sections[-1]:
                table.add_row()
        return table


def broken(name: str, width: int) -> Iterator[str]:
    """The lines of a heading: it breaks at a blank or behind `:`, `,` and `=`; a longer piece is left to be folded."""
    line = ""
    for piece in re.findall(r"[^ :,=]+[ :,=]?|[ :,=]", name):
        if line and len((line + piece).rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece
    yield line.rstrip()


def show(out: Console, *shown: RenderableType) -> None:
    """Print them; what is no terminal gets no blanks at the ends of lines."""
    if out.is_terminal:
        out.print(*shown)
        return
    with out.capture() as captured:
        out.print(*shown)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Legend:
    """How to read the tables; bold letters are explained where they can be seen."""

    seeds: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One paragraph."""
        yield Text(LEGEND + BOLD * console.is_terminal + SPREAD * (self.seeds > 1), style="dim")


def overview(runs: Sequence[Run], slos: Slos | None = None) -> RenderableType:
    """Everything: over loads where there are several, then for each load the policies, their classes and tenants.

    Args:
        runs: in the order in which they are shown.
        slos: the targets that the pace of answers is held against.
    """
    factors = loads(runs)
    parts: list[RenderableType] = [over_loads(runs)] if len(factors) > 1 else []
    for load in factors:
        name = f"Load x{load:g}: " if len(factors) > 1 or load != 1.0 else ""
        reports = by_policy(runs, load)
        parts += [comparison(reports, name, slos), *classes(reports, name), *tenants(reports, name)]
    return Stack(*parts, Legend(len({run.seed for run in runs})))


def comparison(
    reports: Mapping[str, Sequence[Report]], name: str = "", slos: Slos | None = None
) -> SideBySide:
    """The policies side by side over one workload.

    Args:
        reports: by policy, one for each seed.
        name: what the title begins with.
        slos: as for the overview.
    """
    everything = [report for found in reports.values() for report in found]
    sections = tuple(
        tuple(_line(figure, list(reports.values())) for figure in section)
        for section in headline(everything, slos)
    )
    return SideBySide(name + _offered(reports), tuple(reports), sections)


def over_loads(runs: Sequence[Run]) -> SideBySide:
    """Goodput of each policy at each load."""
    policies = tuple(dict.fromkeys(run.label for run in runs))
    sections = []
    for figure in (GOODPUT, GOOD_TOKENS):
        lines = []
        for load in loads(runs):
            found = by_policy(runs, load)
            line = _line(figure, [found.get(policy, []) for policy in policies])
            lines.append(replace(line, label=f"{figure.label}, x{load:g}"))
        sections.append(tuple(lines))
    return SideBySide("Load on the same workload", policies, tuple(sections))


def classes(reports: Mapping[str, Sequence[Report]], name: str = "") -> Iterator[SideBySide]:
    """A table for each class, when there are several."""
    everything = [report for found in reports.values() for report in found]
    present = [one for one in PriorityClass if any(report.of_class(one) for report in everything)]
    for one in present if len(present) > 1 else ():
        rows = {policy: _rows(found, one) for policy, found in reports.items()}
        figures = of_group([row for found in rows.values() for row in found])
        lines = tuple(_line(figure, list(rows.values())) for figure in figures)
        yield SideBySide(f"{name}class {one.label}, {_offered(rows)}", tuple(reports), (lines,))


def tenants(reports: Mapping[str, Sequence[Report]], name: str = "") -> Iterator[SideBySide]:
    """Good over offered in requests for each tenant, those that asked most first; nothing when none is named."""
    names = {
        row.name: row.offered_requests
        for found in reports.values()
        for report in found
        for row in report.per_tenant
    }
    lines = []
    for tenant in sorted(names, key=lambda one: (one == OTHER, -names[one], one)):
        rows = [_of_tenant(found, tenant) for found in reports.values()]
        line = _line(GOODPUT, rows)
        lines.append(replace(line, label=f"{_short(tenant)}, {count(names[tenant])} offered"))
    if lines:
        yield SideBySide(f"{name}tenants: {GOODPUT.label}", tuple(reports), (tuple(lines),))


def _rows(reports: Sequence[Report], priority: PriorityClass) -> list[Row]:
    return [row for report in reports if (row := report.of_class(priority))]


def _of_tenant(reports: Sequence[Report], tenant: str) -> list[Row]:
    return [row for report in reports for row in report.per_tenant if row.name == tenant]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_TENANT else name[: _LONGEST_TENANT - 1] + "…"


def _offered(rows: Mapping[str, Sequence[Row]]) -> str:
    """How much was offered; the same for every policy, but for callers that leave or try again elsewhere."""
    first = next((found for found in rows.values() if found), ())
    if not any(row.offered_requests for row in first):
        return "nothing offered"
    requests = fmean(row.offered_requests for row in first)
    tokens = fmean(row.offered_tokens for row in first)
    seeds = f", mean of {len(first)} seeds" if len(first) > 1 else ""
    return f"{count(requests)} requests, {tokens / 1e6:.2f} M tokens offered{seeds}"


def _line(figure: Figure[_R], columns: Sequence[Sequence[_R]]) -> Line:
    means = [figure.mean(rows) for rows in columns]
    return Line(figure.label, tuple(figure.cell(rows) for rows in columns), _best(figure.better, means))


def _best(better: Better, means: Sequence[float | None]) -> frozenset[int]:
    """The columns with the best value; none when all are alike or nothing is better."""
    known = [mean for mean in means if mean is not None]
    if better is Better.NEITHER or len(set(known)) < 2:
        return frozenset()
    top = max(known, key=lambda mean: mean * better.value)
    return frozenset(no for no, mean in enumerate(means) if mean == top)
