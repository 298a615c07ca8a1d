"""The points of an OTLP metrics payload that say something: cumulative, with a value, of now."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from admission.wire.otlp_metrics_pb2 import HistogramPoint, Metric, NumberPoint, ResourceMetrics
from admission.wire.otlp_pb2 import AnyValue
from telemetry.receivers.otlp_spans import Batch

LATE_S = 30.0
_DELTA = 1
_NO_VALUE = 1

Point = NumberPoint | HistogramPoint


def points(resource_metrics: ResourceMetrics, batch: Batch) -> Iterator[tuple[Metric, Point]]:
    """The usable points with their metrics; the others are counted by what is wrong with them."""
    for scope_metrics in resource_metrics.scope_metrics:
        for metric in scope_metrics.metrics:
            points = _points_of(metric)
            batch.emit.count("metric_points_received", len(points))
            for point in points:
                problem = _unusable(metric, point, batch)
                if problem:
                    batch.emit.count(problem)
                else:
                    yield metric, point


def _points_of(metric: Metric) -> Sequence[Point]:
    data = metric.WhichOneof("data")
    if data == "gauge":
        return metric.gauge.data_points
    if data == "sum":
        return metric.sum.data_points
    return metric.histogram.data_points


def _unusable(metric: Metric, point: Point, batch: Batch) -> str:
    if _DELTA in {metric.sum.aggregation_temporality, metric.histogram.aggregation_temporality}:
        return "metric_points_delta"
    if point.flags & _NO_VALUE or not math.isfinite(value_of(point)):
        return "metric_points_without_value"
    if point.time_unix_nano and (batch.wall_ns - point.time_unix_nano) / 1e9 > LATE_S:
        return "metric_points_late"
    return ""


def value_of(point: Point) -> float:
    """The value of a number, the count of a histogram; NaN for a number without a value."""
    if isinstance(point, HistogramPoint):
        return float(point.count)
    kind = point.WhichOneof("value")
    if kind is None:
        return math.nan
    return float(point.as_int if kind == "as_int" else point.as_double)


def text_of(value: AnyValue) -> str:
    """An attribute as text of at most 256 characters."""
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))[:256]
