"""The sweep finds the best static budget, and one for all seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from admission.simulation.sweep import Score, best_of, grid, refined, sweep


class Hill:
    """Goodput that falls off to both sides of a budget; remembers what it was asked."""

    def __init__(self, top_tokens: int) -> None:
        self.top_tokens = top_tokens
        self.asked: list[list[int]] = []

    def __call__(self, budgets: Sequence[int]) -> dict[int, Score]:
        """The scores of some budgets."""
        self.asked.append(list(budgets))
        return {each: Score(min(each, self.top_tokens) / max(each, self.top_tokens), 0.5) for each in budgets}


@pytest.mark.parametrize("top_tokens", [2_500, 30_000, 111_111, 460_000])
def test_the_best_budget_is_found_within_a_small_step(top_tokens: int) -> None:
    """The bar that a policy is held against must not be low because nobody looked closely."""
    measure = Hill(top_tokens)
    found = sweep(grid(460_000), measure)

    assert 0.8 < found.best_tokens / top_tokens < 1.25
    assert found.best.goodput_requests_ratio > 0.8
    assert len(measure.asked) == 2
    assert not set(measure.asked[0]) & set(measure.asked[1])


def test_a_grid_is_in_equal_ratios_around_the_kv() -> None:
    """A budget matters by its ratio to what the engine holds, on engines of 10k and of 4M tokens alike."""
    for capacity in (10_000, 4_000_000):
        values = grid(capacity)
        ratios = [after / before for before, after in itertools.pairwise(values)]

        assert values[0] == pytest.approx(capacity / 256, rel=0.02)
        assert values[-1] == pytest.approx(capacity * 1.5, rel=0.01)
        assert max(ratios) / min(ratios) < 1.05


def test_refining_stays_beside_the_best_at_both_ends() -> None:
    """At an edge there is a neighbour on one side only."""
    low = {10: Score(0.9, 0.5), 100: Score(0.5, 0.5), 1_000: Score(0.1, 0.5)}
    high = {10: Score(0.1, 0.5), 100: Score(0.5, 0.5), 1_000: Score(0.9, 0.5)}

    assert all(10 < each < 100 for each in refined(low))
    assert all(100 < each < 1_000 for each in refined(high))
    assert refined({100: Score(0.5, 0.5)}) == []


def test_of_equals_the_one_with_more_tokens_then_the_smallest_is_best() -> None:
    """Above some budget nothing changes any more; the smallest of those is the one to advise."""
    even = Score(0.9, 0.5)

    assert best_of({100: even, 200: even, 50: Score(0.8, 0.9)}) == 100
    assert best_of({100: even, 200: Score(0.9, 0.6)}) == 200


def test_an_edge_is_told() -> None:
    """Then the limit hardly mattered, or the grid was too small: people must know."""
    assert sweep(grid(1_000), Hill(10_000)).at_the_edge
    assert not sweep(grid(1_000), Hill(100)).at_the_edge


def test_a_grid_of_one_is_none() -> None:
    """Ratios need two ends."""
    with pytest.raises(ValueError, match="at least 2"):
        grid(1_000, 1)
