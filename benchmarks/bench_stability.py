"""How stable the control law is: bounds of its loop, its noise once settled, silent signals, and measured step responses.

    python -m benchmarks stability --seeds 3                                     # prints every table
    python -m benchmarks stability --write docs/control-law.md                   # puts them into the page
    python -m benchmarks stability --plot docs/images/step-responses.png         # and draws the runs

Constants are the defaults of the classes that hold them: whoever changes those runs this again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from admission.core.limits.aimd import AimdConfig
from admission.simulation.asking import seeds as parse_seeds
from admission.simulation.pool import run_all
from benchmarks import stability_bounds as bounds
from benchmarks.result import Result
from benchmarks.stability_runs import NEAR, Line, Ridden, attempt, best_limits, ridden, ride
from benchmarks.stability_sights import ENGINES, SIGHTS, Look, Noise, noise, seen

SEEDS = "3"
BEGIN, END = "<!-- stability: {} -->", "<!-- end of {} -->"
MOST_UNDERSHOOT, MOST_OVERSHOOT, MOST_S, MOST_LOST = 0.5, 0.2, 80.0, 0.2
T = TypeVar("T")
R = TypeVar("R")


class Measured:
    """Every run of it.

    Args:
        seeds: of each.
        processes: how many at once.
    """

    def __init__(self, seeds: Sequence[int], processes: int) -> None:
        self._seeds, self._processes = seeds, processes
        self.best: Mapping[str, int] = best_limits(
            seeds, lambda tries: self._all("limits that stand still", attempt, tries)
        )
        self.ridden: list[Ridden] = ridden(
            seeds, self.best, lambda rides: self._all("step responses", ride, rides)
        )
        self.lines: list[Line] = [line for one in self.ridden for line in one.lines(self.best)]
        self.looks: Mapping[str, list[Look]] = self._by_name("sights", seen, list(SIGHTS))
        self.noises: Mapping[str, list[Noise]] = self._by_name("engines", noise, ENGINES)

    def _by_name(
        self, what: str, work: Callable[[tuple[str, int]], R], names: Sequence[str]
    ) -> dict[str, list[R]]:
        tasks = [(name, seed) for name in names for seed in self._seeds]
        found = dict(zip(tasks, self._all(what, work, tasks), strict=True))
        return {name: [found[name, seed] for seed in self._seeds] for name in names}

    def _all(self, what: str, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        began = time.monotonic()
        found = run_all(work, tasks, processes=self._processes)
        print(f"{what}: {len(tasks)} runs in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return found


def sections(measured: Measured, seeds: Sequence[int]) -> dict[str, list[str]]:
    """Every table, by the name of its place in the page."""
    return {
        "defaults": list(_defaults()),
        "constants": list(bounds.constants()),
        "cuts": list(bounds.cuts()),
        "growth": list(bounds.growth()),
        "noise": list(_noise(measured.noises)),
        "sights": list(_sights(measured.looks)),
        "steps": list(_steps(measured.lines, seeds)),
    }


def _defaults() -> Iterator[str]:
    config = AimdConfig()
    names = [field.name for field in fields(config) if field.name != "algorithm"]
    yield ", ".join(f"`{name}` {getattr(config, name):,}" for name in names)


def _noise(noises: Mapping[str, Sequence[Noise]]) -> Iterator[str]:
    yield (
        "| scenario | elasticity at the set point | answer at the set point s | mean request / L | a run of cuts goes down by | share of ticks that grow "
        "| s between runs: balance | measured | variation: sawtooth | measured |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, each in noises.items():
        mean = Noise(*(fmean(getattr(one, field) for one in each) for field in Noise.__slots__))
        balance_s = mean.depth / (mean.share * mean.growing) if mean.growing else float("inf")
        yield (
            f"| {name} | {mean.elasticity:.2f} | {mean.answer_s:.0f} | {100 * mean.share:.1f} % | {100 * mean.depth:.0f} % "
            f"| {100 * mean.growing:.0f} % | {balance_s:.0f} | {mean.cut_s:.0f} | {mean.depth / 12**0.5:.2f} | {mean.variation:.2f} |"
        )


def _sights(looks: Mapping[str, Sequence[Look]]) -> Iterator[str]:
    whole = fmean(one.good for one in next(iter(looks.values())))
    yield "| what is seen | goodput over that with everything | accepted within SLO | mean limit | variation | |"
    yield "|---|--:|--:|--:|--:|---|"
    for name, each in looks.items():
        frozen = "frozen" if any(one.frozen for one in each) else ""
        yield (
            f"| {name} | {fmean(one.good for one in each) / whole:.2f} | {fmean(one.accepted_ok for one in each):.2f} "
            f"| {fmean(one.limit for one in each) / 1000:.0f}k | {fmean(one.variation for one in each):.2f} | {frozen} |"
        )


def _steps(lines: Sequence[Line], seeds: Sequence[int]) -> Iterator[str]:
    yield f"Median of seeds {', '.join(map(str, seeds))}, in brackets the worst.\n"
    yield (
        "| change | settles at | best that stands still | beyond the settled limit | lowest in a minute, over settled "
        f"| s to within {100 * NEAR:.0f} % | goodput lost in a minute | variation once settled |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for line in lines:
        lowest = min(one.lowest for one in line.of_seeds)
        yield (
            f"| {line.name} | {line.middle('settled') / 1000:.0f}k | {line.best / 1000:.0f}k | {_percents(line, 'overshoot')} "
            f"| {line.middle('lowest'):.2f} ({lowest:.2f}) | {line.middle('within_s'):.0f} ({line.worst('within_s'):.0f}) "
            f"| {_percents(line, 'lost')} | {line.middle('variation'):.2f} ({line.worst('variation'):.2f}) |"
        )


def _percents(line: Line, name: str) -> str:
    return f"{100 * line.middle(name):.0f} % ({100 * line.worst(name):.0f} %)"


def run() -> Iterator[Result]:
    """The bounds, and the worst of the step responses over two seeds."""
    law = AimdConfig()
    under = bounds.undershoot(law, bounds.EXCESSES, bounds.plants())
    yield _held("law: TPOT under its set point after cuts, at worst", under, MOST_UNDERSHOOT)
    over = bounds.overshoot(law, max(bounds.SHARES))
    yield _held("law: TPOT over its set point after growth, at worst", over, MOST_OVERSHOOT)
    for line in Measured((1, 2), 2).lines:
        settles_s = line.middle("within_s")
        yield Result(f"law: {line.name}: settles", settles_s, "s", f"<= {MOST_S:g}", met=settles_s <= MOST_S)
        yield _held(f"law: {line.name}: goodput lost in a minute", line.middle("lost"), MOST_LOST)


def _held(name: str, value: float, most: float) -> Result:
    return Result(name, value, "share", f"<= {most:g}", met=value <= most)


def command(arguments: Sequence[str]) -> int:
    """Print the tables, or write them into a page; draw the runs where that is asked for."""
    asked = _asked(arguments)
    began = time.monotonic()
    try:
        seeds = parse_seeds(asked.seeds)
        page = asked.write.read_text("utf-8") if asked.write else ""
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    measured = Measured(seeds, asked.processes)
    found = sections(measured, seeds)
    if asked.write is None:
        for name, lines in found.items():
            print(f"## {name}\n\n" + "\n".join(lines) + "\n")
    else:
        asked.write.write_text(written(page, found), encoding="utf-8")
    if asked.plot is not None:
        from benchmarks.stability_plot import save

        save(measured.ridden, measured.best, asked.plot)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def written(page: str, found: Mapping[str, Sequence[str]]) -> str:
    """A page with the tables between its markers.

    Raises:
        ValueError: a table has no place.
    """
    for name, lines in found.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, mark, rest = page.partition(begin)
        _, closing, after = rest.partition(end)
        if not mark or not closing:
            raise ValueError(f"the page lacks {begin} or {end}")
        page = f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return page


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks stability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default=SEEDS, help="how many, or which: 3, or 7,8,9")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="a PNG or SVG file to draw the step responses into")
    parser.add_argument("--write", type=Path, help="a page to put the tables into, between its markers")
    return parser.parse_args(arguments)
