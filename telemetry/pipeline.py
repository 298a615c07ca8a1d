"""All receivers and processors as one thing: a configuration in; readings, samples and a view each second out."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from admission.core.model import Reading, Sample
from admission.vocabulary import SignalKind, Source
from telemetry.config import TelemetryConfig
from telemetry.link import GpuReport, SignalReport, TelemetrySink, TelemetryView
from telemetry.processors.staleness import Staleness
from telemetry.receivers import Receiver
from telemetry.receivers.hw_metrics import OtlpMetrics
from telemetry.receivers.nvml import NvmlReceiver
from telemetry.receivers.otlp import MAX_BYTES, MIB, OtlpGrpcReceiver
from telemetry.receivers.otlp_http import OtlpHttpReceiver
from telemetry.receivers.otlp_intake import Intake
from telemetry.receivers.otlp_spans import SpanReader
from telemetry.receivers.scrape import EXPECTED, ScrapeReceiver

MAX_WARNINGS = 64
MAX_GPUS = 1024
MAX_COUNTERS = 1024
VIEW_EVERY_S = 1.0
RETRY_S = (1.0, 30.0)
LOST_GPU_S = 3600.0
SCRAPED_S = 10.0


class Collector:
    """The Emit of all receivers: readings and samples go on to the sink at once, the rest waits for the view."""

    def __init__(self, sink: TelemetrySink, staleness: Staleness, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._staleness = staleness
        self._clock = clock
        self._gpus: OrderedDict[str, tuple[GpuReport, float]] = OrderedDict()
        self._scraped_at: dict[str, float] = {}
        self.counters: dict[str, int] = {}
        self.warnings: dict[str, str] = {}

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value of a target."""
        if reading.kind is SignalKind.ENGINE_UP and reading.source is Source.SCRAPE and reading.value:
            self._scraped_at[target] = reading.at
        self._staleness.saw(target, reading)
        self._sink.reading(target, reading)

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request."""
        self._sink.sample(target, sample)

    def signal(self, report: SignalReport) -> None:
        """How a source itself is doing."""
        self._staleness.note(report)

    def gpu(self, report: GpuReport) -> None:
        """The newest state of one GPU."""
        self._gpus[report.uuid] = (report, self._clock())
        self._gpus.move_to_end(report.uuid)
        if len(self._gpus) > MAX_GPUS:
            self._gpus.popitem(last=False)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        if name in self.counters or len(self.counters) < MAX_COUNTERS:
            self.counters[name] = self.counters.get(name, 0) + by

    def warn(self, key: str, text: str) -> None:
        """One line for people under a key; an empty text takes it back."""
        if not text:
            self.warnings.pop(key, None)
        elif key in self.warnings or len(self.warnings) < MAX_WARNINGS:
            self.warnings[key] = text

    def scraped(self, target: str) -> bool:
        """Whether a scrape of ours reached the target's engine lately: what a Collector relays is then a copy."""
        at = self._scraped_at.get(target)
        return at is not None and self._clock() - at < SCRAPED_S

    def gpus(self, now: float) -> list[GpuReport]:
        """Every GPU with its age; one that was not heard of for an hour is forgotten."""
        for uuid in [uuid for uuid, (_, at) in self._gpus.items() if now - at > LOST_GPU_S]:
            del self._gpus[uuid]
        return [replace(report, age_s=report.age_s + now - at) for report, at in self._gpus.values()]


class Pipeline:
    """Runs until cancelled. A receiver that fails is reported and started again; it takes no other with it."""

    def __init__(
        self, config: TelemetryConfig, sink: TelemetrySink, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._sink = sink
        self._clock = clock
        self._staleness = Staleness()
        self._collector = Collector(sink, self._staleness, clock)
        self._spans = SpanReader(config.targets)
        self._nvml = NvmlReceiver(config.targets, interval_s=config.nvml_interval_s) if config.nvml else None
        self._metrics = self._metrics_reader()
        self._receivers = self._build()
        for target in config.targets:
            if target.metrics_urls:
                self._staleness.expect(target.name, EXPECTED, Source.SCRAPE)

    async def run(self) -> None:
        """Receives until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for receiver in self._receivers:
                tasks.create_task(self._keep(receiver), name=receiver.name)
            tasks.create_task(self._show(), name="view")

    def view(self, dropped: int = 0) -> TelemetryView:
        """Everything as it is now."""
        now = self._clock()
        ports = {receiver.name: getattr(receiver, "port", 0) for receiver in self._receivers}
        counters = {**self._collector.counters, **self._spans.lateness.counters()}
        counters["link_dropped"] = dropped
        return TelemetryView(
            gpus=self._collector.gpus(now),
            signals=self._staleness.reports(now),
            unbound=[
                *self._spans.unbound,
                *self._metrics.unbound,
                *(self._nvml.unbound if self._nvml else ()),
            ],
            emitters=self._spans.primaries.shown(),
            counters=counters,
            ports={name: port for name, port in ports.items() if port},
            warnings=[*self._collector.warnings.values(), *self._spans.lateness.warnings(now)],
        )

    def _metrics_reader(self) -> OtlpMetrics:
        return OtlpMetrics(
            self._config.targets,
            host=socket.gethostname(),
            sampled=self._nvml.knows if self._nvml is not None else lambda _: False,
            scraped=self._collector.scraped,
        )

    def _build(self) -> Sequence[Receiver]:
        """In slices of one loop with the admission core, payloads are bounded by what one parse may take."""
        config = self._config
        max_bytes, slice_of = (4 * MIB, 16) if config.in_process else (MAX_BYTES, 256)
        intake = Intake(self._spans, self._metrics.take, slice_of=slice_of)
        receivers: list[Receiver] = [intake]
        if config.otlp_grpc:
            receivers.append(OtlpGrpcReceiver(config, intake, max_bytes=max_bytes))
        if config.otlp_http:
            receivers.append(OtlpHttpReceiver(config, intake, max_bytes=max_bytes))
        if any(target.metrics_urls for target in config.targets):
            receivers.append(ScrapeReceiver(config.targets, interval_s=config.scrape_interval_s))
        if self._nvml is not None:
            receivers.append(self._nvml)
        return receivers

    async def _keep(self, receiver: Receiver) -> None:
        pause_s, longest_s = RETRY_S
        while True:
            try:
                await receiver.run(self._collector)
            except Exception as error:  # noqa: BLE001 - whatever it was, the others go on
                self._collector.count("receiver_failures")
                self._collector.warn(receiver.name, f"{receiver.name}: {error or type(error).__name__}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _show(self) -> None:
        while True:
            self._sink.view(self.view(getattr(self._sink, "dropped", 0)))
            await asyncio.sleep(VIEW_EVERY_S)
