"""Runs the NVML receiver and prints everything it emits as lines of JSON; for the tests beside it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from admission.core.model import Reading
from telemetry.config import TargetBinding
from telemetry.link import GpuReport, SignalReport
from telemetry.receivers.nvml import NvmlReceiver


class Printing:
    """An Emit that prints."""

    def reading(self, _target: str, reading: Reading) -> None:
        """A reading by its name."""
        self._print(reading=reading.kind.name, value=reading.value, member=reading.member)

    def gpu(self, report: GpuReport) -> None:
        """A GPU."""
        self._print(gpu=asdict(report))

    def signal(self, report: SignalReport) -> None:
        """A source."""
        self._print(signal=asdict(report))

    def warn(self, key: str, text: str) -> None:
        """A warning that stands."""
        if text:
            self._print(warn=key, text=text)

    def sample(self, *_: object) -> None:
        """Never comes from GPUs."""

    def count(self, *_: object) -> None:
        """Not of interest here."""

    @staticmethod
    def _print(**line: object) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(NvmlReceiver((TargetBinding(),), interval_s=0.05).run(Printing()))
