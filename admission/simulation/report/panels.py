"""The rows of the picture: which lines they hold, in which unit, and which promise they are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from admission.core.slo import SloConfig
from admission.simulation.report import palette
from admission.simulation.timeline import Moment

TOKENS, REQUESTS = "KV tokens", "requests"


@dataclass(frozen=True, slots=True)
class Series:
    """One line."""

    label: str
    colour: str
    value: Callable[[Moment], float | None]
    dashes: str = "-"
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A promise: what lies above the line breaks it."""

    label: str
    value: float


def no_unit(_: Sequence[Moment]) -> str:
    """Of panels whose unit is the same for every policy."""
    return ""


def unit_of_limit(moments: Sequence[Moment]) -> str:
    """A policy whose use is the number of its requests counts requests: in tokens each is more than one."""
    busy = [moment for moment in moments if moment.in_flight]
    return REQUESTS if all(moment.used == moment.in_flight for moment in busy) else TOKENS


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share a scale."""

    title: str
    """`{unit}` stands for the unit."""
    series: tuple[Series, ...]
    write: Callable[[float], str]
    mark: Mark | None = None
    log: bool = False
    top: float | None = None
    """Where the scale ends whatever the values; None: at the largest of any policy."""
    unit: Callable[[Sequence[Moment]], str] = no_unit
    without: str = ""
    """The title when a policy has nothing for the last line, before the unit or what lies above; empty: the same."""
    of_requests: bool = False
    """It counts requests, of which a row needs some, and so has fewer points than the state of an engine."""

    headroom: float = math.inf
    """The scale ends at so many times the largest value of the first line, when another line would take it further."""

    def ceiling(self, columns: Sequence[Sequence[Moment]]) -> float:
        """Where the scale of columns that share one ends; those without the last line follow those that have it."""
        if self.top is not None:
            return self.top
        if self.without:
            columns = [moments for moments in columns if self._has_last(moments)] or columns
        values = [self._most(series, moments) for series in self.series for moments in columns]
        first = max((self._most(self.series[0], moments) for moments in columns), default=0.0)
        most = max([*values, self.mark.value if self.mark else 0.0])
        return (min(most, self.headroom * first) if first else most) or 1.0

    def floor(self, columns: Sequence[Sequence[Moment]], ceiling: float) -> float:
        """Where a logarithmic scale of columns that share one begins."""
        lines = [series.value(moment) for series in self.series for one in columns for moment in one]
        found = [value for value in lines if value is not None]
        return min(found, default=ceiling / 10)

    def titled(self, moments: Sequence[Moment], ceiling: float) -> str:
        """The title above a policy; it tells of what lies above the scale."""
        unit, bounded = self.unit(moments), not self.without or self._has_last(moments)
        most = self._most(self.series[-1 if bounded else 0], moments)
        above = f" (up to {self.write(most)})" if most > ceiling else ""
        if bounded:
            return self.title.format(unit=unit) + above
        return self.without + (above or f", {unit}")

    def _has_last(self, moments: Sequence[Moment]) -> bool:
        return any(self.series[-1].value(moment) is not None for moment in moments)

    @staticmethod
    def _most(series: Series, moments: Sequence[Moment]) -> float:
        return max((value for moment in moments if (value := series.value(moment)) is not None), default=0.0)


def all_panels(slo: SloConfig) -> list[Panel]:
    """From what came of it to why: goodput, limit, requests, KV cache, latencies."""
    ttft = None if slo.ttft_s is None else Mark("SLO of a short prompt", slo.ttft_s)
    return [
        Panel(
            "Requests/s",
            (
                Series("offered", palette.LIMIT, _per_second("offered")),
                Series("refused", palette.REFUSED, _per_second("refused"), dashes=":"),
                Series("good", palette.USED, _per_second("good"), filled=True),
            ),
            amount,
            of_requests=True,
        ),
        Panel(
            "Limit, {unit}",
            (
                Series("in use", palette.USED, attrgetter("used"), filled=True),
                Series("limit", palette.INK, attrgetter("limit")),
            ),
            amount,
            unit=unit_of_limit,
            without="No limit",
            headroom=2.5,
        ),
        Panel(
            "Requests",
            (
                Series("in flight", palette.USED, attrgetter("in_flight"), filled=True),
                Series("queued", palette.HIGH, attrgetter("queued")),
                Series("engine's queue", palette.INK, attrgetter("engine_waiting"), dashes=":"),
            ),
            amount,
        ),
        Panel(
            "KV cache in use",
            (Series("in use", palette.USED, attrgetter("kv_ratio"), filled=True),),
            lambda value: f"{100 * value:.0f} %",
            top=1.0,
        ),
        Panel(
            "TTFT, seconds",
            (Series("p90", palette.USED, attrgetter("ttft_p90_s")),),
            lambda value: f"{value:g}",
            mark=ttft,
            log=True,
            of_requests=True,
        ),
        Panel(
            "TPOT, milliseconds",
            (Series("p90", palette.USED, attrgetter("tpot_p90_s")),),
            lambda value: f"{1000 * value:g}",
            mark=Mark("SLO", slo.tpot_s),
            of_requests=True,
        ),
    ]


def amount(value: float) -> str:
    """`150k`, `1.2M`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _per_second(name: str) -> Callable[[Moment], float]:
    count = attrgetter(name)
    return lambda moment: count(moment) / moment.for_s
