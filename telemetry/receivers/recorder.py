"""An Emit that keeps everything, for tests."""

from __future__ import annotations

from collections import Counter

from admission.core.model import Reading, Sample
from telemetry.link import GpuReport, SignalReport


class Recorder:
    """What receivers emitted, in order."""

    def __init__(self) -> None:
        self.readings: list[tuple[str, Reading]] = []
        self.samples: list[tuple[str, Sample]] = []
        self.signals: dict[tuple[str, str, str], SignalReport] = {}
        self.gpus: dict[str, GpuReport] = {}
        self.counters: Counter[str] = Counter()
        self.warnings: dict[str, str] = {}

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value."""
        self.readings.append((target, reading))

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request."""
        self.samples.append((target, sample))

    def signal(self, report: SignalReport) -> None:
        """How a source itself is doing."""
        self.signals[report.target, report.name, report.source] = report

    def gpu(self, report: GpuReport) -> None:
        """The newest state of one GPU."""
        self.gpus[report.uuid] = report

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counters[name] += by

    def warn(self, key: str, text: str) -> None:
        """One line for people; an empty text takes it back."""
        if text:
            self.warnings[key] = text
        else:
            self.warnings.pop(key, None)
