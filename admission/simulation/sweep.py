"""The best static token budget in hindsight: what a perfect operator would have chosen, one value for all seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GRID = 10
REFINED = 4
"""Values between the best of the grid and its neighbours: half of them on either side."""
LEAST_SHARE = 1 / 256
MOST_SHARE = 1.5
"""Of the engine's KV. Costs are predictions, so that the best budget may lie above it."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a budget got, as the mean over seeds: good over offered, in requests and in tokens."""

    goodput_requests_ratio: float
    goodput_tokens_ratio: float

    @property
    def rank(self) -> tuple[float, float]:
        """Requests decide, tokens break ties."""
        return self.goodput_requests_ratio, self.goodput_tokens_ratio


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every budget that was tried, in tokens and in order, and the best."""

    scores: Mapping[int, Score]
    best_tokens: int

    @property
    def best(self) -> Score:
        """Its score."""
        return self.scores[self.best_tokens]

    @property
    def at_the_edge(self) -> bool:
        """Whether the best is the largest tried: the limit hardly mattered, or more would have been better still."""
        return self.best_tokens == max(self.scores)

    def as_json(self) -> dict[str, Any]:
        """Exact figures."""
        return {
            "best_tokens": self.best_tokens,
            "at_the_edge": self.at_the_edge,
            "scores": [{"limit_tokens": tokens, **asdict(score)} for tokens, score in self.scores.items()],
        }


def grid(kv_capacity_tokens: int, values: int = GRID) -> list[int]:
    """Budgets in equal ratios around an engine's KV capacity, in tokens.

    Raises:
        ValueError: fewer than two values.
    """
    if values < 2:
        raise ValueError("values must be at least 2")
    least = max(1.0, kv_capacity_tokens * LEAST_SHARE)
    ratio = (kv_capacity_tokens * MOST_SHARE / least) ** (1 / (values - 1))
    return sorted({round(least * ratio**step) for step in range(values)})


def refined(scores: Mapping[int, Score], values: int = REFINED) -> list[int]:
    """Budgets between the best so far and its neighbours, in equal ratios, none of those tried already."""
    tried = sorted(scores)
    at = tried.index(best_of(scores))
    each = max(1, values // 2)
    found: set[int] = set()
    for low, high in zip(tried[max(0, at - 1) : at + 1], tried[max(0, at - 1) + 1 : at + 2], strict=False):
        ratio = (high / low) ** (1 / (each + 1))
        found |= {round(low * ratio**step) for step in range(1, each + 1)}
    return sorted(found - set(tried))


def best_of(scores: Mapping[int, Score]) -> int:
    """The budget with the best score; of equals the smallest, as it leaves the engine the most room."""
    return min(scores, key=lambda tokens: (tuple(-each for each in scores[tokens].rank), tokens))


def sweep(
    budgets: Sequence[int], measure: Callable[[Sequence[int]], Mapping[int, Score]], *, refinements: int = 1
) -> Sweep:
    """Measure a grid of budgets, then closer around the best.

    Args:
        budgets: the first grid, in tokens.
        measure: the mean scores of some budgets, all of them over the same seeds.
        refinements: how often to look closer.
    """
    scores = dict(measure(budgets))
    for _ in range(refinements):
        closer = refined(scores)
        if closer:
            scores |= measure(closer)
    return Sweep(dict(sorted(scores.items())), best_of(scores))
