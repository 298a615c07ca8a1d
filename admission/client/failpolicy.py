"""What the client decides by itself while no sidecar answers."""

from __future__ import annotations

from collections.abc import Callable

from admission.client.answers import refusal, went_alone
from admission.client.calls import Answer
from admission.client.local import Load, LocalLimit, Peak
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Reason


class FailPolicy:
    """`open` admits within a local limit, `closed` refuses; a target in shadow refuses nothing either way."""

    def __init__(self, settings: ClientSettings, random: Callable[[], float]) -> None:
        self._closed = settings.fail == "closed"
        self._random = random
        self._limit = LocalLimit(settings.local_limit)
        self._broken = False
        self._peak = Peak()

    @property
    def bound(self) -> int:
        """Requests that may be in flight, as a count."""
        return self._limit.bound.count

    def allowed(self, held: Load, now: float) -> None:
        """The sidecar lets us hold this."""
        if not self._broken:
            self._peak.see(held, now)

    def broke(self, held: Load, now: float) -> None:
        """The sidecar went away while this was held. Only the first call after `healed` counts.

        A break shows when decisions have been missing for a while, in which short requests end, and it may come at an
        idle moment: so what was held in the minute before counts as well.
        """
        if not self._broken:
            self._broken = True
            self._limit.remember(held, self._peak.of(now), now)

    def healed(self) -> None:
        """The sidecar answers again."""
        self._broken = False

    def decide(self, ticket: Ticket, why: str, held: Load, now: float, *, shadow: bool) -> Answer:
        """The answer to a ticket, with `why` the sidecar did not give it. Time, in monotonic seconds, widens the limit."""
        if shadow:
            return went_alone(why, shadow=True)
        if self._closed:
            return refusal(Reason.OUTAGE, f"{why}; the fail policy is closed", self._random())
        if self._limit.fits(held, ticket) or self._limit.grow(held, ticket, now):
            return went_alone(why, shadow=False)
        return refusal(Reason.QUEUE_FULL, f"{why}; the local limit of {self.bound} is in use", self._random())
