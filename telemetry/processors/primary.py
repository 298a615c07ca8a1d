"""Which of a target's emitters speaks for it? One at a time, the nearest to the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Speaker:
    name: str
    rank: int
    heard_at: float


class Primaries:
    """One primary emitter for each target: a trace may hold three server spans for one request.

    A nearer emitter takes over at once; a farther one only after the primary was silent for `silence_s` seconds.
    """

    def __init__(self, *, silence_s: float = 60.0) -> None:
        self._silence_s = silence_s
        self._speakers: dict[str, _Speaker] = {}

    def speaks(self, target: str, emitter: str, rank: int, now: float) -> bool:
        """Whether this emitter's sample counts for the target; targets are those of the configuration."""
        speaker = self._speakers.get(target)
        if speaker is not None and speaker.name == emitter:
            speaker.heard_at = now
            return True
        if speaker is None or rank < speaker.rank or now - speaker.heard_at > self._silence_s:
            self._speakers[target] = _Speaker(emitter, rank, now)
            return True
        return False

    def shown(self) -> dict[str, str]:
        """The primary of each target."""
        return {target: speaker.name for target, speaker in self._speakers.items()}
