"""Inputs survive the journal unchanged, and equal events have equal digests."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from admission.core.model import (
    Admitted,
    Advice,
    Completion,
    Event,
    Finished,
    Flow,
    GateChanged,
    Held,
    LeaseExpired,
    LimitChanged,
    Queued,
    Reading,
    Rejected,
    Sample,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.runtime import records
from admission.runtime.inputs import Op
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, SignalKind, Source, Verdict

ID = TicketId("owner", 7)
TICKET = Ticket(ID, PriorityClass.BATCH, Flow("t1", "m", "/v1"), 10, 20, 30, 2, False, 1.5, 0.25)
DONE = Completion(Outcome.OK, 10, 5, 30, 0.1, 2.0)
WHY = Why("because", 1.0, 2.0, "s", Source.SCRAPE)

INPUTS: dict[Op, tuple[Any, ...]] = {
    Op.SUBMIT: (TICKET,),
    Op.FINISH: (ID, DONE),
    Op.FIRST_TOKEN: (ID, 0.5),
    Op.PROGRESS: ([(ID, 3, 0.1), (TicketId("other", 1), 1, 0.0)],),
    Op.CANCEL: (ID,),
    Op.RENEW: ("owner",),
    Op.ATTACH: ("owner",),
    Op.DETACH: ("owner",),
    Op.LEAVE: ("owner",),
    Op.REINSTATE: ([Held(TICKET, 3.0, True, 4, True)],),
    Op.OBSERVE: (Reading(SignalKind.KV_USAGE_RATIO, 0.5, 9.0, Source.SCRAPE, "gpu"),),
    Op.SAMPLE: (Sample(1.0, Outcome.OK, Source.SPANS, "vllm", "", "m", 2.0, 0.1, 0.0, 0.1, 1.9, 10, 30, 0),),
    Op.WAKE: (),
    Op.SET_MODE: (Mode.ENFORCE,),
    Op.SET_DRAIN: (True,),
    Op.SET_LIMIT: (5000, 99.5),
    Op.RECONFIGURE: ("a configuration is passed as it is",),
    Op.STALLED: ("owner", True),
}

EVENTS: list[Event] = [
    Admitted(TICKET, 0.5, 40, Advice(10, 2, "m"), Queued(TICKET, 3, 1.0)),
    Queued(TICKET, 2, 1.5),
    Rejected(TICKET, Reason.QUEUE_FULL, 3.0, WHY, 4, 2.0),
    Shed(TICKET, Reason.DEADLINE, None, WHY, 1.0),
    ShadowDecided(TICKET, Verdict.SHED, Reason.DEADLINE, 2.0),
    Finished(TICKET, DONE, 0.1, 2.0, 0.2, 0.05, 30, True),
    LimitChanged(10, 20, WHY),
    LeaseExpired(ID, 40, 31.0),
    GateChanged("kv", "open", "hot", WHY),
]


@pytest.mark.parametrize("op", Op)
def test_every_input_comes_back_as_it_went_in(op: Op) -> None:
    """A replay that sees other inputs proves nothing."""
    plain = records.INPUT_OUT[op](INPUTS[op])

    assert records.input_in(op, plain) == INPUTS[op] or _ticket_equal(op, plain)


def _ticket_equal(op: Op, plain: records.Plain) -> bool:
    """Tickets compare by identity: compare their fields."""
    return repr(records.input_in(op, plain)) == repr(INPUTS[op])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_equal_events_have_equal_digests(event: Event) -> None:
    """The digest depends on values, not on which object holds them."""
    twin = dataclasses.replace(event)

    assert records.events_out([event]) == records.events_out([twin])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_change_of_any_field_changes_the_digest(event: Event) -> None:
    """A field that the digest leaves out is a difference that a replay cannot see."""
    base = records.events_out([event])[0]
    for field in dataclasses.fields(event):
        other = _other(getattr(event, field.name))
        changed = dataclasses.replace(event, **{field.name: other})
        assert records.events_out([changed])[0] != base, field.name


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, Ticket):
        return dataclasses.replace(value, id=TicketId("owner", 8))
    if isinstance(value, TicketId):
        return TicketId("owner", 8)
    if isinstance(value, Completion):
        return dataclasses.replace(value, output_tokens=31)
    if isinstance(value, Why):
        return value._replace(detail="other")
    if isinstance(value, Advice | Queued):
        return None
    if isinstance(value, Reason):
        return Reason.QUOTA
    if isinstance(value, Verdict):
        return Verdict.ADMITTED
    if isinstance(value, str):
        return value + "x"
    if value is None:
        return 1.0
    return not value if isinstance(value, bool) else value + 1


def test_the_order_of_events_counts() -> None:
    """Whoever is admitted first matters."""
    assert records.events_out(EVENTS)[0] != records.events_out(EVENTS[::-1])[0]


def test_kinds_read_as_people_say_them() -> None:
    """A difference is read by a person at night."""
    _, kinds = records.events_out(EVENTS)

    assert records.kinds_text(kinds).startswith("Admitted, Queued, Rejected QUEUE_FULL, Shed DEADLINE")
    assert records.kinds_text(()) == "nothing"
