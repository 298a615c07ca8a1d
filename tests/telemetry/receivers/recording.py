"""An Emit that keeps everything it is told."""

from __future__ import annotations

from collections import Counter

from admission.core.model import Reading, Sample
from admission.vocabulary import SignalKind
from telemetry.link import GpuReport, SignalReport


class Recording:
    """What a receiver said, in order."""

    def __init__(self) -> None:
        self.readings: list[tuple[str, Reading]] = []
        self.samples: list[tuple[str, Sample]] = []
        self.signals: list[SignalReport] = []
        self.gpus: list[GpuReport] = []
        self.counts: Counter[str] = Counter()
        self.warnings: dict[str, str] = {}

    def reading(self, target: str, reading: Reading) -> None:
        """Keeps a reading."""
        self.readings.append((target, reading))

    def sample(self, target: str, sample: Sample) -> None:
        """Keeps a sample."""
        self.samples.append((target, sample))

    def signal(self, report: SignalReport) -> None:
        """Keeps a report of a source."""
        self.signals.append(report)

    def gpu(self, report: GpuReport) -> None:
        """Keeps a report of a GPU."""
        self.gpus.append(report)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counts[name] += by

    def warn(self, key: str, text: str) -> None:
        """Keeps the newest text of a key; an empty one takes it back."""
        self.warnings.pop(key, None)
        if text:
            self.warnings[key] = text

    def values(self, target: str = "default") -> dict[SignalKind, float]:
        """The newest value of each kind that a target got."""
        return {reading.kind: reading.value for to, reading in self.readings if to == target}

    def clear(self) -> None:
        """Forgets everything but the warnings."""
        self.readings.clear()
        self.samples.clear()
        self.signals.clear()
        self.gpus.clear()
        self.counts.clear()
