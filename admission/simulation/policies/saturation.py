"""A gate on what the engine says of itself: shut while its queue or its KV cache is over a threshold.

The rule is that of the utilization detector in llm-d's router (before that in the Gateway API Inference
Extension); see docs/peers.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from admission.core.model import Reading
from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.limiter import Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.vocabulary import PriorityClass, SignalKind

GONE_S = 60.0
"""A member that has been silent for so long is no longer a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationConfig:
    """The published constants."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    queue_depth: float = 5.0
    """Requests waiting in the engine at which it counts as full."""
    kv_ratio: float = 0.8
    """Share of its KV cache in use at which it counts as full."""
    stale_s: float = 0.2
    """A member whose last word is older than this counts as full. The published scrape is one each 50 ms: at one a
    second this shuts the gate four fifths of the time, which turns out to help it (docs/peers.md)."""
    open_limit: int = 100_000
    """Requests that may be in flight while the gate is open: no bound."""
    front: FrontConfig = field(default_factory=FrontConfig)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """What the queue's deadline follows; the rule itself knows no target."""

    def __post_init__(self) -> None:
        for name in ("queue_depth", "stale_s", "open_limit"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be over 0, not {getattr(self, name)}")
        if not 0.0 < self.kv_ratio <= 1.0:
            raise ValueError(f"kv_ratio must be over 0 and at most 1, not {self.kv_ratio}")


@dataclass(slots=True)
class _Member:
    at: float
    waiting: float = 0.0
    kv_ratio: float = 0.0


class Saturation(Limiter):
    """Fullness = mean over members of max(waiting / threshold, KV / threshold), 1 for a stale one; open below 1."""

    def __init__(self, config: SaturationConfig) -> None:
        self._config = config
        self._members: dict[str, _Member] = {}
        self._open = False
        self._told_at: float | None = None

    @property
    def limit(self) -> float:
        """No bound while the gate is open, 0 while it is shut."""
        return float(self._config.open_limit) if self._open else 0.0

    def on_sample(self, sample: LimiterSample) -> None:
        """Of no interest here."""

    def on_reading(self, reading: Reading) -> None:
        """Keep the newest queue depth and KV usage of each member."""
        if reading.kind not in (SignalKind.WAITING, SignalKind.KV_USAGE_RATIO):
            return
        self._told_at = reading.at
        member = self._members.setdefault(reading.member, _Member(reading.at))
        member.at = max(member.at, reading.at)
        if reading.kind is SignalKind.WAITING:
            member.waiting = reading.value
        else:
            member.kv_ratio = reading.value

    def on_tick(self, now: float) -> None:
        """Look again."""
        self._told_at = None
        self._open = self.fullness(now) < 1.0

    def next_at(self) -> float | None:
        """At once when something new was said: it may open the gate. Going stale only shuts it."""
        return self._told_at

    def fullness(self, now: float) -> float:
        """How full the engine is: 1 and more shuts the gate. Without any member it is 1."""
        for name in [name for name, one in self._members.items() if now - one.at > GONE_S]:
            del self._members[name]
        if not self._members:
            return 1.0
        return sum(self._score(one, now) for one in self._members.values()) / len(self._members)

    def _score(self, member: _Member, now: float) -> float:
        config = self._config
        if now - member.at > config.stale_s:
            return 1.0
        return max(member.waiting / config.queue_depth, member.kv_ratio / config.kv_ratio)


@policy("saturation", SaturationConfig)
def saturation(config: SaturationConfig, seed: int, now: float) -> QueuedLimiter:  # noqa: ARG001 - what a builder is given
    """The policy: the rule behind the front queue."""
    return QueuedLimiter(Saturation(config), config.front, config.slos, "total")
