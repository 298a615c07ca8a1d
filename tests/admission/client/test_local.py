"""The bound under which a client admits alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.client.local import Load, LocalLimit
from admission.v1.types_pb2 import Ticket

_TICKETS = st.lists(
    st.builds(
        Ticket,
        prompt_bytes=st.integers(0, 100_000),
        max_tokens=st.integers(0, 4096),
        n=st.integers(0, 4),
    ),
    max_size=20,
)


def _load(tickets: list[Ticket]) -> Load:
    load = Load()
    for ticket in tickets:
        load.add(ticket)
    return load


@given(before=_TICKETS, after=_TICKETS)
def test_alone_never_exceeds_what_was_held(before: list[Ticket], after: list[Ticket]) -> None:
    """In count, cost and prompt; one lone ticket is the only exception."""
    limit = LocalLimit(64)
    bound = _load(before)
    limit.remember(bound, Load(), 0.0)
    held = Load()
    for ticket in after:
        if limit.fits(held, ticket):
            alone = held.count == 0
            held.add(ticket)
            assert alone or (
                held.count <= bound.count and held.cost <= bound.cost and held.prompt <= bound.prompt
            )


@given(tickets=_TICKETS)
def test_adding_and_taking_away_ends_at_nothing(tickets: list[Ticket]) -> None:
    """The totals are kept by difference, so they must not drift."""
    load = _load(tickets)
    for ticket in tickets:
        load.add(ticket, -1)
    assert load == Load()


def test_what_is_remembered_does_not_move() -> None:
    """The bound is the load of the break, not of now."""
    limit, load = LocalLimit(64), _load([Ticket()] * 3)
    limit.remember(load, Load(), 0.0)
    load.add(Ticket())
    assert limit.bound.count == 3
