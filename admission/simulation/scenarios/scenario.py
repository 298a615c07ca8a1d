"""One scenario: what runs, what happens to it, who asks, and where admission must come out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Literal

from admission.core.slo import BACKGROUND_SLO, SloConfig
from admission.simulation.engine import EngineConfig
from admission.simulation.engines import load_engine
from admission.simulation.fleet import Noise
from admission.simulation.inputs.lengths import LengthsConfig
from admission.simulation.inputs.mixes import ComponentConfig
from admission.simulation.judging import Judge
from admission.simulation.scenarios.capacity import Mean, prefill_bound, work_bound
from admission.simulation.scenarios.traffic import FORBID, Recorded, drawn, usual
from admission.simulation.traces import Arrival
from admission.simulation.world import Callers, Disturbance, Member, Sight, WorldConfig
from admission.vocabulary import PriorityClass

_DRAWS, _FEW = 20_000, 1_000
CHAT = ComponentConfig(rate_per_s=1.0, lengths=LengthsConfig(shape="chat"))
"""Prompts and answers as long as in Azure's conversation trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """A calibrated engine, and what is different about this one."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    calibration: str = "a100-llama3-8b"
    kv_capacity_tokens: int | None = None
    max_num_seqs: int | None = None
    step_tokens: int | None = None
    slower: float = 1.0
    """Every step takes so many times as long."""

    def config(self) -> EngineConfig:
        """The engine model's constants.

        Raises:
            ValueError: no such calibration, or bounds that no engine could run with.
        """
        base = load_engine(self.calibration).scaled(1.0 / self.slower)
        names = ("kv_capacity_tokens", "max_num_seqs", "step_tokens")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(base, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """One engine of a pool."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    name: str
    engine: EngineSpec = field(default_factory=EngineSpec)
    role: Literal["both", "prefill", "decode"] = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a test holds the scenario against, and what it takes away to see it fail."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    measure: str
    """A figure's name in `measuring`."""
    of: str = ""
    """The class or tenant that it is about; empty: all."""
    against: str = ""
    """Divide by the same figure of this scenario, with the same policy and seed."""
    low: float = 0.0
    high: float = math.inf
    policy: str = "tidegate"
    """What is held to it, with settings where they matter."""
    without: str = ""
    """A policy that lacks what this guards: it must miss the band. Empty: another check of the scenario shows that."""
    seeds: tuple[int, ...] = (11,)
    benchmark: bool = False
    """Held in the benchmarks and not in every run of the tests: it takes too long, or is a goal that is not reached yet."""

    def __post_init__(self) -> None:
        """Raise ValueError for a band that holds nothing."""
        if not self.low <= self.high:
            raise ValueError(f"high must be at least low ({self.low}), not {self.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What one run needs but a policy and a seed."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    name: str = ""
    family: str = ""
    about: str
    engine: EngineSpec = field(default_factory=EngineSpec)
    members: tuple[MemberSpec, ...] = ()
    """Several engines behind one controller, in place of `engine`."""
    mix: tuple[ComponentConfig, ...] = (CHAT,)
    """Kinds of requests; their `rate_per_s` are shares of the scenario's rate."""
    recorded: Recorded | None = None
    """A recording in place of the mix."""
    capacity_per_s: float
    """Requests a second that the engine can carry of this mix: the work bound, as `capacity.py` computes it."""
    load: float = 1.0
    """Offered rate over that capacity."""
    drawn_as: str = ""
    """Draw the requests as the scenario of this name does, kind by kind: for pairs that differ in one thing."""
    duration_s: float = 150.0
    """Arrivals come for so long; those under way then may end."""
    warm_up_s: float = 20.0
    """Arrivals before this are not judged."""
    tail_s: float = 15.0
    """Nor those of the last so many seconds."""
    slo: dict[PriorityClass, SloConfig] = field(default_factory=lambda: dict(DEFAULT_SLO))
    callers: Callers = field(default_factory=Callers)
    sight: Sight = field(default_factory=Sight)
    disturbances: tuple[Disturbance, ...] = ()
    bursts: tuple[tuple[float, float], ...] = ()
    """Disturbances of the load itself: (from, until) in seconds."""
    noise: Noise = "none"
    sidecars: int = 1
    checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError when nothing would be judged or offered."""
        if not self.capacity_per_s > 0:
            raise ValueError(f"capacity_per_s must be over 0, not {self.capacity_per_s}")
        if not self.load > 0:
            raise ValueError(f"load must be over 0, not {self.load}")
        if not 0 <= self.warm_up_s < self.duration_s - self.tail_s:
            raise ValueError("warm_up_s and tail_s must leave something of duration_s to judge")
        if not self.mix:
            raise ValueError("mix must not be empty")

    def pool(self) -> tuple[Member, ...]:
        """The engines."""
        if not self.members:
            return (Member(engine=self.engine.config()),)
        return tuple(Member(engine=one.engine.config(), name=one.name, role=one.role) for one in self.members)

    def world(self) -> WorldConfig:
        """Everything around the policy."""
        return WorldConfig(
            members=self.pool(),
            callers=self.callers,
            sight=self.sight,
            disturbances=self.disturbances,
            noise=self.noise,
            sidecars=self.sidecars,
        )

    def arrivals(self, seed: int, load: float = 1.0) -> Iterator[Arrival]:
        """The requests, lazily, in time order; `load` comes on top of the scenario's own."""
        rate = self.capacity_per_s * self.load * load
        if self.recorded is not None:
            return self.recorded.arrivals(rate, self.duration_s, seed)
        return drawn(self.mix, rate, self.duration_s, seed, self.drawn_as or self.name)

    def judge(self) -> Judge:
        """An empty verdict over the span that counts."""
        return Judge(
            self.slo,
            from_s=self.warm_up_s,
            until_s=self.duration_s - self.tail_s,
            disturbances=sorted([*self.bursts, *map(_span, self.disturbances)]),
        )

    def changes_for_good(self) -> list[tuple[float, float]]:
        """Those disturbances after which nothing is as it was: of the load at one instant, or a member lost."""
        lost = [_span(each) for each in self.disturbances if math.isinf(each.span[1])]
        return [*(burst for burst in self.bursts if burst[0] == burst[1]), *lost]

    def ttft_slo_s(self) -> float:
        """What the longest of its interactive prompts may take to its first token."""
        slo = self.slo[PriorityClass.INTERACTIVE]
        if not slo.ttft_per_1k_s:
            return slo.ttft_s or math.inf
        return max(slo.ttft_for(one.prompt_tokens) or math.inf for one in usual(self.mix, _FEW))

    def mean(self) -> Mean:
        """Mean sizes, as they are before anything changes."""
        key = repr((self.mix, self.recorded))
        if key not in _means:
            rows = self.recorded.rows() if self.recorded is not None else usual(self.mix, _DRAWS)
            _means[key] = Mean.of(rows)
        return _means[key]

    def work_bound_per_s(self) -> float:
        """Requests a second that its engines can carry of this mix at most."""
        mean, tpot_s = self.mean(), self.slo[PriorityClass.INTERACTIVE].tpot_s
        pool = self.pool()
        both = sum(work_bound(one.engine, mean, tpot_s) for one in pool if one.role == "both")
        decode = sum(
            work_bound(one.engine, replace(mean, prompt=0.0), tpot_s) for one in pool if one.role == "decode"
        )
        prefill = sum(prefill_bound(one.engine, mean) for one in pool if one.role == "prefill")
        return both + min(prefill, decode)

    def digest(self) -> str:
        """Twelve characters that change with anything that changes a run, the engine's constants included."""
        engines = [asdict(member.engine) for member in self.pool()]
        text = json.dumps([_plain(replace(self, checks=(), about="")), engines], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_means: dict[str, Mean] = {}
"""Most scenarios share a mix, and drawing thousands of requests takes a while."""
DEFAULT_SLO: Mapping[PriorityClass, SloConfig] = {
    PriorityClass.INTERACTIVE: SloConfig(ttft_s=2.0, ttft_per_1k_s=0.0, tpot_s=0.08),
    PriorityClass.BATCH: BACKGROUND_SLO,
    PriorityClass.INTERNAL: BACKGROUND_SLO,
}
"""TTFT 2 s whatever the prompt, mean TPOT 80 ms."""


def _span(disturbance: Disturbance) -> tuple[float, float]:
    """What never ends is over as soon as it has happened: it is the new normal."""
    start, end = disturbance.span
    return (start, start) if math.isinf(end) else (start, end)


def _plain(scenario: Scenario) -> dict[str, object]:
    plain = asdict(scenario)
    plain["slo"] = {int(rank): slo for rank, slo in plain["slo"].items()}
    plain["disturbances"] = [
        (type(one).__name__, values)
        for one, values in zip(scenario.disturbances, plain["disturbances"], strict=True)
    ]
    return plain
