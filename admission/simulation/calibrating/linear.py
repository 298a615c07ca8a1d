"""Least squares with no negative coefficient, in relative errors: a step's cost from sums of what steps did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNKNOWNS = 5
"""Base, prefill token, decoding sequence, KV token, and an overhead that is no part of a step."""
USUAL = {1: 4.5e-3, 2: 5e-3, 3: 7e-6}
"""Costs of a prefill token, a decoding sequence and a KV token over the base cost, about the middle of ten GPU engines."""
USUAL_MOST = 0.03
"""What is usual never counts more than this relative error in every duration."""
OUTLIER = 0.2
"""A relative residual beyond this counts in proportion, no longer squared (Huber's weights)."""
ROUNDS = 3
LOOSE = 1.1
"""A cost may move until the squared error is this many times as large: so far the data leave it open."""


@dataclass(frozen=True, slots=True)
class Equations:
    """`rows` times the unknown costs is `seconds`: one row for each measured duration. An error counts over `scale`.

    Where `seconds` are noisy, `scale` must be of something else: who weighs by noisy values prefers the small ones.
    """

    rows: Floats
    seconds: Floats
    scale: Floats

    def residuals(self, costs: Floats) -> Floats:
        """Error of each duration over its scale."""
        return np.asarray((self.rows @ costs - self.seconds) / self.scale)


def solve(equations: Equations, base_s: float, *, usual: bool = True) -> Floats:
    """Costs that are at least 0 (the base above 0) and fit best; what the data leave open is as usual on GPUs.

    Args:
        equations: what was measured.
        base_s: about how large the base cost is, for the scale of what is usual.
        usual: whether the usual counts at all.
    """
    rows, right = equations.rows / equations.scale[:, None], equations.seconds / equations.scale
    ties = _ties(base_s) * len(right) ** 0.5
    costs = _not_negative(rows, right)
    for _ in range(ROUNDS):
        off = np.abs(equations.residuals(costs))
        weights = np.sqrt(np.minimum(1.0, OUTLIER / np.maximum(off, 1e-12)))
        # A cost twice the usual counts as much as the data are in error: not at all where the model fits exactly.
        noise = min(float(np.median(off)), USUAL_MOST) * usual
        both = np.concatenate([right * weights, np.zeros(len(ties))])
        costs = _not_negative(np.vstack([rows * weights[:, None], ties * noise]), both)
    return costs


def _ties(base_s: float) -> Floats:
    rows = np.zeros((len(USUAL), UNKNOWNS))
    for row, (column, ratio) in zip(rows, USUAL.items(), strict=True):
        row[0], row[column] = 1.0, -1.0 / ratio
    return np.asarray(rows / base_s)


def _not_negative(rows: Floats, right: Floats) -> Floats:
    """With so few unknowns all subsets can be tried: the best whose plain solution is not negative."""
    scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    gram, target = (rows / scale).T @ (rows / scale), (rows / scale).T @ right
    best, best_loss = np.zeros(UNKNOWNS), np.inf
    others = [column for column in range(1, UNKNOWNS) if scale[column] > 1e-200]
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            columns = [0, *chosen]
            part = np.linalg.lstsq(gram[np.ix_(columns, columns)], target[columns], rcond=1e-12)[0]
            loss = float(part @ gram[np.ix_(columns, columns)] @ part - 2.0 * part @ target[columns])
            if (part >= 0).all() and loss < best_loss - 1e-12:
                best, best_loss = np.zeros(UNKNOWNS), loss
                best[columns] = part
    return np.asarray(best / scale)


def open_ratios(equations: Equations, costs: Floats) -> Floats:
    """How far each cost can move, in its own size, the others following it, until the error is a tenth larger.

    Infinite where the data say nothing about it.
    """
    rows = equations.rows / equations.scale[:, None]
    error = float((equations.residuals(costs) ** 2).sum())
    scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    values, vectors = np.linalg.eigh((rows / scale).T @ (rows / scale))
    inverse = (vectors**2 / np.maximum(values, 1e-15)).sum(axis=1)
    told = (costs > 0) & (scale > 1e-200)
    moves = np.sqrt((LOOSE - 1.0) * error * inverse[told]) / scale[told]
    ratios = np.full(UNKNOWNS, np.inf)
    ratios[told] = moves / costs[told]
    return ratios
