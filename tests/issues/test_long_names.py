"""What callers call things is kept in many places: names of megabytes once filled the memory and broke snapshots."""

from __future__ import annotations

from typing import Any

from admission.core.model import TicketId
from admission.server import translate
from tests.admission.server.desk import Context, Desk, ticket, wire

LONG = "x" * 1_000_000
EVERYTHING: dict[str, Any] = dict.fromkeys(("model", "tenant", "endpoint", "request_id", "traceparent"), LONG)
HERE = Context()


def longest(told: object) -> int:
    """Characters of the longest text in any of these."""
    if isinstance(told, str):
        return len(told)
    if isinstance(told, dict):
        return max((longest(each) for pair in told.items() for each in pair), default=0)
    if isinstance(told, tuple | list):
        return max((longest(each) for each in told), default=0)
    return 0


def kept(desk: Desk) -> int:
    """Characters of the longest name in anything that outlives a request."""
    routes, tickets = desk.host.routes, desk.tickets
    flows = [(flow.tenant, flow.model, flow.endpoint) for flow in tickets._flows.values()]
    return longest([routes._cache, routes.unknown, tickets._flows, tickets._names, flows])


async def test_unary_names_are_cut_before_they_are_kept() -> None:
    """Sixty calls of 3 MB stayed in memory for a minute."""
    desk = Desk()
    decision = (await desk.leases.acquire(wire.AcquireRequest(ticket=ticket(**EVERYTHING)), HERE)).decision
    await desk.leases.acquire(wire.AcquireRequest(ticket=ticket(target=LONG)), HERE)

    origin = desk.leases.origin(TicketId(decision.lease.hex(), 1))
    assert origin is not None
    assert longest([origin, desk.leases._by_key]) == 128
    assert kept(desk) <= 256 + len("target ")


def test_session_names_are_cut_before_they_are_kept() -> None:
    """The same on a stream, and for permits announced again."""
    desk = Desk()
    client = desk.client()
    client.ask(1, **EVERYTHING)
    client.ask(2, target=LONG)
    client.hello((wire.Held(no=3, ticket=ticket(3, **EVERYTHING)),))

    origin = desk.sessions.origin(TicketId(client.session.owner, 1))
    assert origin is not None
    assert longest(origin) == 128
    assert kept(desk) <= 256 + len("target ")


def test_two_long_ids_stay_two() -> None:
    """Cut to the same text, the second caller would get the first one's permit."""
    one, two = translate.id_of(LONG + "1"), translate.id_of(LONG + "2")
    assert one != two
    assert len(one) == len(two) == 128
    assert translate.id_of("x" * 128) == "x" * 128


async def test_a_long_request_id_finds_its_permit_again() -> None:
    """Acquire and Release must read the name alike."""
    desk = Desk()
    asked = wire.AcquireRequest(ticket=ticket(request_id=LONG))
    first, again = [(await desk.leases.acquire(asked, HERE)).decision.lease for _ in range(2)]
    released = await desk.leases.release(wire.ReleaseRequest(request_id=LONG), HERE)

    assert first == again
    assert released.known
