"""What the client decides by itself while no sidecar answers."""

from __future__ import annotations

from collections.abc import Callable

from admission.client.answers import refusal, went_alone
from admission.client.calls import Answer
from admission.client.local import Load, LocalLimit
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Reason

_RECENT_S = 1.0


class FailPolicy:
    """`open` admits within a local limit, `closed` refuses; a target in shadow refuses nothing either way."""

    def __init__(self, settings: ClientSettings, random: Callable[[], float]) -> None:
        self._closed = settings.fail == "closed"
        self._random = random
        self._limit = LocalLimit(settings.local_limit)
        self._broken = False
        self._granted, self._granted_at = Load(), float("-inf")

    @property
    def bound(self) -> int:
        """Requests that may be in flight, as a count."""
        return self._limit.bound.count

    def granted(self, held: Load, now: float) -> None:
        """The sidecar let us hold this."""
        self._granted, self._granted_at = held.copy(), now

    def broke(self, held: Load, now: float) -> None:
        """The sidecar went away while this was held. Only the first call after `healed` counts.

        A break shows when decisions have been missing for a while, in which short requests end: what the sidecar's
        last grant made, if it is recent, is what was held when it really happened.
        """
        if not self._broken:
            self._broken = True
            recent = now - self._granted_at <= _RECENT_S
            self._limit.remember(held.most(self._granted) if recent else held)

    def healed(self) -> None:
        """The sidecar answers again."""
        self._broken = False

    def decide(self, ticket: Ticket, why: str, held: Load, *, shadow: bool) -> Answer:
        """The answer to a ticket, with `why` the sidecar did not give it."""
        if shadow:
            return went_alone(why, shadow=True)
        if self._closed:
            return refusal(Reason.OUTAGE, f"{why}; the fail policy is closed", self._random())
        if self._limit.fits(held, ticket):
            return went_alone(why, shadow=False)
        return refusal(Reason.QUEUE_FULL, f"{why}; the local limit of {self.bound} is in use", self._random())
