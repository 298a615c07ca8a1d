"""Telemetry as an application runs it, and what arrives at its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from admission.core.model import Reading, Sample
from telemetry.config import TargetBinding, TelemetryConfig
from telemetry.link import TelemetryView
from telemetry.process import Telemetry

WAIT_S = 20.0
QUIET = TelemetryConfig(
    targets=(TargetBinding(metrics_urls=()),),
    otlp_grpc="127.0.0.1:0",
    otlp_http="127.0.0.1:0",
    nvml=False,
)
"""Nothing but the two OTLP listeners, on ports of their own."""


class Sink:
    """Keeps everything, and wakes whoever waits for something."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.samples: list[Sample] = []
        self.views: list[TelemetryView] = [TelemetryView()]
        self._changed = asyncio.Event()

    def reading(self, target: str, reading: Reading) -> None:
        """Keeps it."""
        self.readings.append(reading)
        self._changed.set()

    def sample(self, target: str, sample: Sample) -> None:
        """Keeps it."""
        self.samples.append(sample)
        self._changed.set()

    def view(self, view: TelemetryView) -> None:
        """Keeps it."""
        self.views.append(view)
        self._changed.set()

    @property
    def last(self) -> TelemetryView:
        """The newest view."""
        return self.views[-1]

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits for something to be so. Raises TimeoutError after 20 s."""
        async with asyncio.timeout(WAIT_S):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def ports(self) -> tuple[int, int]:
        """Of OTLP over gRPC and HTTP, once both listen."""
        await self.until(lambda: len(self.last.ports) == 2)
        return self.last.ports["otlp_grpc"], self.last.ports["otlp_http"]


@asynccontextmanager
async def running(
    config: TelemetryConfig = QUIET, **changes: object
) -> AsyncIterator[tuple[Telemetry, Sink]]:
    """Telemetry from start to stop."""
    sink = Sink()
    telemetry = Telemetry(replace(config, **changes), sink)  # type: ignore[arg-type]
    await telemetry.start()
    try:
        yield telemetry, sink
    finally:
        await telemetry.stop()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
