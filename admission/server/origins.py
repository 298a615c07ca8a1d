"""Where did a ticket come from? What its caller named it, which the core need not know."""

from __future__ import annotations

from typing import Protocol

from admission.core.model import TicketId


class KnowsOrigin(Protocol):
    """Who took the ticket in?"""

    def origin(self, id: TicketId) -> tuple[str, str] | None:
        """Request id and traceparent; None: not taken in here."""


class Origins:
    """Asks everyone who takes tickets in."""

    def __init__(self) -> None:
        self._known: tuple[KnowsOrigin, ...] = ()

    def add(self, *known: KnowsOrigin) -> None:
        """Ask these too."""
        self._known += known

    def origin(self, id: TicketId) -> tuple[str, str] | None:
        """Request id and traceparent of a ticket, while it is remembered."""
        for each in self._known:
            found = each.origin(id)
            if found is not None:
                return found
        return None
