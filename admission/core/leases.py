"""Who holds what until when: a session's messages renew all of its permits at once."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

from admission.core.model import TicketId


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Seconds: how long a permit lives unrenewed, and how long after its session's stream broke."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    ttl_s: float = 30.0
    """A permit whose owner says nothing for this long ends."""
    grace_s: float = 5.0
    """Permits of a session whose stream broke end after this, unless it comes back."""

    def __post_init__(self) -> None:
        if not 0.0 < self.grace_s <= self.ttl_s:
            raise ValueError("need 0 < grace_s <= ttl_s")


@dataclass(slots=True)
class _Owner:
    ids: dict[TicketId, None]
    until: float
    detached: bool = False


class Leases:
    """Permits by owner. Renewing is one assignment; an owner that falls silent loses all it holds."""

    def __init__(self, config: LeaseConfig) -> None:
        self.config = config
        self._owners: dict[str, _Owner] = {}
        self._heap: list[tuple[float, str]] = []
        self._scheduled: dict[str, float] = {}

    def grant(self, id: TicketId, now: float) -> None:
        """A permit begins."""
        owner = self._owners.get(id.owner)
        if owner is None:
            owner = self._owners[id.owner] = _Owner({}, now + self.config.ttl_s)
            self._schedule(id.owner, owner.until)
        elif not owner.detached:
            owner.until = now + self.config.ttl_s
        owner.ids[id] = None

    def end(self, id: TicketId) -> None:
        """A permit ends."""
        owner = self._owners.get(id.owner)
        if owner is not None:
            owner.ids.pop(id, None)
            if not owner.ids:
                del self._owners[id.owner]

    def renew(self, name: str, now: float) -> None:
        """The owner is alive: all it holds lives on, its stream counts as whole again."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.until = now + self.config.ttl_s
            owner.detached = False

    def detach(self, name: str, now: float) -> None:
        """The owner's stream broke: it has the grace to come back."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.detached = True
            owner.until = min(owner.until, now + self.config.grace_s)
            self._schedule(name, owner.until)

    def pause(self, seconds: float, now: float) -> None:
        """We did not run for so long: nobody's silence in that time counts."""
        for owner in self._owners.values():
            owner.until = max(owner.until, min(owner.until + seconds, now + self.config.ttl_s))

    def _schedule(self, name: str, at: float) -> None:
        # One live entry an owner: it may come and go thousands of times within one TTL.
        if at < self._scheduled.get(name, float("inf")):
            self._scheduled[name] = at
            heapq.heappush(self._heap, (at, name))

    def held_by(self, name: str) -> list[TicketId]:
        """What the owner holds, oldest first."""
        owner = self._owners.get(name)
        return list(owner.ids) if owner is not None else []

    def expired(self, now: float) -> list[TicketId]:
        """Permits whose time is over; their owners are forgotten by `end`."""
        ids: dict[TicketId, None] = {}
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._scheduled.get(name) != at:
                continue
            del self._scheduled[name]
            owner = self._owners.get(name)
            if owner is None:
                continue
            if owner.until <= now:
                ids.update(owner.ids)
            else:
                # Renewed since: look again when that is over.
                self._schedule(name, owner.until)
        return list(ids)

    def next_at(self) -> float | None:
        """When to look again. May be early, never late."""
        return self._heap[0][0] if self._heap else None
