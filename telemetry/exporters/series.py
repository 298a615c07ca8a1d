"""Counts and histograms that cost little to feed, with a bound on how many label sets they hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]

OTHER = "other"


class Counts:
    """A counter by labels. Label sets beyond `most` are counted together under `other`."""

    def __init__(self, name: str, text: str, labels: Sequence[str], most: int = 2048) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._most = most
        self._totals: dict[Labels, int] = {}
        self._exemplars: dict[Labels, Exemplar] = {}

    def add(self, labels: Labels, by: int = 1, trace_id: str = "") -> None:
        """Counts `by` under the labels; the last trace seen becomes the exemplar."""
        total = self._totals.get(labels)
        if total is None:
            if len(self._totals) >= self._most:
                labels = (OTHER,) * len(labels)
            total = self._totals.get(labels, 0)
        self._totals[labels] = total + by
        if trace_id:
            self._exemplars[labels] = Exemplar({"trace_id": trace_id}, by)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counter as Prometheus sees it."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, total in self._totals.items():
            family.add_metric(labels, total, exemplar=self._exemplars.get(labels))
        yield family


class _Histogram:
    __slots__ = ("counts", "exemplars", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.exemplars: dict[int, Exemplar] = {}
        self.total = 0.0


class Histograms:
    """A histogram by labels, in seconds. Label sets beyond `most` are observed together under `other`."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], most: int = 512
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._most = most
        self._series: dict[Labels, _Histogram] = {}

    def observe(self, labels: Labels, seconds: float, trace_id: str = "") -> None:
        """One value; the last trace seen in a bucket becomes its exemplar."""
        series = self._series.get(labels) or self._new(labels)
        at = bisect_left(self._bounds, seconds)
        series.counts[at] += 1
        series.total += seconds
        if trace_id:
            series.exemplars[at] = Exemplar({"trace_id": trace_id}, seconds)

    def _new(self, labels: Labels) -> _Histogram:
        if len(self._series) >= self._most:
            labels = (OTHER,) * len(labels)
        return self._series.setdefault(labels, _Histogram(len(self._bounds)))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram as Prometheus sees it: cumulative buckets."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        marks = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, series in self._series.items():
            buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
            below = 0
            for at, mark in enumerate(marks):
                below += series.counts[at]
                exemplar = series.exemplars.get(at)
                buckets.append((mark, below, exemplar) if exemplar else (mark, below))
            family.add_metric(labels, buckets, series.total)
        yield family
