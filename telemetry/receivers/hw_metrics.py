"""OTLP metrics to readings: GPUs by semantic convention, from agents, and engine load that a Collector scraped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from admission.core.model import Reading
from admission.vocabulary import SignalKind, Source
from admission.wire.otlp_metrics_pb2 import HistogramPoint, Metric, MetricsRequest
from telemetry.config import TargetBinding
from telemetry.link import GpuReport
from telemetry.processors.binding import Binder
from telemetry.receivers.engines import PageSample, best_of, discover
from telemetry.receivers.metric_points import Point, points, text_of, value_of
from telemetry.receivers.otlp_intake import ACCEPTED, Answer
from telemetry.receivers.otlp_spans import Batch

MAX_GPUS = 1024
MAX_UNBOUND = 64


@dataclass(slots=True)
class _Told:
    """What one payload says about one GPU."""

    name: str
    host: str
    values: dict[str, float] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)


class OtlpMetrics:
    """Everything known about metrics between payloads. All of it is bounded.

    `sampled` says whether this process samples a GPU itself, `scraped` whether it scrapes a target itself: what
    we measure ourselves is newer, and counting it twice would double the load.
    """

    def __init__(
        self,
        targets: Sequence[TargetBinding],
        *,
        host: str,
        sampled: Callable[[str], bool] = lambda _: False,
        scraped: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._targets = targets
        self._host = host
        self._sampled = sampled
        self._scraped = scraped
        self._binder = Binder(targets)
        self._by_place = {
            urlsplit(url).netloc.rpartition("@")[2]: target.name
            for target in targets
            for url in target.metrics_urls
        }
        self._wanted = _wanted_names()
        self._gpus: dict[tuple[str, bool], GpuReport] = {}
        self._engines: dict[str, None] = {}
        self.unbound: dict[str, None] = {}
        """GPUs and engines that belong to no target, by name."""

    def take(self, body: bytes, batch: Batch) -> Answer:
        """Reads one payload as it came. Raises DecodeError for what is not OTLP metrics."""
        self.read(MetricsRequest.FromString(body), batch)
        return ACCEPTED

    def read(self, request: MetricsRequest, batch: Batch) -> None:
        """Emits what a payload says. Points that are late, of a delta or without a value are counted and dropped."""
        for resource_metrics in request.resource_metrics:
            resource = {key: text_of(value) for key, value in resource_metrics.resource.attributes.items()}
            told: dict[str, _Told] = {}
            samples: list[PageSample] = []
            for metric, point in points(resource_metrics, batch):
                if metric.name.startswith("hw."):
                    _note_gpu(told, resource, metric.name, point)
                else:
                    samples += self._samples(metric, point)
            for uuid, gpu in told.items():
                self._tell_gpu(uuid, gpu, batch)
            if samples:
                self._tell_engine(resource, samples, batch)

    def _samples(self, metric: Metric, point: Point) -> list[PageSample]:
        kind = "histogram" if isinstance(point, HistogramPoint) else "number"
        name = self._wanted.get((kind, metric.name))
        if name is None:
            return []
        labels = {key: text_of(value) for key, value in point.attributes.items()}
        return [PageSample(name, labels, value_of(point))]

    def _tell_gpu(self, uuid: str, told: _Told, batch: Batch) -> None:
        if self._sampled(uuid):
            batch.emit.count("hw_metrics_sampled_here")
            return
        if not batch.steers and (uuid, True) in self._gpus:
            batch.emit.count("metrics_without_role")
            return
        report = self._report(uuid, batch)
        if report is None:
            return
        targets = self._gpu_targets(uuid, told.host)
        _fill(report, told, targets[0] if targets else "")
        batch.emit.gpu(replace(report))
        if not targets:
            self._note_unbound(f"GPU {uuid} on {told.host or 'an unknown host'}")
        elif not batch.steers:
            batch.emit.count("metrics_without_role")
        else:
            _tell_gpu_readings(report, told, targets, batch)

    def _report(self, uuid: str, batch: Batch) -> GpuReport | None:
        """What is known of a GPU, kept apart for senders without the role: they must not steer by halves either."""
        report = self._gpus.get((uuid, batch.steers))
        if report is None:
            if len(self._gpus) >= MAX_GPUS:
                batch.emit.count("hw_metrics_too_many_gpus")
                return None
            report = self._gpus[uuid, batch.steers] = GpuReport(uuid)
        return report

    def _gpu_targets(self, uuid: str, host: str) -> list[str]:
        local = host == self._host
        return [t.name for t in self._targets if uuid in t.gpus or (local and "all-local" in t.gpus)]

    def _tell_engine(self, resource: Mapping[str, str], samples: Sequence[PageSample], batch: Batch) -> None:
        member = _member(resource)
        engine, values = best_of(discover(), samples)
        up = min((sample.value for sample in samples if sample.name == "up"), default=1.0)
        if up == 0.0 and member not in self._engines:
            return  # some other job of the Collector is down
        if up and engine is None:
            return
        target = self._engine_target(member, resource, samples)
        if not target:
            self._note_unbound(f"engine {member}")
        elif not batch.steers:
            batch.emit.count("metrics_without_role")
        elif self._scraped(target):
            batch.emit.count("engine_metrics_scraped_here")
        else:
            if len(self._engines) < MAX_GPUS:
                self._engines[member] = None
            for kind, value in {SignalKind.ENGINE_UP: up, **(values if up else {})}.items():
                batch.emit.reading(target, Reading(kind, value, batch.at, Source.OTLP, member))

    def _engine_target(self, member: str, resource: Mapping[str, str], samples: Sequence[PageSample]) -> str:
        if member in self._by_place:
            return self._by_place[member]
        models = {sample.labels.get("model_name", "") for sample in samples} - {""}
        return self._binder.bind(member, resource, min(models, default=""))

    def _note_unbound(self, label: str) -> None:
        if len(self.unbound) < MAX_UNBOUND:
            self.unbound[label] = None


def _wanted_names() -> dict[tuple[str, str], str]:
    """(point type, metric name) to the name on the engine's own page; a Collector may cut the suffix off."""
    wanted = {("number", "up"): "up"}
    for engine in discover():
        for name in engine.names:
            wanted["number", name] = name
            if name.endswith("_total"):
                wanted["number", name.removesuffix("_total")] = name
            if name.endswith("_count"):
                wanted["histogram", name.removesuffix("_count")] = name
    return wanted


def _note_gpu(told: dict[str, _Told], resource: Mapping[str, str], name: str, point: Point) -> None:
    """Collects one point of a GPU. Other hardware and other names pass unread."""
    labels = {key: text_of(value) for key, value in point.attributes.items()}
    uuid = labels.get("hw.id", "")
    if not uuid or not (name.startswith("hw.gpu.") or labels.get("hw.type") == "gpu"):
        return
    if labels.get("hw.gpu.task", "general") != "general":
        return
    gpu = told.setdefault(uuid, _Told(labels.get("hw.name", ""), resource.get("host.name", "")))
    if name == "hw.status":
        gpu.states[labels.get("hw.state", "")] = value_of(point)
    elif value_of(point) >= 0.0:
        gpu.values[name] = value_of(point)


def _fill(report: GpuReport, told: _Told, target: str) -> None:
    """The newest values; a GPU that failed shows none."""
    values = told.values
    report.name, report.host, report.target = told.name or report.name, told.host, target
    report.state = _state(told.states) or report.state
    if report.state == "lost":
        report.memory_used_bytes = report.memory_free_bytes = report.utilization_ratio = None
        report.power_w = report.temperature_c = None
        return
    report.utilization_ratio = _ratio(values.get("hw.gpu.utilization"), report.utilization_ratio)
    report.power_w = values.get("hw.power", report.power_w)
    report.temperature_c = values.get("hw.temperature", report.temperature_c)
    if "hw.gpu.memory.limit" in values:
        report.memory_total_bytes = int(values["hw.gpu.memory.limit"])
    used, total = values.get("hw.gpu.memory.usage"), report.memory_total_bytes
    if used is not None and total is not None and used <= total:
        report.memory_used_bytes, report.memory_free_bytes = int(used), total - int(used)


def _ratio(value: float | None, otherwise: float | None) -> float | None:
    return value if value is not None and value <= 1.0 else otherwise


def _state(states: Mapping[str, float]) -> str:
    """The word of GpuReport, empty when this payload does not say."""
    if states.get("failed"):
        return "lost"
    if states.get("degraded"):
        return "degraded"
    return "ok" if states.get("ok") else ""


def _tell_gpu_readings(report: GpuReport, told: _Told, targets: Sequence[str], batch: Batch) -> None:
    values: dict[SignalKind, float | None] = {}
    if told.states:
        values[SignalKind.GPU_STATE] = 0.0 if report.state == "lost" else 1.0
    if report.state != "lost":
        values |= _measured(report, told.values)
    for target in targets:
        for kind, value in values.items():
            if value is not None:
                batch.emit.reading(target, Reading(kind, float(value), batch.at, Source.OTLP, report.uuid))


def _measured(report: GpuReport, values: Mapping[str, float]) -> dict[SignalKind, float | None]:
    """What this payload measured: a value from an earlier one is no new reading."""
    found: dict[SignalKind, float | None] = {}
    if "hw.gpu.memory.usage" in values:
        found[SignalKind.VRAM_USED_BYTES] = report.memory_used_bytes
        found[SignalKind.VRAM_FREE_BYTES] = report.memory_free_bytes
        found[SignalKind.VRAM_TOTAL_BYTES] = report.memory_total_bytes
    if "hw.gpu.utilization" in values:
        found[SignalKind.GPU_UTILIZATION_RATIO] = report.utilization_ratio
    found[SignalKind.GPU_POWER_W] = values.get("hw.power")
    found[SignalKind.GPU_TEMPERATURE_C] = values.get("hw.temperature")
    return found


def _member(resource: Mapping[str, str]) -> str:
    """The engine process: as a Collector names what it scraped, else by its address."""
    if resource.get("service.instance.id"):
        return resource["service.instance.id"]
    if resource.get("server.address"):
        port = resource.get("server.port", "")
        return resource["server.address"] + (f":{port}" if port else "")
    return resource.get("service.name", "") or "otlp"
