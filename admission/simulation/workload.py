"""Traffic by name: which trace, mix or journal, which part of it, how fast; the requests are made where they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from admission.core.slo import SloConfig
from admission.simulation.engine import EngineConfig
from admission.simulation.inputs.shaping import cut, faster, loaded
from admission.simulation.judging import Judge
from admission.simulation.traces import Arrival, TraceError, shipped_stream, stream
from admission.simulation.world import Member, WorldConfig
from admission.vocabulary import PriorityClass

if TYPE_CHECKING:
    from admission.simulation.inputs.mixes import MixConfig

MIX_S = 120.0
"""How long a mix runs that nobody says otherwise of."""
NEIGHBOURS = 64
"""Requests in a row that may swap places on other seeds."""


class Kind(StrEnum):
    """Where requests come from."""

    SHIPPED = "shipped"
    TRACE = "trace"
    MIX = "mix"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A source of requests and what is done with it. Picklable and small: no requests are in it."""

    kind: Kind = Kind.SHIPPED
    name: str = ""
    """A name or a path."""
    target: str = ""
    """Of a journal: the requests of this target only; empty: all."""
    window: tuple[float, float] | None = None
    """(start, length) in seconds of the recording; None: all of it."""
    speed: float = 1.0
    """Recorded seconds in one simulated second."""
    factor: float = 1.0
    """On the rate: more or fewer of such requests, at the same rhythm."""
    duration_s: float | None = None
    """Of simulated time; None: all of a recording, `MIX_S` of a mix."""

    def arrivals(self, seed: int = 0, load: float = 1.0) -> Iterator[Arrival]:
        """The requests in time order, read and made while they are taken.

        A recording is itself on seed 0. On other seeds the requests keep their moments, and swap sizes with their
        neighbours: without that, a difference between policies could not be told from luck.

        Raises:
            TraceError: what is wrong with the recording, when its row is reached.
        """
        if self.kind is Kind.MIX:
            mix = replace(mix_named(self.name).scaled(self.factor * load), length_s=self.length_s)
            return mix.arrivals(seed)
        found = self.recorded()
        if seed:
            found = swapped(found, seed)
        found = loaded(found, self.factor * load, seed)
        if self.duration_s is not None:
            found = cut(found, 0.0, self.duration_s)
        return map(answered, found)

    def _rows(self) -> Iterator[Arrival]:
        if self.kind is Kind.SHIPPED:
            return shipped_stream(self.name)
        if self.kind is Kind.JOURNAL:
            from admission.simulation.inputs.journal_trace import JournalTrace  # noqa: PLC0415 - seldom needed

            return JournalTrace(Path(self.name), self.target or None).arrivals()
        return stream(Path(self.name))

    @property
    def length_s(self) -> float | None:
        """How long requests come for, in simulated seconds; None: as long as the recording has some."""
        if self.duration_s is not None or self.kind is not Kind.MIX:
            return self.duration_s
        return mix_named(self.name).length_s or MIX_S

    def recorded(self) -> Iterator[Arrival]:
        """The requests as recorded, in the window and at the speed that were asked for."""
        rows = self._rows()
        if self.window is not None:
            rows = cut(rows, *self.window)
        return faster(rows, self.speed) if self.speed != 1.0 else rows


def mix_named(name: str) -> MixConfig:
    """A mix that comes with the package, or from a file.

    Raises:
        TraceError: neither; one line.
    """
    from admission.simulation.inputs.mixes import load_mix, shipped_mix, shipped_mixes  # noqa: PLC0415 - takes a while

    if name in shipped_mixes():
        return shipped_mix(name)
    if not Path(name).exists():
        raise TraceError(f"no mix {name!r}: neither a file nor one of {', '.join(shipped_mixes())}")
    return load_mix(Path(name))


def swapped(arrivals: Iterable[Arrival], seed: int) -> Iterator[Arrival]:
    """The same moments, with what comes at them shuffled among neighbours."""
    random = Random(f"swapped-{seed}")  # noqa: S311 - simulation
    rest = iter(arrivals)
    while group := list(islice(rest, NEIGHBOURS)):
        order = group.copy()
        random.shuffle(order)
        for moment, what in zip(group, order, strict=True):
            yield what.at(moment.at_s)


def answered(arrival: Arrival) -> Arrival:
    """With at least one token of answer: an engine gives no less."""
    return arrival if arrival.output_tokens else replace(arrival, output_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Traffic in front of one kind of engine: the setup that people put together on the command line."""

    traffic: Traffic = field(default_factory=Traffic)
    engine: EngineConfig = field(default_factory=EngineConfig)
    replicas: int = 1
    slo: Mapping[PriorityClass, SloConfig] = field(default_factory=dict)
    around: WorldConfig = field(default_factory=WorldConfig)
    """Callers, sight and disturbances; its engine is not used."""
    warm_up_s: float = 0.0
    """Arrivals before this are played and not judged."""

    @property
    def until_s(self) -> float | None:
        """When all has settled."""
        return None

    def world(self) -> WorldConfig:
        """The engines, and what is around them."""
        return replace(self.around, members=(Member(engine=self.engine),) * self.replicas)

    def arrivals(self, seed: int, load: float) -> Iterator[Arrival]:
        """The requests in time order."""
        return self.traffic.arrivals(seed, load)

    def judge(self) -> Judge:
        """Everything after the warm-up counts."""
        return Judge(self.slo, from_s=self.warm_up_s)
