"""Everything that configures one target's controller; it builds without arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from admission.core.cost import CostConfig
from admission.core.gates.drain import DrainConfig
from admission.core.gates.kv import KvConfig
from admission.core.gates.vram import VramConfig
from admission.core.leases import LeaseConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.prefill import PrefillConfig
from admission.core.queueing.line import Order
from admission.core.recovery import RecoveryConfig
from admission.core.slo import BACKGROUND_SLO, INTERACTIVE_SLO, SloConfig
from admission.vocabulary import Mode, PriorityClass

LONGEST_PATIENCE_S = 30.0
"""However long the TTFT of a huge prompt may take by its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """One priority class: its SLO, and how long and how many of it may wait."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    slo: SloConfig = INTERACTIVE_SLO
    patience_s: float | None = None
    """None: three quarters of the TTFT SLO (of a large prompt its own, longer one), or 10 s without one."""
    queue_tickets: int = 1_000
    """Requests of the class that may wait; more are refused with QUEUE_FULL."""
    queue_rate_s: float = 4.0
    """Prompt tokens that may wait, in seconds of the measured prefill rate."""
    order: Order = "deadline"
    """Who of the class goes first: `deadline` the one whose TTFT is due first (the oldest where all have the same target),
    `fifo` the oldest, `fit` the oldest that fits, `newest`, `slack` the one that must start soonest for its TTFT, `cost`
    the cheapest."""
    overtaken_s: float | None = None
    """Whoever has been passed for this long goes first, then others for three times its cost; none: a third of how long it
    may wait."""

    def __post_init__(self) -> None:
        if self.patience_s is not None and not self.patience_s >= 0:
            raise ValueError(f"patience_s must not be negative, not {self.patience_s}")
        if self.queue_tickets < 0:
            raise ValueError(f"queue_tickets must not be negative, not {self.queue_tickets}")
        if not self.queue_rate_s > 0:
            raise ValueError(f"queue_rate_s must be over 0, not {self.queue_rate_s}")
        if self.overtaken_s is not None and not self.overtaken_s >= 0:
            raise ValueError(f"overtaken_s must not be negative, not {self.overtaken_s}")

    def patience_for(self, prompt_tokens: int) -> float:
        """The same for a prompt of that size: where its TTFT may take longer, so may its wait."""
        slo_s = self.slo.ttft_for(prompt_tokens)
        if self.patience_s is not None or slo_s is None:
            return self.patience
        return max(self.patience, min(0.75 * slo_s, LONGEST_PATIENCE_S))

    def overtaken_for(self, prompt_tokens: int) -> float:
        """How long others of the class may pass a waiter with a prompt of that size, in seconds."""
        return self.patience_for(prompt_tokens) / 3.0 if self.overtaken_s is None else self.overtaken_s

    @property
    def patience(self) -> float:
        """How long a ticket waits that does not say, in seconds."""
        if self.patience_s is not None:
            return self.patience_s
        return 10.0 if self.slo.ttft_s is None else 0.75 * self.slo.ttft_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfterConfig:
    """Bounds of Retry-After in seconds, and its jitter as a share."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    min_s: float = 1.0
    """Never sooner than this, before jitter."""
    max_s: float = 60.0
    """Never later than this."""
    jitter: float = 0.2
    """Spread to either side, as a share, so that refused callers do not return together."""

    def __post_init__(self) -> None:
        if not 0.0 < self.min_s <= self.max_s:
            raise ValueError("need 0 < min_s <= max_s")
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and under 1, not {self.jitter}")


def default_classes() -> dict[PriorityClass, ClassConfig]:
    """The three classes as they are when nobody says otherwise."""
    return {
        PriorityClass.INTERACTIVE: ClassConfig(),
        PriorityClass.BATCH: ClassConfig(
            slo=BACKGROUND_SLO, patience_s=60.0, queue_tickets=10_000, queue_rate_s=20.0
        ),
        PriorityClass.INTERNAL: ClassConfig(slo=BACKGROUND_SLO, patience_s=10.0),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KvForecastConfig:
    """Expected KV of everything admitted stays under this share of the engine's capacity."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    set_point: float = 0.92
    """Share of the engine's KV capacity that the expected use may reach."""
    output_share: float = 0.4
    """Of its predicted output that a streaming request is expected to hold at the peak; 0.6 when it does not stream."""

    def __post_init__(self) -> None:
        if not 0.0 < self.set_point <= 1.0:
            raise ValueError(f"set_point must be over 0 and at most 1, not {self.set_point}")
        if not 0.0 < self.output_share <= 1.0:
            raise ValueError(f"output_share must be over 0 and at most 1, not {self.output_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """One target."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    mode: Mode = Mode.SHADOW
    """`shadow` decides and admits everything, `enforce` means it, `off` passes everything."""
    limit: AimdConfig | FixedConfig = field(default_factory=AimdConfig)
    classes: dict[PriorityClass, ClassConfig] = field(default_factory=default_classes)
    cost: CostConfig = field(default_factory=CostConfig)
    prefill: PrefillConfig = field(default_factory=PrefillConfig)
    kv_forecast: KvForecastConfig = field(default_factory=KvForecastConfig)
    kv: KvConfig = field(default_factory=KvConfig)
    vram: VramConfig = field(default_factory=VramConfig)
    drain: DrainConfig = field(default_factory=DrainConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    retry_after: RetryAfterConfig = field(default_factory=RetryAfterConfig)
    ageing_s: float = 30.0
    """Each time that a request has waited this long, it counts as one class more urgent."""
    limit_room: float = 0.30
    """Share of the limit that each class leaves to the more urgent ones."""
    prefill_room: float = 0.50
    """Share of the prefill budget that each class leaves to the more urgent ones."""
    kv_room: float = 0.10
    """Share of the KV set point that each class leaves to the more urgent ones."""
    yield_s: float = 2.0
    """A class stays out for this long after a more urgent one had to wait."""
    tick_s: float = 1.0
    """How often the law looks."""

    def __post_init__(self) -> None:
        missing = [rank.label for rank in PriorityClass if rank not in self.classes]
        if missing:
            raise ValueError(f"classes must name {', '.join(missing)}")
        for name in ("ageing_s", "tick_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be over 0, not {getattr(self, name)}")
        if not self.yield_s >= 0:
            raise ValueError(f"yield_s must not be negative, not {self.yield_s}")
        for name in ("limit_room", "prefill_room", "kv_room"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and under 1, not {getattr(self, name)}")
