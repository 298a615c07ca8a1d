"""The comparison behind docs/law-results.md: it finds the best static limit, and its ratios are what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.simulation.scenarios import scenarios
from benchmarks.bench_law import MAIN, policies_of
from benchmarks.law_runs import Figures, Task
from benchmarks.law_statics import Search
from benchmarks.law_table import cell, details, rivals, summary

SEEDS = (1, 2, 3)


def figures(goodput: float, p99_s: float | None = 1.0) -> Figures:
    """A run that came to that."""
    return Figures(
        goodput=goodput,
        goodput_tokens=goodput / 2,
        accepted_ok=1.0,
        ttft_p50_s=0.5,
        ttft_p99_quiet_s=p99_s,
        recovery_s=[],
        quartiles=[0.9, 0.8, 0.7, 0.6],
        preemptions=0,
        limit_variation=None,
        interactive=goodput,
    )


def search(curve: Callable[[int], float], grid: list[int]) -> Search:
    """Run to its end on a made-up curve."""
    one = Search("over2", lambda limit: f"fixed_tokens:limit_tokens={limit}", SEEDS, grid)
    while one.wanted:
        one.take({task: figures(curve(int(task.policy.rpartition("=")[2]))) for task in one.tasks()})
    return one


def cliff(limit: int) -> float:
    """Rises with the limit up to 137,000 and is nothing beyond, as goodput is where TPOT passes its SLO."""
    return limit / 200_000 if limit <= 137_000 else 0.0


def test_the_search_comes_close_to_the_edge_of_a_cliff() -> None:
    """A coarse grid would make the static limit look worse than it is, and the law better."""
    best = search(cliff, [10_000 * 2**n for n in range(7)]).best()
    assert 0.92 * 137_000 < best.limit <= 137_000
    assert set(best.figures) == set(SEEDS)


@pytest.mark.parametrize("peak", [1_500, 4_000_000])
def test_the_search_goes_beyond_its_grid(peak: int) -> None:
    """The best may lie outside of what anybody expected."""
    best = search(
        lambda limit: 1.0 / (1.0 + abs(limit / peak - 1.0)), [10_000 * 3**n for n in range(5)]
    ).best()
    assert best.limit == pytest.approx(peak, rel=0.5)


def test_where_nothing_binds_the_smallest_of_the_best_is_taken() -> None:
    """A limit that hardly matters is no reason to search for ever."""
    assert (
        search(lambda limit: min(1.0, limit / 50_000), [10_000 * 2**n for n in range(6)]).best().limit
        < 90_000
    )


def test_ratios_are_taken_seed_by_seed_against_one_static_limit() -> None:
    """Choosing a limit for each seed would flatter the oracle, a mean of means the law."""
    best = search(cliff, [50_000, 100_000, 130_000]).best()
    theirs = best.figures[1].goodput
    one = cell("over2", "tidegate", {seed: figures(theirs * (1 + seed / 10)) for seed in SEEDS}, best, None)
    assert one.goodput == pytest.approx(1.2)
    assert one.worst_seed == pytest.approx(1.1)
    assert summary([one])["mean"] == pytest.approx(1.2)
    assert "| over2 | 1.200 (1.100) | 1.200 |" in "\n".join(details([one]))


@pytest.mark.parametrize(("p99_s", "late"), [(2.39, False), (2.41, True), (None, True)])
def test_a_late_tail_is_told(p99_s: float | None, late: bool) -> None:
    """Goodput alone would hide that those who were let in wait too long."""
    best = search(cliff, [50_000, 100_000]).best()
    one = cell("over2", "x", {seed: figures(0.5, p99_s) for seed in SEEDS}, best, None)
    assert one.late is late


def test_a_rival_that_does_better_is_named() -> None:
    """A table of hundreds of figures hides the one that matters."""
    best = search(cliff, [50_000, 100_000]).best()
    law, near, better = (
        [cell("over2", name, {seed: figures(goodput) for seed in SEEDS}, best, None)]
        for name, goodput in (("tidegate", 0.500), ("near", 0.505), ("better", 0.6))
    )
    assert list(rivals(law, {"near": near})) == ["Nowhere."]
    assert "over2: better" in next(rivals(law, {"near": near, "better": better}))


def test_settings_of_a_policy_may_have_commas() -> None:
    """As people write them: a part that begins with no policy's name belongs to the one before."""
    assert policies_of("tidegate:limit.dead_zone=.1,prefill.share=.3,vegas") == [
        "tidegate:limit.dead_zone=.1,prefill.share=.3",
        "vegas",
    ]


def test_a_run_is_stored_under_all_that_it_depends_on() -> None:
    """The law's runs are measured anew when the core changes; a static limit's are not."""
    static, law = (Task("over2", policy, 1) for policy in ("fixed_tokens:limit_tokens=9", "tidegate"))
    assert law.made_of.startswith(static.made_of)
    assert law.made_of != static.made_of
    assert (
        len({task.name for task in (static, law, Task("over5", "tidegate", 1), Task("over2", "tidegate", 2))})
        == 4
    )


def test_all_main_scenarios_exist() -> None:
    """The table covers what the law was worked out on."""
    assert set(MAIN) <= set(scenarios())
    assert len(MAIN) == 35
