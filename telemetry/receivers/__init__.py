"""Where measurements come in: what a receiver is, and what it may say."""

from __future__ import annotations

from typing import Protocol

from admission.core.model import Reading, Sample
from telemetry.link import GpuReport, SignalReport


class Emit(Protocol):
    """Who takes what a receiver found? Every method returns at once, never raises, and is called on the pipeline's loop only."""

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value of a target. What was not measured is not sent: never 0 for missing."""
        ...

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request, from the primary emitter of a target."""
        ...

    def signal(self, report: SignalReport) -> None:
        """How a source itself is doing; replaces the last report of the same target, name and source."""
        ...

    def gpu(self, report: GpuReport) -> None:
        """The newest state of one GPU; replaces the last report of the same UUID."""
        ...

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter; names come from a closed set of the receiver's code, never from input."""
        ...

    def warn(self, key: str, text: str) -> None:
        """One line for people under a key; a later text replaces it, an empty text takes it back."""
        ...


class Receiver(Protocol):
    """What brings measurements in? One object per source of measurements."""

    name: str
    """The word in logs, counters and reports."""

    async def run(self, emit: Emit) -> None:
        """Works until cancelled; a source that fails is reported and tried again, it never ends the task."""
        ...
