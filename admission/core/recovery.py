"""Outage and the way back: closed on errors, probed or reopened on a good reading, then in steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Protocol

from admission.core.model import TicketId, Why
from admission.vocabulary import EngineState, Outcome, Source


class SupportsRandom(Protocol):
    """Randomness, from outside and seeded there."""

    def random(self) -> float:
        """A number in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """When the engine counts as gone, and how it is tried again."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    errors: int = 3
    """This many failed requests within `window_s`, and more than succeeded, close the target."""
    window_s: float = 1.0
    """Seconds that are looked at."""
    first_probe_s: float = 1.0
    """Seconds after which one request is let through to try the engine."""
    last_probe_s: float = 10.0
    """Failed tries double that time up to this."""
    probe_lease_s: float = 10.0
    """A try without any answer for this long has failed."""
    reopening_s: float = 30.0
    """Reopening ends when the limit is back, or after this long."""
    scrape_silence_s: float = 10.0
    """After so long without any scrape, good or failed, probes tell instead."""

    def __post_init__(self) -> None:
        if self.errors < 1:
            raise ValueError(f"errors must be at least 1, not {self.errors}")
        if not 0.0 < self.first_probe_s <= self.last_probe_s:
            raise ValueError("need 0 < first_probe_s <= last_probe_s")
        for name in ("window_s", "probe_lease_s", "reopening_s", "scrape_silence_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be over 0, not {getattr(self, name)}")


class Recovery:
    """The engine's state as its outcomes and its scrape tell it."""

    def __init__(self, config: RecoveryConfig, random: SupportsRandom) -> None:
        self.config = config
        self._random = random
        self.state = EngineState.STARTING
        self.why = Why("no answer from the engine yet")
        self._ends: deque[tuple[float, bool]] = deque(maxlen=256)
        self._closed_at = 0.0
        self._since = 0.0
        self._wait_s = config.first_probe_s
        self._probe_at = 0.0
        self._probe: TicketId | None = None
        self._up_at: float | None = None
        """When a scrape last succeeded; None: never."""
        self._scraped_at = float("-inf")

    @property
    def closed(self) -> bool:
        """Nothing is admitted but probes."""
        return self.state is EngineState.OUTAGE

    def seen(self, now: float) -> bool:
        """The engine gave a sign of life (a first token, an answer, a scrape). True when that is news."""
        if self.state is EngineState.STARTING:
            self._to(EngineState.UP, Why("the engine answers"), now)
            return True
        return False

    def on_scrape(self, up: bool, at: float, now: float) -> bool:
        """The engine answered a scrape, or did not. True when that opens a closed target."""
        self._scraped_at = now
        if not up:
            return False
        self._up_at = at
        if self.closed and at > self._closed_at and now - self._closed_at >= self.config.first_probe_s:
            self._to(
                EngineState.REOPENING, Why("the engine answers its scrape again", source=Source.SCRAPE), now
            )
            return True
        return False

    def on_end(self, id: TicketId, outcome: Outcome, now: float) -> bool:
        """A permit ended. True when that closed the target or opened it."""
        if self.closed:
            return self._on_probe_end(id, outcome, now)
        if outcome not in (Outcome.OK, Outcome.ERROR):
            return False
        self._ends.append((now, outcome is Outcome.OK))
        if outcome is Outcome.OK or self.state is EngineState.STARTING:
            return False
        recent = [ok for at, ok in self._ends if now - at <= self.config.window_s]
        errors = len(recent) - sum(recent)
        if errors >= self.config.errors and errors > sum(recent):
            self._close(errors, now)
            return True
        return False

    def on_first_token(self, id: TicketId, now: float) -> bool:
        """A first token of a probe opens a closed target."""
        return self.closed and id == self._probe and self._on_probe_end(id, Outcome.OK, now)

    def may_probe(self, now: float) -> bool:
        """May one ticket go through a closed target now? Only when no scrape can tell: never one, or none lately."""
        scrape_tells = self._up_at is not None and now - self._scraped_at <= self.config.scrape_silence_s
        return not scrape_tells and self._probe is None and now >= self._probe_at

    def probe(self, id: TicketId, now: float) -> None:
        """This ticket is the probe; one that does not come back in time has failed."""
        self._probe = id
        self._probe_at = now + self.config.probe_lease_s

    def tick(self, limit_back: bool, now: float) -> bool:
        """Time passes. True when the state changed."""
        if self._probe is not None and self.closed and now >= self._probe_at:
            self._failed_probe(now)
        if self.state is EngineState.REOPENING and (
            limit_back or now - self._since >= self.config.reopening_s
        ):
            self._to(EngineState.UP, Why("reopened"), now)
            return True
        return False

    def retry_after_s(self, now: float) -> float:
        """When coming back may help."""
        return max(1.0, self._probe_at - now) + self._wait_s

    def _close(self, errors: int, now: float) -> None:
        why = Why(
            f"{errors} of the last requests failed", errors, self.config.errors, "errors in 1 s", Source.OWN
        )
        self._to(EngineState.OUTAGE, why, now)
        self._closed_at = now
        self._ends.clear()
        self._wait_s = self.config.first_probe_s
        self._probe = None
        self._probe_at = now + self._jittered()

    def _on_probe_end(self, id: TicketId, outcome: Outcome, now: float) -> bool:
        if id != self._probe:
            return False
        self._probe = None
        if outcome is Outcome.OK:
            self._to(EngineState.REOPENING, Why("a probe succeeded", source=Source.OWN), now)
            return True
        if outcome is Outcome.ERROR:
            self._failed_probe(now)
        return False

    def _failed_probe(self, now: float) -> None:
        self._probe = None
        self._wait_s = min(2.0 * self._wait_s, self.config.last_probe_s)
        self._probe_at = now + self._jittered()

    def _jittered(self) -> float:
        # Between 0.8 and 1.2 of the wait: sidecars that closed together must not probe together.
        return self._wait_s * (0.8 + 0.4 * self._random.random())

    def _to(self, state: EngineState, why: Why, now: float) -> None:
        self.state, self.why, self._since = state, why, now
