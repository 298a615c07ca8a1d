"""One observation of GPUs as OTLP metrics with the names of the semantic conventions for hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from admission.wire.otlp_metrics_pb2 import (
    Gauge,
    Metric,
    MetricsRequest,
    NumberPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from admission.wire.otlp_pb2 import AnyValue, Resource, Scope
from telemetry.receivers.nvml_sampler import GpuSample, Observation

SCOPE = "tidegate.agent"
_CUMULATIVE = 2
_STATES = {"ok": "ok", "degraded": "degraded", "lost": "failed"}


def request_for(
    observation: Observation, host: str, attributes: Mapping[str, str], wall_ns: int
) -> MetricsRequest:
    """Everything that the observation has. What it has not is not in it; a lost GPU has its status only."""
    resource = {**attributes, "host.name": host}
    metrics = [metric for gpu in observation.gpus for metric in _metrics(gpu, wall_ns)]
    return MetricsRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=Resource(attributes=_attributes(resource)),
                scope_metrics=[ScopeMetrics(scope=Scope(name=SCOPE), metrics=metrics)],
            )
        ]
    )


def _metrics(gpu: GpuSample, wall_ns: int) -> Iterator[Metric]:
    own = {"hw.id": gpu.uuid, "hw.name": gpu.name, "hw.vendor": "NVIDIA", "hw.type": "gpu"}
    now = _STATES[gpu.state]
    states = [_point(float(state == now), {**own, "hw.state": state}, wall_ns) for state in _STATES.values()]
    yield _level("hw.status", "1", states)
    if gpu.memory is not None:
        # Used here is all that is not free, so that limit minus usage is what can still be had.
        taken = gpu.memory.total - gpu.memory.free
        yield _level("hw.gpu.memory.usage", "By", [_point(taken, own, wall_ns)])
        yield _level("hw.gpu.memory.limit", "By", [_point(gpu.memory.total, own, wall_ns)])
    if gpu.utilization_ratio is not None:
        general = {**own, "hw.gpu.task": "general"}
        yield _gauge("hw.gpu.utilization", "1", _point(gpu.utilization_ratio, general, wall_ns))
    if gpu.power_w is not None:
        yield _gauge("hw.power", "W", _point(gpu.power_w, own, wall_ns))
    if gpu.temperature_c is not None:
        yield _gauge("hw.temperature", "Cel", _point(gpu.temperature_c, own, wall_ns))


def _point(value: float, attributes: Mapping[str, str], wall_ns: int) -> NumberPoint:
    point = NumberPoint(time_unix_nano=wall_ns, attributes=_attributes(attributes))
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    return point


def _gauge(name: str, unit: str, point: NumberPoint) -> Metric:
    return Metric(name=name, unit=unit, gauge=Gauge(data_points=[point]))


def _level(name: str, unit: str, points: list[NumberPoint]) -> Metric:
    """What the conventions call an UpDownCounter."""
    data = Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=False)
    return Metric(name=name, unit=unit, sum=data)


def _attributes(values: Mapping[str, str]) -> dict[str, AnyValue]:
    return {key: AnyValue(string_value=value) for key, value in values.items()}
