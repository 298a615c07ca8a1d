"""What each ingredient of the control law buys: the law without it over the law whole, with the same seeds and scenarios.

python -m benchmarks ablation                                       # prints the tables
python -m benchmarks ablation --scenarios over2,restart --seeds 1 --only outage,dead
python -m benchmarks ablation --seeds 21,22 --write docs/law-ablations.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from admission.simulation.asking import seeds as parse_seeds
from benchmarks.bench_law import names_of, progress
from benchmarks.law_runs import Figures, Runs, Task, figures_of, note, sources
from benchmarks.law_statics import Best
from benchmarks.law_table import Cell, cell
from benchmarks.law_variants import CHANCE, INGREDIENTS, LAW, NEIGHBOURS, Variant
from benchmarks.law_without import without
from benchmarks.result import Result

LAB = (
    "steady0.7 over2 spikes5x kvtight2 kvreason2 chunk512-2 capdrop restart stall8 mixshift idlespike storm outshift slots32 "
    "bypass azure-code mooncake 4090-2 6000-32b-2 servegen-r1 large-prompts filler3 replicas4 prefix8k conversations partial"
).split()
"""One of each kind of trouble, and quick to run."""
SEEDS = "2"
WHOLE = Variant(name="the law")
MOST_NAMED = 3
CLEAR = 0.01
"""A scenario is named when it changes by more than this."""
FAR = 0.02
"""Beyond the worst scenario of mere chance, a single one counts too."""
HEAD = (
    "| {} | goodput: mean | worst | good tokens: mean | worst | accepted within SLO | late | where it is missed most "
    "| where it is better without |\n|---|--:|--:|--:|--:|--:|--:|---|---|"
)


@dataclass(frozen=True)  # with slots `super` would not find its class
class Trial(Task):
    """One run of the law with something missing: never taken for one of the law, whatever keeps results."""

    patch: str = ""

    @property
    def name(self) -> str:
        """Names the run."""
        return f"{super().name}/without {self.patch}" if self.patch else super().name

    @property
    def is_law(self) -> bool:
        """Always the core, also with a limit that stands still."""
        return True

    @property
    def made_of(self) -> str:
        """Changes with what the patches do, too."""
        return f"{super().made_of}/{sources('benchmarks/law_without')}" if self.patch else super().made_of


def measure(trial: Trial) -> Figures:
    """Run it without its ingredient, and note the result for the next time."""
    with without(trial.patch):
        figures = figures_of(trial)
    note(trial, figures)
    return figures


@dataclass(frozen=True, slots=True)
class Row:
    """One variant over all scenarios; ratios are to the law whole, of the same seeds."""

    variant: Variant
    cells: Sequence[Cell]

    @property
    def goodput(self) -> float:
        """In requests: the mean over scenarios."""
        return fmean(one.goodput for one in self.cells)

    @property
    def worst(self) -> float:
        """In requests: the worst scenario."""
        return min(one.goodput for one in self.cells)

    @property
    def tokens(self) -> float:
        """In tokens: the mean over scenarios."""
        return fmean(one.tokens for one in self.cells)

    @property
    def worst_tokens(self) -> float:
        """In tokens: the worst scenario."""
        return min(one.tokens for one in self.cells)

    @property
    def accepted_ok(self) -> float:
        """Share of the accepted that were within their SLO: the mean over scenarios."""
        return fmean(one.mean("accepted_ok") for one in self.cells)

    @property
    def late(self) -> list[str]:
        """Scenarios whose accepted p99 TTFT is over 1.2 times the SLO."""
        return [one.scenario for one in self.cells if one.late]

    def line(self, whole: Row) -> str:
        """A row of the table."""
        late = f"{len(self.late)}" + "".join(f" +{name}" for name in self.late if name not in whole.late)
        missed = ", ".join(f"{one.scenario} {one.goodput:.2f}" for one in self._furthest(1))
        better = ", ".join(f"{one.scenario} {one.goodput:.2f}" for one in self._furthest(-1))
        return (
            f"| {self.variant.name} | {self.goodput:.3f} | {self.worst:.2f} | {self.tokens:.3f} | {self.worst_tokens:.2f} "
            f"| {self.accepted_ok:.3f} | {late} | {missed} | {better} |"
        )

    def _furthest(self, sign: int) -> list[Cell]:
        """Scenarios that changed most, for the worse (1) or for the better (-1)."""
        changed = [one for one in self.cells if sign * (1.0 - one.goodput) > CLEAR]
        return sorted(changed, key=lambda one: sign * one.goodput)[:MOST_NAMED]


class Ablation:
    """Every variant of the law beside the law whole.

    Args:
        names: scenarios.
        seeds: the same for every variant.
        runs: who measures.
    """

    def __init__(self, names: Sequence[str], seeds: Sequence[int], runs: Runs) -> None:
        self._names, self._seeds, self._runs = names, seeds, runs
        self._results: dict[Trial, Figures] = {}

    def rows(self, variants: Sequence[Variant]) -> list[Row]:
        """One for each variant, runs included."""
        trials = [
            trial for one in (WHOLE, *variants) for name in self._names for trial in self._of(one, name)
        ]
        self._results |= self._runs.all(trials, "variants")
        return [Row(one, [self._cell(one, name) for name in self._names]) for one in variants]

    def _cell(self, variant: Variant, name: str) -> Cell:
        return cell(
            name, variant.name, self._by_seed(variant, name), Best(0, self._by_seed(WHOLE, name)), None
        )

    def _by_seed(self, variant: Variant, name: str) -> Mapping[int, Figures]:
        return {trial.seed: self._results[trial] for trial in self._of(variant, name)}

    def _of(self, variant: Variant, name: str) -> list[Trial]:
        return [Trial(name, variant.spec, seed, patch=variant.patch) for seed in self._seeds]


def bought_nothing(row: Row, chance: Sequence[Row], whole: Row) -> bool:
    """Is the law without it as good as with it, as far as these scenarios can tell?"""
    return (
        row.goodput >= min(one.goodput for one in chance)
        and row.tokens >= min(one.tokens for one in chance)
        and row.worst >= min(one.worst for one in chance) - FAR
        and row.worst_tokens >= min(one.worst_tokens for one in chance) - FAR
        and row.accepted_ok >= min(one.accepted_ok for one in chance)
        and set(row.late) <= {name for one in (whole, *chance) for name in one.late}
    )


def tables(ablation: Ablation, wanted: str = "") -> Iterator[str]:
    """All of it as Markdown."""
    groups = [[WHOLE, *CHANCE], _wanted(INGREDIENTS, wanted), _wanted(NEIGHBOURS, wanted)]
    rows = iter(ablation.rows([one for group in groups for one in group]))
    (whole, *chance), ingredients, neighbours = ([next(rows) for _ in group] for group in groups)
    yield "## Chance\n"
    yield HEAD.format("a change that means nothing")
    yield from (row.line(whole) for row in (whole, *chance))
    yield (
        f"\nSo chance alone moves a mean by up to {max(abs(row.goodput - 1) for row in chance):.3f}, "
        f"and one scenario by up to {max(abs(one.goodput - 1) for row in chance for one in row.cells):.2f}."
    )
    yield "\n## Without one ingredient\n"
    yield HEAD.format("left out")
    yield from (row.line(whole) for row in ingredients)
    yield "\n### What bought nothing here\n"
    idle = [row.variant for row in ingredients if bought_nothing(row, chance, whole)]
    yield from [f"- **{one.name}.** {one.purpose}" for one in idle] or ["All of it bought something."]
    yield "\n## A setting a little to the side\n"
    yield HEAD.format("instead")
    yield from (row.line(whole) for row in neighbours)


def _wanted(variants: Sequence[Variant], wanted: str) -> list[Variant]:
    """Those whose name has one of the words."""
    return [one for one in variants if not wanted or any(word in one.name for word in wanted.split(","))]


def run() -> Iterator[Result]:
    """Each ingredient in a scenario that it was made for."""
    runs = Runs(2, work=measure)
    for one in INGREDIENTS:
        (row,) = Ablation([one.at], (21, 22), runs).rows([one])
        yield Result(f"law without {one.name}, in {one.at}: goodput over the law whole", row.goodput, "ratio")


def command(arguments: Sequence[str]) -> int:
    """Print the tables, or write them."""
    asked = _asked(arguments)
    began = time.monotonic()
    try:
        seeds = parse_seeds(asked.seeds)
        names = LAB if asked.scenarios == "lab" else names_of(asked.scenarios)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    runs = Runs(asked.processes, fresh=asked.fresh, progress=progress, work=measure)
    text = "\n".join(tables(Ablation(names, seeds, runs), asked.only)) + "\n"
    if asked.write is None:
        print(text)
    else:
        asked.write.write_text(_page(text, names, seeds), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenarios", default="lab", help="`lab`, `main`, `all`, families or names, with commas between"
    )
    parser.add_argument("--seeds", default=SEEDS, help="how many, or which: 2, or 21,22")
    parser.add_argument(
        "--only", default="", help="variants whose name has one of these words, with commas between"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--write", type=Path, help="a Markdown file to write the tables to")
    return parser.parse_args(arguments)


def _page(text: str, names: Sequence[str], seeds: Sequence[int]) -> str:
    return f"""# What each ingredient of the law buys

Written by `python -m benchmarks ablation{_asked_for(names)} --seeds {_listed(seeds)} --write docs/law-ablations.md`; run it again to check.

Each row is the law with one thing changed, over the law whole (`{LAW}` as it ships) with the same seeds, so that 0.95 says: without it, a twentieth
of the goodput is gone; *mean* is over {len(names)} scenarios and *worst* the one that misses it most, for most ingredients are there for a few
of them and idle in the rest. Hold each figure against the rows of chance first, which change nothing that matters: whatever lies within those is no finding.

Goodput is requests, or output tokens, served whole within their SLO. *Late* counts scenarios whose accepted p99 TTFT is over 1.2 times the SLO, `+` those that are not late with the law whole.
The scenarios: {", ".join(f"`{name}`" for name in names)}; [what each is](law-results.md#the-scenarios).

{text}"""


def _asked_for(names: Sequence[str]) -> str:
    return "" if list(names) == LAB else f" --scenarios {','.join(names)}"


def _listed(seeds: Sequence[int]) -> str:
    """So that one seed is not read as so many."""
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
