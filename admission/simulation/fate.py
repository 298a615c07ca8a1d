"""What became of one request, real or simulated: the one record that every verdict is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from admission.simulation.traces import Arrival


class Ending(StrEnum):
    """How a request, or one attempt of it, ended."""

    SERVED = "served"
    REFUSED = "refused"
    """Not let in: 429 or 503 before any stream."""
    INVALID = "invalid"
    """Any other status but 200."""
    FAILED = "failed"
    """No connection, a cut stream, or a 200 whose stream carried an error."""
    IMPATIENT = "impatient"
    """The caller left since no token came."""
    LEFT = "left"
    """The caller left mid-stream, as it meant to."""
    OPEN = "open"
    """Still under way when the verdict was asked for."""


@dataclass(slots=True)
class Fate:
    """One logical request, settled: what its last attempt saw and what all attempts cost. Seconds.

    Where an answer does not stream, `ttft_s` is when the first token was made, if that is known.
    """

    arrival: Arrival
    ending: Ending
    reason: str = ""
    """Why the last attempt was refused: the label of a Reason."""
    attempts: int = 1
    waited_s: float = 0.0
    """For admission, in the last attempt."""
    began_at_s: float = 0.0
    """When the last attempt arrived: TTFT counts from there."""
    admitted: bool = False
    """Whether the last attempt was let in."""
    ttft_s: float | None = None
    """Of the last attempt, its wait for admission included."""
    tpot_s: float | None = None
    """Per output token after the first; None below two tokens."""
    e2e_s: float | None = None
    """From the last attempt's arrival to its end, however it ended."""
    refused: tuple[str, ...] = ()
    """Reasons of all refused attempts, the last one's included."""
    leaves: bool = False
    """The caller meant to leave mid-stream, whatever became of it: it is not offered."""

    @property
    def tokens(self) -> int:
        """Prompt and answer together."""
        return self.arrival.prompt_tokens + self.arrival.output_tokens
