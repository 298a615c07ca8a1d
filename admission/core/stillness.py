"""When does an engine stand still, rather than run slowly? Then nobody's pace says anything about the load."""

from __future__ import annotations

STILL_S = 1.0
"""No chunk of any stream for so long: it stands."""
RARE_S = 30.0
"""Between two times that it stood. One whose every step takes longer than that second is slow, not standing."""
REPORTED_S = 2.0
"""Without a chunk reported so long before it, silence is nobody's report rather than the engine's standstill."""


class Stillness:
    """Adds up the time in which no stream moved, to be left out of every stream's pace. Seconds."""

    def __init__(self) -> None:
        self.total_s = self._before_s = 0.0
        self._moved_at = float("-inf")
        self._reported_at = float("-inf")
        self._stood_from = self._stood_at = float("-inf")

    def moved(self, at: float, *, others: bool, reported: bool) -> None:
        """A stream got a token, told by a report of its chunks or not; `others`: there were streams in progress before."""
        if others and self.standing(at):
            self._before_s, self._stood_from, self._stood_at = self.total_s, self._moved_at, at
            self.total_s += at - self._moved_at
        self._moved_at = max(at, self._moved_at)
        if reported:
            self._reported_at = self._moved_at

    def total_by(self, at: float) -> float:
        """How long it had stood in all at an instant, which is not before the last but one time that it stood."""
        return self.total_s if at > self._stood_from + 0.5 * STILL_S else self._before_s

    def standing(self, now: float) -> bool:
        """Does it stand now, given that there are streams in progress?"""
        told = self._moved_at - self._reported_at <= REPORTED_S
        return told and now - self._moved_at >= STILL_S and self._moved_at - self._stood_at >= RARE_S
