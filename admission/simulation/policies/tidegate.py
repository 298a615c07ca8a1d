"""The product's own controller, unchanged: enforcing by default, its callers' sessions always alive."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from admission.core.controller import Controller, ControllerConfig
from admission.core.model import Event, Ticket
from admission.simulation.policies.base import Look, policy
from admission.vocabulary import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class TidegateConfig(ControllerConfig):
    """The product's settings, with enforcing as the default."""

    mode: Mode = Mode.ENFORCE
    enforce_at_s: float | None = None
    """Switch to enforcing then, from whatever `mode` says."""


@policy("tidegate", ControllerConfig, TidegateConfig)
def tidegate(config: ControllerConfig, seed: int, now: float) -> Tidegate:
    """The policy."""
    if isinstance(config, TidegateConfig) and config.enforce_at_s is not None:
        return Switched(config, config.enforce_at_s, seed, now)
    return Tidegate(config, seed, now)


class Tidegate(Controller):
    """The controller with what a simulated world adds: heartbeats of its callers, and a look at it."""

    def __init__(self, config: ControllerConfig, seed: int, now: float) -> None:
        super().__init__(config, random=random.Random(seed), now=now)  # noqa: S311 - simulation
        self._owners: set[str] = set()

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """A ticket asks to run; who asks lives from then on."""
        self._owners.add(ticket.id.owner)
        return super().submit(ticket, now)

    def wake(self, now: float) -> list[Event]:
        """Time has passed, and every caller's session has sent its heartbeat."""
        for owner in self._owners:
            self.leases.renew(owner, now)
        return super().wake(now)

    def look(self, now: float) -> Look:
        """Limit and use in KV tokens."""
        target = self.target
        return Look(target.limit.value, target.ledger.used, len(target.ledger), len(target.queue))


class Switched(Tidegate):
    """One that begins to enforce at an instant."""

    def __init__(self, config: ControllerConfig, enforce_at: float, seed: int, now: float) -> None:
        super().__init__(config, seed, now)
        self._enforce_at = enforce_at

    def wake(self, now: float) -> list[Event]:
        """Time has passed, and maybe it is time to switch."""
        if now < self._enforce_at:
            return super().wake(now)
        self._enforce_at = math.inf
        return [*self.set_mode(Mode.ENFORCE, now), *super().wake(now)]

    def next_wakeup(self) -> float:
        """As the controller, or when it is to switch."""
        at = super().next_wakeup()
        return self._enforce_at if at is None else min(at, self._enforce_at)
