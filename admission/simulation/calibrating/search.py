"""Finds a minimum without derivatives: the simplex of Nelder and Mead, deterministic and bounded in evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Point = tuple[float, ...]


class Simplex:
    """Minimises a function of a few variables, with at most `evaluations` calls of it.

    J. A. Nelder and R. Mead, A simplex method for function minimization, Computer Journal 7 (1965).
    """

    def __init__(self, function: Callable[[Point], float], evaluations: int) -> None:
        self._function = function
        self._left = evaluations

    def minimise(self, start: Sequence[float], step: float, tolerance: float = 1e-4) -> Point:
        """The best point seen, from a start and `step` beside it in every direction. The start is one of them."""
        corners = [tuple(start)] + [
            tuple(value + step * (axis == other) for other, value in enumerate(start))
            for axis in range(len(start))
        ]
        scored = sorted((self._score(corner), corner) for corner in corners)
        while self._left > 0 and _size(scored) > tolerance:
            self._move(scored)
            scored.sort()
        return scored[0][1]

    def _score(self, point: Point) -> float:
        if self._left <= 0:
            return float("inf")
        self._left -= 1
        return self._function(point)

    def _move(self, scored: list[tuple[float, Point]]) -> None:
        """Replace the worst corner by a better one on the line through the others' middle, or shrink."""
        *rest, (worst, corner) = scored
        middle = tuple(sum(values) / len(rest) for values in zip(*(point for _, point in rest), strict=True))
        mirrored = _along(middle, corner, -1.0)
        score = self._score(mirrored)
        if score < rest[0][0]:
            further = _along(middle, corner, -2.0)
            scored[-1] = min((score, mirrored), (self._score(further), further))
        elif score < rest[-1][0]:
            scored[-1] = (score, mirrored)
        else:
            nearer = _along(middle, corner, 0.5) if score >= worst else _along(middle, corner, -0.5)
            inside = self._score(nearer)
            if inside < min(score, worst):
                scored[-1] = (inside, nearer)
            else:
                self._shrink(scored)

    def _shrink(self, scored: list[tuple[float, Point]]) -> None:
        best = scored[0][1]
        for place, (_, point) in enumerate(scored[1:], 1):
            half = _along(best, point, 0.5)
            scored[place] = (self._score(half), half)


def _along(middle: Point, corner: Point, factor: float) -> Point:
    return tuple(m + factor * (c - m) for m, c in zip(middle, corner, strict=True))


def _size(scored: list[tuple[float, Point]]) -> float:
    best = scored[0][1]
    return max(abs(a - b) for _, point in scored[1:] for a, b in zip(point, best, strict=True))
