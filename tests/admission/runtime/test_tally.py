"""The counts behind the line that the log says each minute."""

from __future__ import annotations

from admission.core.model import Admitted, Event, Queued, Rejected, ShadowDecided, Shed, Ticket, TicketId, Why
from admission.runtime.tally import Minute, Tally
from admission.vocabulary import Reason, Verdict

TICKET = Ticket(TicketId("o", 1))
REJECTED = Rejected(TICKET, Reason.QUEUE_FULL, 1.0, Why())


def minute(*events: Event) -> Minute:
    """The counts after the events."""
    tally = Tally()
    for event in events:
        tally.on_event("a", event, 1.0)
    return tally.take("a")


def test_refusals_are_counted_with_their_reasons() -> None:
    """The line must say why, or it is noise."""
    shed = Shed(TICKET, Reason.DEADLINE, 1.0, Why())

    assert minute(REJECTED, shed, shed) == Minute(0, 3, 0, {"QUEUE_FULL": 1, "DEADLINE": 2})


def test_in_shadow_nothing_is_refused_and_what_would_be_is_told() -> None:
    """Both ways in which shadow speaks count once: at once, and later for what would have waited."""
    queued = Admitted(TICKET, 0.0, 1, shadow=Queued(TICKET, 1, 0.1))
    events = (
        Admitted(TICKET, 0.0, 1, shadow=REJECTED),
        queued,
        ShadowDecided(TICKET, Verdict.SHED, Reason.DEADLINE, 1.0),
    )
    admitted_later = ShadowDecided(TICKET, Verdict.ADMITTED, None, 0.5)

    assert minute(*events, admitted_later) == Minute(2, 0, 2, {"QUEUE_FULL": 1, "DEADLINE": 1})


def test_each_take_begins_anew() -> None:
    """A minute is a minute."""
    tally = Tally()
    tally.on_event("a", Admitted(TICKET, 0.0, 1), 1.0)

    assert tally.take("a").admitted == 1
    assert tally.take("a") == Minute()
