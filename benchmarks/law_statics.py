"""The best static limit in hindsight: a grid of values, further out while the best lies at an end, then closer around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from admission.simulation.scenarios import scenario
from admission.simulation.sweep import Score, best_of, refined
from benchmarks.law_runs import Figures, Runs, Task

TOKEN_SHARES, TOKEN_VALUES = (0.02, 1.5), 12
"""Of all KV there is, in equal ratios."""
REQUEST_SHARES, REQUEST_VALUES = (0.02, 1.2), 8
"""Of all sequence slots there are."""
FURTHER = 3
"""How often a value beyond the grid is tried."""
FEW_SEEDS = 2
"""The first so many seeds find the neighbourhood."""
AROUND = 2
"""Values to either side of it that all seeds decide between."""
CLOSER = 2
"""How often four values around the best are tried: goodput falls off a cliff where TPOT passes its SLO."""


@dataclass(frozen=True, slots=True)
class Best:
    """One value for all seeds."""

    limit: int
    figures: Mapping[int, Figures]
    """By seed."""


def token_policy(limit: int) -> str:
    """A static token budget and nothing else, behind the same queue."""
    return f"fixed_tokens:limit_tokens={limit},guards=false"


def request_policy(limit: int) -> str:
    """A static request limit and nothing else, behind the same queue."""
    return f"fixed_requests:limit_requests={limit},guards=false"


@dataclass(slots=True)
class Search:
    """The search for one scenario's best value: with a few seeds until it is found, then the values around it with all."""

    name: str
    policy: Callable[[int], str]
    seeds: Sequence[int]
    wanted: list[int]
    tried: dict[int, dict[int, Figures]] = field(default_factory=dict)
    further: int = FURTHER
    closer: int = CLOSER
    final: bool = False

    def tasks(self) -> list[Task]:
        """The runs that it waits for."""
        return [Task(self.name, self.policy(limit), seed) for limit in self.wanted for seed in self._of()]

    def take(self, results: Mapping[Task, Figures]) -> None:
        """Their results are there; decide what to try next."""
        for limit in self.wanted:
            self.tried[limit] = {
                seed: results[Task(self.name, self.policy(limit), seed)] for seed in self._of()
            }
        self.wanted = [] if self.final else self._next()

    def best(self) -> Best:
        """The best of those that were tried with all seeds; of equals the smallest."""
        limit = best_of(self._scores(len(self.seeds)))
        return Best(limit, self.tried[limit])

    def _of(self) -> Sequence[int]:
        return self.seeds if self.final else self.seeds[:FEW_SEEDS]

    def _next(self) -> list[int]:
        tried = sorted(self.tried)
        best = best_of(self._scores())
        ends = {tried[0]: tried[0] ** 2 / tried[1], tried[-1]: tried[-1] ** 2 / tried[-2]}
        beyond = round(ends.get(best, 0))
        if self.further and beyond and beyond not in self.tried:
            self.further -= 1
            return [beyond]
        if self.closer and (between := refined(self._scores())):
            self.further, self.closer = 0, self.closer - 1
            return between
        self.final = True
        at = tried.index(best)
        return tried[max(0, at - AROUND) : at + AROUND + 1]

    def _scores(self, seeds: int = 0) -> dict[int, Score]:
        """Of all that were tried with at least so many seeds."""
        return {
            limit: Score(
                fmean(one.goodput for one in by_seed.values()),
                fmean(one.goodput_tokens for one in by_seed.values()),
            )
            for limit, by_seed in self.tried.items()
            if len(by_seed) >= seeds
        }


def best_token_budgets(names: Sequence[str], seeds: Sequence[int], runs: Runs) -> dict[str, Best]:
    """The best static token budget of each scenario."""
    grids = {name: _grid(_kv(name), TOKEN_SHARES, TOKEN_VALUES) for name in names}
    return _search("static token budgets", grids, token_policy, seeds, runs)


def best_request_limits(names: Sequence[str], seeds: Sequence[int], runs: Runs) -> dict[str, Best]:
    """The best static request limit of each scenario."""
    grids = {name: _grid(_slots(name), REQUEST_SHARES, REQUEST_VALUES) for name in names}
    return _search("static request limits", grids, request_policy, seeds, runs)


def _search(
    what: str,
    grids: Mapping[str, list[int]],
    policy: Callable[[int], str],
    seeds: Sequence[int],
    runs: Runs,
) -> dict[str, Best]:
    searches = [Search(name, policy, seeds, grid) for name, grid in grids.items()]
    while any(search.wanted for search in searches):
        results = runs.all([task for search in searches for task in search.tasks()], what)
        for search in searches:
            if search.wanted:
                search.take(results)
    return {search.name: search.best() for search in searches}


def _grid(scale: int, shares: tuple[float, float], values: int) -> list[int]:
    least, most = (max(1.0, share * scale) for share in shares)
    ratio = (most / least) ** (1 / (values - 1))
    return sorted({round(least * ratio**step) for step in range(values)})


def _kv(name: str) -> int:
    return sum(member.engine.kv_capacity_tokens for member in scenario(name).pool())


def _slots(name: str) -> int:
    return sum(member.engine.max_num_seqs for member in scenario(name).pool())
