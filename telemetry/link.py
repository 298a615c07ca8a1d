"""What telemetry tells the admission loop: readings, samples, and once a second a view for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from admission.core.model import Reading, Sample


@dataclass(slots=True)
class GpuReport:
    """One GPU as last seen. Bytes, ratios of 0 to 1, watts, degrees Celsius; None: not known here."""

    uuid: str
    name: str = ""
    host: str = ""
    target: str = ""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilization_ratio: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    state: str = "ok"
    age_s: float = 0.0
    unsupported: list[str] = field(default_factory=list)
    clock_reasons: str = ""


@dataclass(slots=True)
class SignalReport:
    """One signal: its state, age, observed interval and range. Seconds; values in the signal's own unit."""

    target: str
    name: str
    source: str
    state: str
    age_s: float | None = None
    interval_s: float | None = None
    last: float | None = None
    lowest: float | None = None
    highest: float | None = None
    warning: str = ""
    count: int = 0


@dataclass(slots=True)
class TelemetryView:
    """What telemetry sees, for status and dashboard. Every list and map is bounded."""

    gpus: list[GpuReport] = field(default_factory=list)
    signals: list[SignalReport] = field(default_factory=list)
    unbound: list[str] = field(default_factory=list)
    """Where spans and GPUs come from that belong to no target."""
    emitters: dict[str, str] = field(default_factory=dict)
    """The primary span emitter of each target."""
    counters: dict[str, int] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """The ports that listen: `otlp_grpc`, `otlp_http`."""
    warnings: list[str] = field(default_factory=list)


class TelemetrySink(Protocol):
    """Who wants to know? Called on the admission loop, a bounded number of times each wake-up."""

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value."""

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request of the target's primary emitter."""

    def view(self, view: TelemetryView) -> None:
        """Once a second: everything shown to people."""
