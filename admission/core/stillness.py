"""When does an engine stand still, rather than run slowly? Then nobody's pace says anything about the load."""

from __future__ import annotations

STILL_S = 1.0
"""No chunk of any stream for so long: it stands."""
RARE_S = 30.0
"""Between two times that it stood. One whose every step takes longer than that second is slow, not standing."""
LONGEST_S = 10.0
"""A silence longer than this is judged as slowness: a law must not stay blind."""
LATE_CHUNKS = 2.0
"""Chunks of one stream in a report, for each second of silence before it, that show a late report rather than a standstill."""
REPORTED_S = 2.0
"""Without a chunk reported so long before it, silence is nobody's report rather than the engine's standstill."""


class Stillness:
    """Adds up the time in which no stream moved, to be left out of every stream's pace. Seconds."""

    def __init__(self) -> None:
        self.total_s = self._before_s = 0.0
        self._moved_at = float("-inf")
        self._reported_at = float("-inf")
        self._late_s = 0.0
        """How far apart reports come at times: silence for less than twice that is nothing."""
        self._stood_from = self._stood_at = float("-inf")

    def heard(self, at: float) -> None:
        """The engine works: an answer ended. Or nobody could have heard: this process stood still itself."""
        self._moved_at = max(at, self._moved_at)

    def moved(self, at: float, *, others: bool, chunks: int = 0) -> None:
        """A stream got a token; `others`: there were streams in progress before.

        `chunks` is the most that any one stream brought, when this is a report of chunks. One that brings what the silence
        is long enough for was late itself.
        """
        gap_s = at - self._moved_at
        late = chunks >= LATE_CHUNKS * gap_s
        if late and gap_s >= 0.5 * STILL_S:
            self._late_s = max(self._late_s, min(gap_s, LONGEST_S))
        elif others and self.standing(at):
            self._before_s, self._stood_from, self._stood_at = self.total_s, self._moved_at, at
            self.total_s += gap_s
        self._moved_at = max(at, self._moved_at)
        if chunks:
            self._reported_at = self._moved_at
            self._late_s *= 0.999

    def total_by(self, at: float) -> float:
        """How long it had stood in all at an instant, which is not before the last but one time that it stood."""
        return self.total_s if at > self._stood_from + 0.5 * STILL_S else self._before_s

    def standing(self, now: float) -> bool:
        """Does it stand now, given that there are streams in progress?"""
        told = self._moved_at - self._reported_at <= REPORTED_S
        silent_s = now - self._moved_at
        long = max(STILL_S, 2.0 * self._late_s) <= silent_s <= LONGEST_S
        return told and long and self._moved_at - self._stood_at >= RARE_S
