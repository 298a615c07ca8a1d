"""AIMD on KV tokens: additive increase while the budget binds, decrease in proportion to the excess of TPOT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from admission.core.limits.base import Load, algorithm
from admission.core.model import Why
from admission.vocabulary import Source

FLOOR_SHARE = 0.1
"""Of the engine's KV: a floor above what the engine can bear would keep its SLO broken for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AimdConfig:
    """The law's constants. Its optimum is flat: change the SLO, not these."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    algorithm: Literal["aimd"] = "aimd"
    """The law that moves the limit; `fixed` stands still."""
    initial_tokens: int = 32_000
    """Where the limit starts, in KV tokens; a restart goes on from the saved one."""
    floor_tokens: int = 2_000
    """The limit never sinks below this, nor below a small share of the engine's KV capacity when that is less."""
    ceiling_tokens: int = 1 << 40
    """The limit never grows over this."""
    slow_start: float = 1.2
    """Factor per tick until the first sign of congestion, and on the way back after an outage."""
    set_point: float = 0.92
    """Share of the TPOT SLO that the law steers to; room and excess count from there."""
    dead_zone: float = 0.05
    """Room in TPOT, as a share of the set point, under which the limit stays as it is."""
    reentry: float = 0.4
    """Over this much room the increase is a slow start again."""
    growth: float = 0.6
    """A step is at least this share of the limit times the square of the room: large steps far from the edge."""
    min_step_ratio: float = 0.002
    """A step is one mean request, and never less than this share of the limit."""
    max_step_ratio: float = 0.08
    """Nor more than this share: on an engine that runs six requests, one more is a leap over the edge."""
    landing: float = 0.2
    """Under this much room that share shrinks with the room."""
    cut_gain: float = 0.5
    """A cut is this share of the excess of TPOT over its SLO."""
    max_cut: float = 0.3
    """One cut takes away no more than this share of the limit."""
    congestion_cut: float = 0.15
    """Share taken away at a plain sign of congestion: preemption, KV full, refusals by the engine."""
    congestion_hold_s: float = 2.0
    """No second such cut within this many seconds."""
    effect_margin: float = 1.02
    """A cut has taken effect when no more than this times the limit is in use."""
    idle_factor: float = 1.25
    """While something else binds, the limit sinks to this times what was in use at most."""
    idle_decay: float = 0.05
    """The share by which it sinks per tick meanwhile."""

    def __post_init__(self) -> None:
        if not 1 <= self.floor_tokens <= self.initial_tokens <= self.ceiling_tokens:
            raise ValueError("need 1 <= floor_tokens <= initial_tokens <= ceiling_tokens")
        for name, least in (("slow_start", 1), ("landing", 0), ("set_point", 0)):
            if not getattr(self, name) > least:
                raise ValueError(f"{name} must be over {least}, not {getattr(self, name)}")
        for name in (
            "dead_zone",
            "reentry",
            "growth",
            "min_step_ratio",
            "max_step_ratio",
            "cut_gain",
            "max_cut",
            "congestion_cut",
            "idle_decay",
        ):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and under 1, not {getattr(self, name)}")


@algorithm("aimd", AimdConfig)
class Aimd:
    """The default limit."""

    name = "aimd"
    adapts = True
    requests = None

    def __init__(self, config: AimdConfig) -> None:
        self.config = config
        self.value = config.initial_tokens
        self._slow_start_to: float | None = float(config.ceiling_tokens)
        self._last_good = config.initial_tokens
        self._reopening = False
        self._hold_until = 0.0
        self._peak = 0.0
        self._cut_from: float | None = None
        self._floor = config.floor_tokens

    @property
    def good(self) -> int:
        """The last good value while it climbs back to it, else where it stands."""
        return max(self.value, self._last_good) if self._reopening and self._in_slow_start() else self.value

    def override(self, value: int) -> None:
        """Go on from this value."""
        self.value = min(max(1, value), self.config.ceiling_tokens)

    def reconfigure(self, config: AimdConfig) -> None:
        """Other constants, within the new bounds."""
        self.config = config
        self._floor = min(self._floor, config.floor_tokens)
        self._set(self.value)

    def after_outage(self) -> None:
        """Half the old limit, then slow start up to the last good one."""
        self._last_good = self.good if self._reopening else max(self._last_good, self.value)
        self._slow_start_to = float(self._last_good)
        self._reopening = True
        self._set(self.value / 2)

    def on_tick(self, load: Load, now: float) -> Why | None:
        """One step of the law."""
        # The peak fades over about half a minute, so that one busy moment does not hold the limit up for ever.
        self._peak = max(self._peak * 0.97, load.used)
        if load.capacity is not None:
            self._floor = int(max(1.0, min(self.config.floor_tokens, FLOOR_SHARE * load.capacity)))
        if load.frozen:
            return None
        if load.congested is not None:
            return self._congested(load, load.congested, now)
        if load.excess is None:
            return None
        room = self._room(load.excess)
        if room < 0:
            return self._decrease(load, room)
        self._cut_from = None
        if load.lasting is not None:
            # What the last cut was for must be gone before growth: those that ended since are few, and mostly short.
            room = min(room, self._room(load.lasting))
        if room > self.config.dead_zone and not load.kv_hot:
            why = self._increase(load, room)
            if why is not None:
                return why
        return self._sink(load)

    def _room(self, excess: float) -> float:
        return 1.0 - (1.0 - excess) / self.config.set_point

    def _effective(self, load: Load) -> bool:
        """Has the last cut taken effect? Until then another would punish the same congestion twice."""
        room = max(0.0, self.config.effect_margin * self.value - load.untracked)
        return load.used <= room or load.in_flight <= 1

    def _congested(self, load: Load, why: Why, now: float) -> Why | None:
        if now < self._hold_until or not self._effective(load):
            return None
        self._hold_until = now + self.config.congestion_hold_s
        self._slow_start_to = None
        # What was in use lately: requests that the engine refused have left the ledger already.
        base = min(self.value, max(load.used, self._peak) + load.untracked)
        return self._moved(base * (1 - self.config.congestion_cut), why)

    def _decrease(self, load: Load, excess: float) -> Why | None:
        """One cut an epoch of congestion: it may deepen while the excess grows, from where it began, never repeat."""
        if self._effective(load):
            self._cut_from = min(self.value, 1.1 * (load.used + load.untracked))
        elif self._cut_from is None:
            return None
        self._slow_start_to = None
        cut = min(self.config.max_cut, self.config.cut_gain * -excess)
        return self._moved(min(self.value, self._cut_from * (1 - cut)), self._why(load))

    def _increase(self, load: Load, excess: float) -> Why | None:
        used = load.used + load.untracked
        usable = self.value * (load.room if load.refused_for_limit else 1.0)
        binds = (load.refused_for_limit or used >= 0.85 * self.value) and used >= 0.6 * usable
        # One alone may use less than that of a limit that has no room for a second: it would run alone for ever.
        if not binds and not (load.refused_for_limit and load.in_flight <= 1):
            return None
        if not self._in_slow_start():
            self._reopening = False
            self._last_good = self.value
        if excess > self.config.reentry or self._in_slow_start():
            return self._moved(self.value * self.config.slow_start, self._why(load))
        return self._moved(self.value + self._step(load.mean_cost, excess), self._why(load))

    def _why(self, load: Load) -> Why:
        return load.excess_why._replace(threshold=self.config.set_point)

    def _step(self, mean_cost: float, excess: float) -> float:
        """One mean request, within bounds that follow the limit, the upper one lower near the edge."""
        least = max(self.config.min_step_ratio, self.config.growth * excess * excess) * self.value
        most = self.config.max_step_ratio * self.value
        return min(max(mean_cost, least), most * min(1.0, excess / self.config.landing))

    def _in_slow_start(self) -> bool:
        return self._slow_start_to is not None and self.value < self._slow_start_to

    def _sink(self, load: Load) -> Why | None:
        """While another budget binds, an unused limit is a burst waiting to happen."""
        target = self.config.idle_factor * (self._peak + load.untracked)
        if not load.refused_for_other or load.refused_for_limit or self.value <= target:
            return None
        why = Why("another budget binds: unused limit sinks", load.used, target, "tokens", Source.LAW)
        return self._moved(max(target, self.value * (1 - self.config.idle_decay)), why)

    def _moved(self, value: float, why: Why) -> Why | None:
        before = self.value
        self._set(value)
        return why if self.value != before else None

    def _set(self, value: float) -> None:
        self.value = int(min(max(value, self._floor), self.config.ceiling_tokens))
