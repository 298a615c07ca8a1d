"""The VRAM watermark: free bytes over what the engine leaves free by itself, or a share of the whole for engines that grow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from admission.core.gates.base import Hold, QuietGate, Refuse, gate
from admission.core.model import GateView, Reading, Ticket, VramView, Why
from admission.vocabulary import Reason, SignalKind, Source

MAX_GPUS = 64
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class VramConfig:
    """Marks on GPU memory. `auto` takes a GPU that is mostly full when the engine is up as preallocated."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """Whether free GPU memory is a gate at all."""
    rule: Literal["auto", "preallocating", "growing"] = "auto"
    """`preallocating` compares with what was free at rest, `growing` with the whole memory; `auto` chooses for each GPU."""
    baseline_share: float = 0.5
    """Preallocating: refuse below this share of what was free at rest."""
    min_free_bytes: int = 512 * _MIB
    """Preallocating: refuse below this in any case, but never above three quarters of what was free at rest."""
    growing_high: float = 0.85
    """Growing: from this share in use on the gate shows `high`."""
    growing_critical: float = 0.90
    """Growing: from this share in use on requests are refused with WATERMARK_VRAM."""
    reopen_factor: float = 1.2
    """It opens again at this times the free bytes at which it closed."""
    learn_s: float = 20.0
    """How long what is free at rest is learned."""
    stale_s: float = 10.0
    """A reading older than this no longer holds the gate."""
    retry_after_s: float = 10.0
    """What the refused are told, before jitter."""

    def __post_init__(self) -> None:
        if not 0.0 < self.baseline_share < 1.0:
            raise ValueError(f"baseline_share must be between 0 and 1, not {self.baseline_share}")
        if not 0.0 < self.growing_high < self.growing_critical < 1.0:
            raise ValueError("need 0 < growing_high < growing_critical < 1")
        if not 1.0 < self.reopen_factor <= 1.3:
            raise ValueError(f"reopen_factor must be over 1 and at most 1.3, not {self.reopen_factor}")
        for name in ("learn_s", "stale_s", "retry_after_s", "min_free_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be over 0, not {getattr(self, name)}")


@dataclass(slots=True)
class _Gpu:
    free: float | None = None
    total: float | None = None
    free_at: float = float("-inf")
    first_at: float | None = None
    learning: deque[float] = field(default_factory=lambda: deque(maxlen=512))
    baseline: float | None = None
    state: str = "open"

    def learn(self, free: float, at: float, learn_s: float) -> None:
        """The baseline is the median of what is free in the first seconds after the engine's start."""
        if self.baseline is not None:
            return
        self.first_at = at if self.first_at is None else self.first_at
        self.learning.append(free)
        if at - self.first_at >= learn_s:
            self.baseline = sorted(self.learning)[len(self.learning) // 2]
            self.learning.clear()


@gate("vram", VramConfig)
class VramWatermark(QuietGate):
    """Critical on any of the target's GPUs refuses; a stale reading opens."""

    name = "vram"
    concerns = frozenset({SignalKind.VRAM_FREE_BYTES, SignalKind.VRAM_TOTAL_BYTES})

    def __init__(self, config: VramConfig) -> None:
        self.config = config
        self._gpus: dict[str, _Gpu] = {}
        self._engine_up = False
        self._last_fired_at: float | None = None

    def on_engine_start(self, now: float) -> None:
        """Learn what this engine leaves free."""
        self._engine_up = True
        for gpu in self._gpus.values():
            gpu.baseline = gpu.first_at = None
            gpu.learning.clear()

    def observe(self, reading: Reading, now: float) -> bool:
        """Take free or total bytes of one GPU in."""
        if reading.kind not in (SignalKind.VRAM_FREE_BYTES, SignalKind.VRAM_TOTAL_BYTES):
            return False
        if reading.member not in self._gpus and len(self._gpus) >= MAX_GPUS:
            return False
        gpu = self._gpus.setdefault(reading.member, _Gpu())
        if reading.kind is SignalKind.VRAM_TOTAL_BYTES:
            gpu.total = reading.value
            return False
        gpu.free, gpu.free_at = reading.value, reading.at
        if self._engine_up:
            gpu.learn(reading.value, reading.at, self.config.learn_s)
        return self.on_tick(now)

    def on_tick(self, now: float) -> bool:
        """Look again at every GPU."""
        changed = False
        for gpu in self._gpus.values():
            before, gpu.state = gpu.state, self._next_state(gpu, now)
            changed = changed or gpu.state != before
        return changed

    def _next_state(self, gpu: _Gpu, now: float) -> str:
        critical = self._critical(gpu)
        if not self.config.enabled or gpu.free is None or critical is None:
            return "open"
        if now - gpu.free_at > self.config.stale_s:
            return "stale"
        reopen = critical * self.config.reopen_factor
        if gpu.free < critical or (gpu.state == "critical" and gpu.free < reopen):
            return "critical"
        if self._rule(gpu)[0] == "growing" and gpu.free < (1 - self.config.growing_high) * (gpu.total or 0.0):
            return "high"
        return "open"

    def _rule(self, gpu: _Gpu) -> tuple[str, str]:
        if self.config.rule != "auto":
            return self.config.rule, "set in configuration"
        if gpu.baseline is None or not gpu.total:
            return "learning", "the engine is not up for long enough"
        used_ratio = 1.0 - gpu.baseline / gpu.total
        if used_ratio >= 0.7:
            return (
                "preallocating",
                f"{used_ratio:.0%} in use when the engine was up: it takes its memory at start",
            )
        return "growing", f"only {used_ratio:.0%} in use when the engine was up: it takes memory as it works"

    def _critical(self, gpu: _Gpu) -> float | None:
        """Free bytes under which the GPU is critical."""
        rule = self._rule(gpu)[0]
        if rule == "growing":
            return None if not gpu.total else (1 - self.config.growing_critical) * gpu.total
        if rule == "learning" or gpu.baseline is None:
            return None
        wanted = max(self.config.baseline_share * gpu.baseline, float(self.config.min_free_bytes))
        # Never so near the baseline that the gate could not open again at rest.
        return min(wanted, 0.75 * gpu.baseline)

    def check(self, ticket: Ticket, *, idle: bool, now: float) -> Hold | Refuse | None:
        """Refuses while any GPU is critical, naming it."""
        for uuid, gpu in self._gpus.items():
            # A growing engine may keep what it once took: at rest one request tells more than the gauge.
            if gpu.state == "critical" and not (idle and self._rule(gpu)[0] == "growing"):
                self._last_fired_at = now
                return Refuse(Reason.WATERMARK_VRAM, self._why(uuid, gpu), self.config.retry_after_s)
        return None

    @property
    def hot(self) -> bool:
        """The limit must not grow."""
        return any(gpu.state in ("high", "critical") for gpu in self._gpus.values())

    def reconfigure(self, config: VramConfig) -> None:
        """Go on with other settings."""
        self.config = config

    def view(self) -> GateView:
        """What to show: the worst GPU."""
        order = ("critical", "high", "stale", "open")
        worst = min(self._gpus.items(), key=lambda item: order.index(item[1].state), default=None)
        if worst is None:
            return GateView(self.name, "open", Why("no GPU memory reading"), self._last_fired_at)
        return GateView(self.name, worst[1].state, self._why(*worst), self._last_fired_at)

    def gpus(self) -> dict[str, VramView]:
        """What it thinks of each GPU, by UUID."""
        return {uuid: self._gpu_view(gpu) for uuid, gpu in self._gpus.items()}

    def _gpu_view(self, gpu: _Gpu) -> VramView:
        rule, why = self._rule(gpu)
        critical = self._critical(gpu)
        return VramView(
            rule, why, _int(gpu.free), _int(gpu.total), _int(gpu.baseline), _int(critical), gpu.state
        )

    def _why(self, uuid: str, gpu: _Gpu) -> Why:
        free, critical = gpu.free or 0.0, self._critical(gpu) or 0.0
        detail = f"{uuid}: {free / _GIB:.2f} GiB free, mark {critical / _GIB:.2f} GiB"
        return Why(detail, free, critical, "bytes", Source.NVML)


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
