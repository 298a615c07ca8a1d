"""The control law against the best static limits in hindsight and against published limiters, in every scenario.

    python -m benchmarks law                                     # 35 scenarios, five seeds, every policy
    python -m benchmarks law --scenarios over2,kvtight2 --seeds 2 --policies tidegate
    python -m benchmarks law --policies tidegate,tidegate:limit.dead_zone=.1,prefill.share=.3
    python -m benchmarks law --seeds 101,102,103,104,105 --write docs/law-results.md

One static limit serves all seeds of a scenario: nobody could have set another one for each.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from admission.simulation import policies
from admission.simulation.asking import seeds as parse_seeds
from admission.simulation.scenarios import families, scenarios
from admission.simulation.scenarios.measuring import value
from admission.simulation.scenarios.running import spec_of
from admission.simulation.scenarios.shadowing import refusals
from benchmarks.law_runs import Figures, Runs, Task
from benchmarks.law_statics import Best, best_request_limits, best_token_budgets
from benchmarks.law_table import (
    Cell,
    cell,
    details,
    rivals,
    side_by_side,
    summaries,
    summary,
    verdicts,
)
from benchmarks.result import Result

MAIN = (
    "steady0.7 over1.2 over2 over5 spikes5x kvtight2 reason2 kvreason2 70b-2 chunk512-2 capdrop restart stall8 mixshift "
    "moe diurnal idlespike nonotice2 backoff storm outshift slots32 noscrape bypass azure-conv azure-code azure-code70 "
    "mooncake 4090-2 6000-8b-2 6000-32b-2 6000-a3b-2 h100-2 4090-spikes servegen-r1"
).split()
"""The scenarios that the law was first worked out on."""
SEEDS = "5"
STATIC = ("fixed_tokens", "fixed_requests")
LAW = "tidegate"
AMONG_CLIENTS = ("rpm", "vtc")
"""They share an engine out among clients, of which these scenarios have none: see bench_arena."""
BY_LATENCY = ("vegas", "gradient2", "envoy_gradient", "vector_arc")
"""Published limiters that do not say which latency of a stream they mean: each is run with either."""
SHADOWED = ("steady0.7", "over1.2", "over2", "kvtight2", "spikes5x", "azure-conv")
POINTS = 0.1
FLOORS = {"mean": 1.05, "tokens": 1.03, "min": 0.97}


class Comparison:
    """All runs of it, and what they come to.

    Args:
        names: scenarios.
        seeds: the same for every policy.
        wanted: policies as people write them.
        runs: who measures.
        requests: look for the best static request limit as well.
    """

    def __init__(
        self, names: Sequence[str], seeds: Sequence[int], wanted: Sequence[str], runs: Runs, *, requests: bool
    ) -> None:
        self.seeds = seeds
        self.tokens: Mapping[str, Best] = best_token_budgets(names, seeds, runs)
        self.requests: Mapping[str, Best] = best_request_limits(names, seeds, runs) if requests else {}
        tasks = [Task(name, policy, seed) for policy in wanted for name in names for seed in seeds]
        results = runs.all(tasks, "policies")
        self.cells: dict[str, list[Cell]] = {
            "best static tokens": [
                self._cell(name, "best static tokens", self.tokens[name].figures) for name in names
            ]
        }
        if requests:
            label = "best static requests"
            self.cells[label] = [self._cell(name, label, self.requests[name].figures) for name in names]
        for policy in wanted:
            self.cells[policy] = [
                self._cell(name, policy, {seed: results[Task(name, policy, seed)] for seed in seeds})
                for name in names
            ]

    def _cell(self, name: str, policy: str, by_seed: Mapping[int, Figures]) -> Cell:
        return cell(name, policy, by_seed, self.tokens[name], self.requests.get(name))

    def lines(self) -> Iterator[str]:
        """The tables, as Markdown."""
        yield "## Every policy\n"
        yield from summaries(self.cells)
        for policy in [policy for policy in self.cells if policy.startswith("tidegate")]:
            yield f"\n## {policy}, scenario by scenario\n"
            yield from details(self.cells[policy])
        yield "\n## Goodput over the best static token budget, side by side\n"
        yield from side_by_side(self.cells)
        others = {name: cells for name, cells in self.cells.items() if not name.startswith(("best", LAW))}
        if others and LAW in self.cells:
            yield "\n## Where another limiter beats the law by more than two points\n"
            yield from rivals(self.cells[LAW], others)
        yield "\n## The static limits\n"
        yield "| scenario | best tokens | goodput of offered | best requests |"
        yield "|---|--:|--:|--:|"
        for one in self.cells["best static tokens"]:
            other = self.requests.get(one.scenario)
            yield (
                f"| {one.scenario} | {self.tokens[one.scenario].limit:,} | {one.mean('goodput'):.3f} "
                f"| {other.limit if other else ''} |"
            )


def run() -> Iterator[Result]:
    """The law over the main scenarios and two seeds, the goals of all scenarios, and how well shadow foretells."""
    comparison = Comparison(MAIN, (0, 1), ["tidegate"], Runs(2), requests=False)
    figures = summary(comparison.cells["tidegate"])
    for name, floor in FLOORS.items():
        label = f"law over the best static token budget, {len(MAIN)} scenarios: {name}"
        yield Result(label, figures[name], "ratio", f">= {floor}", figures[name] >= floor)
    yield Result("law: scenarios with a late p99 TTFT", figures["late"], "", "0", figures["late"] == 0)
    yield from _goals()
    yield from _shadow()


def _goals() -> Iterator[Result]:
    """What the tests do not hold us to in every run."""
    for one in scenarios().values():
        for check in (check for check in one.checks if check.benchmark):
            for seed in check.seeds:
                found = value(one, check, check.policy, seed)
                against = f"over that of {check.against}" if check.against else ""
                name = " ".join(filter(None, (one.name, check.of, check.measure, against, f"(seed {seed})")))
                bar = f">= {check.low:g}" if math.isinf(check.high) else f"{check.low:g} to {check.high:g}"
                yield Result(name, found, "", bar, check.low <= found <= check.high)


def _shadow() -> Iterator[Result]:
    for name in SHADOWED:
        found = refusals(scenarios()[name], seed=11)
        off = abs(found.predicted - found.enforced)
        yield Result(f"{name}: refusals in shadow less enforced", off, "share", f"<= {POINTS}", off <= POINTS)


def command(arguments: Sequence[str]) -> int:
    """Print the tables, or write them."""
    asked = _asked(arguments)
    began = time.monotonic()
    try:
        seeds = parse_seeds(asked.seeds)
        names = names_of(asked.scenarios)
        wanted = policies_of(asked.policies)
        for text in wanted:
            spec_of(text)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    runs = Runs(asked.processes, fresh=asked.fresh, stale=asked.stale, progress=progress)
    comparison = Comparison(names, seeds, wanted, runs, requests=not asked.no_requests)
    text = "\n".join(comparison.lines()) + "\n"
    if asked.write is None:
        print(text)
    else:
        text += "\n".join(_beyond(seeds, runs)) + "\n"
        asked.write.write_text(_page(text, seeds), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks law", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenarios", default="main", help="names, families, `main` or `all`, with commas between"
    )
    parser.add_argument("--seeds", default=SEEDS, help="how many, or which: 5, or 7,8,9")
    parser.add_argument(
        "--policies",
        default="",
        help="with commas between, each with settings: name:key=value,key=value; all when left out",
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--no-requests", action="store_true", help="do not look for the best static request limit"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="trust earlier results of all but the law though the simulator has changed",
    )
    parser.add_argument("--write", type=Path, help="a Markdown file to write the tables to")
    return parser.parse_args(arguments)


def names_of(text: str) -> list[str]:
    """Scenarios from their own names, those of families, `main` or `all`.

    Raises:
        ValueError: there is none of that name.
    """
    known = {"main": MAIN, "all": list(scenarios())} | {
        name: list(family.scenarios) for name, family in families().items()
    }
    found: list[str] = []
    for part in text.split(","):
        if part not in known and part not in scenarios():
            raise ValueError(f"no scenario {part!r}; there are {', '.join([*known, *scenarios()])}")
        found += known.get(part, [part])
    return list(dict.fromkeys(found))


def policies_of(text: str) -> list[str]:
    """A part that begins with no policy's name is one more setting of the one before it."""
    found: list[str] = []
    for part in text.split(",") if text else ():
        if not found or part.partition(":")[0] in policies.names():
            found.append(part)
        else:
            found[-1] += f",{part}"
    if found:
        return list(dict.fromkeys(found))
    others = [name for name in policies.names() if name not in (*STATIC, LAW, *AMONG_CLIENTS)]
    return [
        LAW,
        *(name for name in others if name not in BY_LATENCY),
        *(
            f"{name}:latency={latency}"
            for name in others
            if name in BY_LATENCY
            for latency in ("ttft", "total")
        ),
    ]


def _beyond(seeds: Sequence[int], runs: Runs) -> Iterator[str]:
    """The law alone in all other scenarios, the goals, and shadow."""
    names = [
        name
        for name, one in scenarios().items()
        if name not in MAIN and one.family != "loops" and not name.endswith(("-alone", "-without"))
    ]
    yield "\n## Beyond these: other sights, sizes, pools and neighbours\n"
    yield from details(Comparison(names, seeds, [LAW], runs, requests=False).cells[LAW])
    yield "\n## Goals\n"
    yield from verdicts([*_goals(), *_shadow()])
    yield "\n## The scenarios\n"
    for family, found in families().items():
        yield f"\n`{family}`: {found.about}\n"
        yield from (f"- `{name}`: {one.about}" for name, one in found.scenarios.items())


def _page(tables: str, seeds: Sequence[int]) -> str:
    return f"""# How the law compares

Written by `python -m benchmarks law --seeds {",".join(map(str, seeds))} --write docs/law-results.md`; run it again to check.

Goodput is requests served whole within their SLO (TTFT 2 s, mean TPOT 80 ms) over all that were offered, and each figure is
held against the static token budget that was best in hindsight, one value for all seeds of a scenario, behind the same queue.
A load of 1 is the work bound: the rate at which the engine's steps take as long as the TPOT target allows.
`!` or `late`: the accepted p99 TTFT, outside [-2, +5] s of a disturbance, is over 1.2 times the SLO.
Shares by size quartile are of requests served, the smallest first: a token budget prefers short requests, whoever sets it.

{tables}"""


def progress(what: str, done: int, of: int) -> None:
    """One line that grows on a terminal; elsewhere a line for each quarter."""
    on_terminal = sys.stderr.isatty()
    if on_terminal or done == of or done % max(1, of // 4) == 0:
        before, end = ("\r", "\n" if done == of else "") if on_terminal else ("", "\n")
        print(f"{before}{what}: {done}/{of} runs", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
