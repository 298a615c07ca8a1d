"""Whatever happens on the wire, server, core and client agree in the end about who holds what."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.model import TicketId
from admission.server.session import State
from tests.admission.server.desk import Client, Desk, ticket, words

ACTIONS = (
    "ask",
    "ask",
    "ask",
    "again",
    "finish",
    "finish",
    "cancel",
    "lose",
    "break",
    "rejoin",
    "time",
    "beat",
)


def do(client: Client, action: str, choice: int, next_no: int) -> None:
    """One step of a client that may lose answers and streams."""
    if client.session.attached:
        _talk(client, action, choice, next_no)
    if action == "rejoin":
        rejoin(client)
    elif action == "time":
        client.desk.tick(choice / 4)


def _talk(client: Client, action: str, choice: int, next_no: int) -> None:
    held, old = sorted(client.held), max(1, choice % next_no)
    if action == "ask":
        client.send(acquires=[ticket(next_no), ticket(next_no + 1)])
    elif action == "again":
        client.ask(old)
    elif action == "finish" and held:
        client.finish(held[choice % len(held)])
    elif action == "cancel":
        client.send(cancels=[old])
    elif action == "beat":
        beat(client)
    elif action in ("lose", "break"):
        if action == "lose":
            # The answer is written, and the stream breaks before it arrives.
            client.write(acquires=[ticket(next_no)])
            client.session.take(client.desk.now)
        client.desk.sessions.detach(client.session)


def rejoin(client: Client) -> None:
    """A new stream; what had ended is not held any more."""
    client.hello(client.announce(*sorted(client.held)))
    client.held -= set(client.welcome.welcome.unknown)


def beat(client: Client) -> None:
    """A heartbeat, and the answer to a resync if one is asked for."""
    client.read()
    client.asked_resync = False
    client.send()
    if client.asked_resync:
        client.send(resynced=True, held=client.announce(*sorted(client.held)))


def check(client: Client) -> None:
    """The session's counts are those of its entries, and those of the core."""
    session, controller = client.session, client.desk.host.controllers["default"]
    states = [entry.state for entry in session.entries.values()]
    held = {no for no, entry in session.entries.items() if entry.state is State.HELD}
    assert session.held == len(held)
    assert session.waiting == states.count(State.WAITING)
    assert 0 <= session.unseen <= session.held
    assert {id.no for id in controller.held_by(session.owner)} == held
    for no, entry in session.entries.items():
        if entry.state is State.WAITING:
            assert controller.knows(TicketId(session.owner, no))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 50)), max_size=60))
def test_both_ends_and_the_core_agree(steps: list[tuple[str, int]]) -> None:
    """A permit that only one side knows of is a leak or an overload."""
    desk = Desk()
    client = desk.client()
    for number, (action, choice) in enumerate(steps):
        do(client, action, choice, 2 * number + 1)
        if client.session.attached:
            client.read()
        check(client)
    # A quiet moment: whatever was lost is found by the next heartbeats.
    if not client.session.attached:
        rejoin(client)
    for _ in range(3):
        desk.now += 1.1
        beat(client)
    assert {no for no, entry in client.session.entries.items() if entry.state is State.HELD} == client.held
    desk.sessions.leave(client.session)
    assert (desk.in_flight, desk.queued) == (0, 0)


def test_ten_thousand_permits_leave_nothing_behind() -> None:
    """Long runs must end where they began."""
    desk = Desk()
    client = desk.client()
    for number in range(0, 10_000, 5):
        numbers = range(number + 1, number + 6)
        client.ask(*numbers)
        client.send(finishes=[words.Finish(no=no, outcome=1) for no in numbers])

    assert (client.session.held, desk.in_flight) == (0, 0)
    assert not client.asked_resync
