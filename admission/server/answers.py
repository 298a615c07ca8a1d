"""Brings what the core says about a ticket to whoever asked for it."""

from __future__ import annotations

from typing import Protocol

from admission.core.model import Event, GateChanged, LeaseExpired, LimitChanged, ShadowDecided, TicketId

_OF_NO_TICKET = frozenset({GateChanged, LimitChanged, ShadowDecided})


class Asker(Protocol):
    """Whose ticket is it?"""

    def on_event(self, id: TicketId, target: str, event: Event, now: float) -> bool:
        """An event about a ticket; False when it is nobody's here."""


class Answers:
    """A listener that offers each event about a ticket to its askers, the likeliest first."""

    def __init__(self, *askers: Asker) -> None:
        self._askers = askers

    def on_event(self, target: str, event: Event, now: float) -> None:
        """An event of a controller."""
        kind = type(event)
        if kind in _OF_NO_TICKET:
            return
        id = event.id if kind is LeaseExpired else event.ticket.id  # type: ignore[union-attr]
        for asker in self._askers:
            if asker.on_event(id, target, event, now):
                return
