"""What an engine calls its load metrics: one file per engine, each with a table named ENGINE, found by discovery."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import NamedTuple

from admission.vocabulary import EngineKind, SignalKind


class PageSample(NamedTuple):
    """One line of a metrics page, or one data point that a Collector relayed under the same name."""

    name: str
    labels: Mapping[str, str]
    value: float


class Combine(Enum):
    """How the values of several ranks or label sets become one value of the engine."""

    SUM = "sum"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric name. A sample that has a label of `only` with another value is no part of the total."""

    name: str
    combine: Combine = Combine.SUM
    only: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNames:
    """The names of one engine. For each signal the first name that the page has is used: newest first."""

    kind: EngineKind
    prefix: str
    signals: Mapping[SignalKind, tuple[Metric, ...]]
    copies: frozenset[str] = frozenset()
    """Labels whose values are copies of the same number (tensor-parallel ranks): the largest counts, not the sum."""
    capacity_name: str = ""
    capacity: Callable[[Sequence[PageSample]], float | None] | None = None
    """KV tokens of all engines on the page, from the samples of `capacity_name`; for engines whose labels tell it."""

    @property
    def names(self) -> frozenset[str]:
        """Every sample name that is read."""
        known = {metric.name for metrics in self.signals.values() for metric in metrics}
        return frozenset(known | {self.capacity_name} - {""})


class Extracted(NamedTuple):
    """The signals of one engine, and how many values were no possible values of theirs."""

    values: dict[SignalKind, float]
    invalid: int


@cache
def discover() -> tuple[EngineNames, ...]:
    """Every table of this package, by module name. Raises AttributeError for a module without ENGINE."""
    found = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").ENGINE for name in found)


def extract(engine: EngineNames, samples: Sequence[PageSample]) -> Extracted:
    """Reads the signals of `engine` out of samples. A signal without a possible value is absent, never 0."""
    possible = [sample for sample in samples if _possible(sample)]
    by_name: dict[str, list[PageSample]] = {}
    for sample in possible:
        by_name.setdefault(sample.name, []).append(sample)
    values: dict[SignalKind, float] = {}
    for kind, metrics in engine.signals.items():
        value = _first(engine, metrics, by_name)
        if value is not None:
            values[kind] = value
    if engine.capacity is not None:
        capacity = engine.capacity(by_name.get(engine.capacity_name, ()))
        if capacity is not None:
            values[SignalKind.KV_CAPACITY_TOKENS] = capacity
    invalid = len(samples) - len(possible)
    if values.get(SignalKind.KV_USAGE_RATIO, 0.0) > 1.0:
        invalid += _no_ratio(values)
    return Extracted(values, invalid)


def best_of(
    engines: Iterable[EngineNames], samples: Sequence[PageSample]
) -> tuple[EngineNames | None, dict[SignalKind, float]]:
    """The engine that most of the samples belong to, and its signals; None when they belong to none."""
    best: EngineNames | None = None
    values: dict[SignalKind, float] = {}
    for engine in engines:
        found = extract(engine, [sample for sample in samples if sample.name in engine.names]).values
        if len(found) > len(values):
            best, values = engine, found
    return best, values


def _possible(sample: PageSample) -> bool:
    return math.isfinite(sample.value) and sample.value >= 0.0


def _no_ratio(values: dict[SignalKind, float]) -> int:
    """Rounding just above 1 is 1; a percentage or worse is no value at all."""
    if values[SignalKind.KV_USAGE_RATIO] <= 1.01:
        values[SignalKind.KV_USAGE_RATIO] = 1.0
        return 0
    del values[SignalKind.KV_USAGE_RATIO]
    return 1


def _first(
    engine: EngineNames, metrics: Iterable[Metric], by_name: Mapping[str, list[PageSample]]
) -> float | None:
    for metric in metrics:
        counted = [sample for sample in by_name.get(metric.name, ()) if _counts(metric, sample.labels)]
        if counted:
            return _combined(engine, metric, counted)
    return None


def _counts(metric: Metric, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name, wanted) == wanted for name, wanted in metric.only.items())


def _combined(engine: EngineNames, metric: Metric, samples: Sequence[PageSample]) -> float:
    if metric.combine is Combine.WORST:
        return max(sample.value for sample in samples)
    groups: dict[frozenset[tuple[str, str]], float] = {}
    for sample in samples:
        key = frozenset(pair for pair in sample.labels.items() if pair[0] not in engine.copies)
        groups[key] = max(groups.get(key, 0.0), sample.value)
    return sum(groups.values())
