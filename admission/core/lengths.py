"""How long answers are, also while long ones run still: those that ended by now tell of the short ones alone."""

from __future__ import annotations

from math import log, log1p

GROWTH = 1.3
"""Each span of lengths is so many times as long as the one before."""
MIN_ENDED = 10
FADES = 0.999
"""What was seen keeps of its weight with each answer that ends."""


class Lengths:
    """Ends over tokens made, span by span: the chance of an answer to end with its next token, given its length so far.

    An answer that runs still, or that nobody waited for, counts with the tokens that it made (occurrence over exposure,
    as life tables do; Kaplan and Meier 1958 for single lives).
    """

    def __init__(self) -> None:
        self._made: dict[int, float] = {}
        self._ended: dict[int, float] = {}

    def made(self, before: float, after: float) -> None:
        """An answer grew from so many tokens to so many."""
        span = _span((before + after) / 2.0)
        self._made[span] = self._made.get(span, 0.0) + after - before

    def ended(self, tokens: float) -> None:
        """An answer ended after so many tokens."""
        for counts in (self._made, self._ended):
            for span in counts:
                counts[span] *= FADES
        span = _span(tokens)
        self._ended[span] = self._ended.get(span, 0.0) + 1.0

    def draw(self, made: float, share: float) -> float | None:
        """A length that this share of those with `made` tokens stays under; None: too few have ended to tell."""
        ends = sum(self._ended.values())
        tokens = sum(self._made.values())
        if ends < MIN_ENDED or tokens <= 0:
            return None
        left, at = -log1p(-share), made
        for span in range(_span(made), max(self._made) + 1):
            until = GROWTH ** (span + 1) - 1.0
            grown = self._made.get(span, 0.0)
            chance = self._ended.get(span, 0.0) / grown if grown > 0 else 0.0
            if chance * (until - at) >= left:
                return at + left / chance
            left -= chance * (until - at)
            at = until
        return at + left * tokens / ends


def _span(tokens: float) -> int:
    return int(log(tokens + 1.0) / log(GROWTH))
