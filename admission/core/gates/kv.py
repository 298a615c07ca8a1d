"""The KV watermark: hot stops growth and sheds the last class, critical admits nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from admission.core.engine import EngineReadings
from admission.core.gates.base import Hold, QuietGate, Refuse, gate
from admission.core.model import GateView, Reading, Ticket, Why
from admission.vocabulary import PriorityClass, Reason, SignalKind, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig:
    """Marks on the engine's KV-cache usage, ratios 0 to 1: hot with its hysteresis, and critical."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """Whether KV usage is a gate at all."""
    hot_on: float = 0.90
    """From this usage on the limit does not grow, and the least urgent class is refused with WATERMARK_KV."""
    hot_off: float = 0.86
    """Below this it may again, and nobody is refused."""
    critical: float = 0.97
    """From this usage on all others wait, unless nothing of ours runs."""
    retry_after_s: float = 5.0
    """What the refused are told, before jitter."""

    def __post_init__(self) -> None:
        if not 0.0 < self.hot_off < self.hot_on < self.critical <= 1.0:
            raise ValueError("need 0 < hot_off < hot_on < critical <= 1")
        if not self.retry_after_s > 0:
            raise ValueError(f"retry_after_s must be over 0, not {self.retry_after_s}")


@gate("kv", KvConfig)
class KvWatermark(QuietGate):
    """Acts on the worst member; a stale or missing reading opens it, since a dead exporter is no overload."""

    name = "kv"
    concerns = frozenset({SignalKind.KV_USAGE_RATIO})

    def __init__(self, config: KvConfig) -> None:
        self.config = config
        self.state = "open"
        self.ratio: float | None = None
        self._readings = EngineReadings()
        self._last_fired_at: float | None = None

    @property
    def hot(self) -> bool:
        """The limit must not grow."""
        return self.state in ("hot", "critical")

    def observe(self, reading: Reading, now: float) -> bool:
        """Take KV usage in."""
        if reading.kind is not SignalKind.KV_USAGE_RATIO:
            return False
        self._readings.take(reading)
        return self.on_tick(now)

    def on_tick(self, now: float) -> bool:
        """Look again: a reading may have gone stale."""
        self.ratio = self._readings.value(SignalKind.KV_USAGE_RATIO, now)
        before, self.state = self.state, self._next_state()
        return self.state != before

    def _next_state(self) -> str:
        if self.ratio is None or not self.config.enabled:
            return "open"
        if self.ratio >= self.config.critical:
            return "critical"
        if self.ratio >= self.config.hot_on or (self.hot and self.ratio >= self.config.hot_off):
            return "hot"
        return "open"

    def check(self, ticket: Ticket, *, idle: bool, now: float) -> Hold | Refuse | None:
        """Hot refuses the last class; critical holds all, unless nothing of ours runs: then the gauge is frozen."""
        if self.state == "open" or idle:
            return None
        if ticket.priority is max(PriorityClass):
            self._last_fired_at = now
            return Refuse(Reason.WATERMARK_KV, self._why, self.config.retry_after_s)
        if self.state == "critical":
            self._last_fired_at = now
            return Hold(Reason.WATERMARK_KV, self._why)
        return None

    def reconfigure(self, config: KvConfig) -> None:
        """Go on with other settings."""
        self.config = config

    def view(self) -> GateView:
        """What to show."""
        return GateView(self.name, self.state, self._why, self._last_fired_at)

    @property
    def _why(self) -> Why:
        if self.ratio is None:
            return Why("KV usage is not known", 0.0, self.config.critical, "ratio", Source.SCRAPE)
        mark = self.config.critical if self.state == "critical" else self.config.hot_on
        return Why(f"KV usage {self.ratio:.2f}, mark {mark:.2f}", self.ratio, mark, "ratio", Source.SCRAPE)
