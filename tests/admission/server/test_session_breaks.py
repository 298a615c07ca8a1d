"""Streams break, come back, are replaced; both ends find out what they disagree about."""

from __future__ import annotations

import pytest

from admission.core.model import Shed
from admission.runtime.settings import SessionConfig
from admission.server.sessions import SessionRefusedError
from admission.vocabulary import Reason, Verdict
from tests.admission.server.desk import SLOTS, Desk, reason, ticket, verdicts, wire, words

ADMITTED, QUEUED, REJECTED, SHED = Verdict.ADMITTED, Verdict.QUEUED, Verdict.REJECTED, Verdict.SHED


def test_a_finish_of_an_unknown_permit_is_counted_and_ignored() -> None:
    """Networks repeat themselves: it is no reason to break a stream."""
    desk = Desk()
    client = desk.client()

    client.finish(77)

    assert desk.sessions.counters["ignored_finishes"] == 1


def test_a_broken_stream_cancels_its_waiters_and_keeps_its_permits_for_the_grace() -> None:
    """The requests behind the permits run on; the callers behind the waiters may be gone."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 3))

    desk.sessions.detach(client.session)

    assert (desk.in_flight, desk.queued) == (SLOTS, 0)
    desk.tick(5.1)
    assert desk.in_flight == 0


def test_a_waiter_asked_again_after_a_break_keeps_its_place() -> None:
    """A reconnect must not send a caller to the end of the queue."""
    desk = Desk()
    other, client = desk.client(1), desk.client(2)
    other.ask(*range(1, SLOTS + 1))
    client.ask(1)
    desk.now += 3.0
    late = desk.client(3)
    late.ask(1)
    desk.sessions.detach(client.session)
    desk.now += 1.0
    client.hello()
    client.ask(1)

    other.finish(1)

    assert client.session.held == 1
    assert late.session.held == 0


def test_the_place_of_a_broken_waiter_is_forgotten_after_ten_seconds() -> None:
    """Who comes back that late is a new arrival."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))
    desk.sessions.detach(client.session)

    desk.tick(10.1)

    assert client.session.places == {}


def test_a_goodbye_frees_everything() -> None:
    """A client that ends well needs no grace."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))

    desk.sessions.leave(client.session)

    assert (desk.in_flight, desk.queued, len(list(desk.sessions))) == (0, 0, 0)


def test_a_higher_attach_replaces_the_older_stream_and_keeps_the_permits() -> None:
    """The client knows best that its old stream is dead; the server may not have noticed."""
    desk = Desk()
    client = desk.client()
    client.ask(1, 2)
    closed: list[str] = []
    client.session.close = closed.append

    client.hello(client.announce(1, 2))

    assert closed == ["replaced by a newer stream"]
    assert desk.in_flight == 2
    assert not client.asked_resync
    desk.tick(6.0)
    assert desk.in_flight == 2


def test_an_attach_that_is_not_higher_is_refused() -> None:
    """A stream delayed in the network must not throw out its successor."""
    desk = Desk()
    client = desk.client()

    with pytest.raises(SessionRefusedError, match="not above"):
        desk.sessions.attach(wire.Hello(session=client.identity, attach=1), desk.now)


@pytest.mark.parametrize("identity", [b"", b"short", b"x" * 17])
def test_a_session_id_of_another_length_is_refused(identity: bytes) -> None:
    """Short ids would be guessed or collide."""
    desk = Desk()

    with pytest.raises(SessionRefusedError) as refused:
        desk.sessions.attach(wire.Hello(session=identity, attach=1), desk.now)

    assert refused.value.kind == "invalid"


def test_sessions_are_bounded_and_gone_ones_make_room() -> None:
    """Whoever opens streams without end must not take the memory of all."""
    desk = Desk(session=SessionConfig(max_sessions=2))
    first = desk.client(1)
    desk.client(2)

    with pytest.raises(SessionRefusedError) as refused:
        desk.client(3)
    assert refused.value.kind == "busy"
    desk.sessions.detach(first.session)
    desk.client(3)


def test_permits_announced_to_a_new_sidecar_are_in_flight_again() -> None:
    """After a restart the engine still runs what was admitted: it must count."""
    desk = Desk()
    client = desk.client()
    desk.sessions.detach(client.session)

    client.hello(client.announce(*range(1, SLOTS + 3), local=True))

    assert desk.in_flight == SLOTS + 2
    assert verdicts(client.ask(SLOTS + 3)) == [QUEUED]


def test_an_announced_permit_that_was_finished_is_named_in_the_welcome() -> None:
    """The client must learn that we do not count it any more."""
    desk = Desk()
    client = desk.client()
    client.ask(1, 2)
    client.finish(1)

    client.hello(client.announce(1, 2))

    assert list(client.welcome.welcome.unknown) == [1]
    assert desk.in_flight == 1


def test_progress_of_an_unknown_permit_asks_for_a_resync_which_reinstates_it() -> None:
    """Work that runs without a permit here is in flight all the same."""
    desk = Desk()
    client = desk.client()

    asked = client.send(progress=words.Progress(no=[9], chunks=[1], age_ms=[0]), held_count=0)
    client.held = {9}
    client.send(resynced=True, held=client.announce(9))

    assert asked.resync
    assert desk.in_flight == 1
    assert desk.sessions.counters["reinstated"] == 1


def test_progress_of_a_finished_permit_asks_for_nothing() -> None:
    """Chunks and finish may overtake each other; the client is right about what it holds."""
    client = Desk().client()
    client.ask(1)
    client.finish(1)

    answer = client.send(progress=words.Progress(no=[1], chunks=[1], age_ms=[0]))

    assert not answer.resync


def test_a_wrong_held_count_asks_for_a_resync_once_a_second() -> None:
    """Both sides must find out that they disagree, without shouting."""
    desk = Desk()
    client = desk.client()
    client.ask(1)

    assert client.send(held_count=0).resync
    assert not client.send(held_count=0).resync
    desk.now += 1.1
    assert client.send(held_count=0).resync


def test_a_resync_frees_what_the_client_does_not_hold() -> None:
    """A grant that was lost with a stream would otherwise be renewed for ever."""
    desk = Desk()
    client = desk.client()
    client.ask(1, 2)

    client.held = {2}
    client.send(resynced=True, held=client.announce(2))

    assert desk.in_flight == 1
    assert desk.sessions.counters["freed_by_resync"] == 1


def test_a_resync_does_not_free_a_grant_that_is_still_on_its_way() -> None:
    """The client could not know of it when it wrote its list."""
    desk = Desk()
    client = desk.client()
    client.write(acquires=[ticket(1)])
    client.session.take(desk.now)

    client.write(resynced=True)

    assert desk.in_flight == 1
    assert not client.session.out.resync


def test_a_grant_lost_with_its_stream_is_freed_by_the_next_resync() -> None:
    """The answer was written into a broken stream, the caller has given up: nobody will ever finish it."""
    desk = Desk()
    client = desk.client()
    client.write(acquires=[ticket(1)])
    desk.sessions.detach(client.session)

    client.hello()
    client.send()
    assert client.asked_resync
    client.send(resynced=True)

    assert desk.in_flight == 0


def test_a_client_that_is_asked_and_insists_is_believed() -> None:
    """We took its permit for finished; it says that the request runs. The engine will know: count it."""
    desk = Desk()
    client = desk.client()
    client.ask(1)
    client.finish(1)

    client.held = {1}
    client.send(resynced=True, held=client.announce(1))

    assert desk.in_flight == 1


def test_any_message_renews_every_permit_of_its_session() -> None:
    """A heartbeat is enough: leases are of sessions, not of requests."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 1))

    for _ in range(10):
        desk.tick(10.0)
        client.send()

    assert desk.in_flight == SLOTS
    assert not client.asked_resync


def test_a_silent_session_loses_its_permits_after_the_lease_and_gets_them_back_by_resync() -> None:
    """A machine that hangs must not hold capacity; one that wakes up tells what it still runs."""
    desk = Desk()
    client = desk.client()
    client.ask(1, 2)

    desk.tick(31.0)
    assert desk.in_flight == 0
    client.send()
    client.send(resynced=True, held=client.announce(1, 2))

    assert client.asked_resync
    assert desk.in_flight == 2


def test_what_a_break_cancelled_is_not_remembered_as_an_answer() -> None:
    """The caller never got it: asked again, the ticket must be judged again."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))
    desk.sessions.detach(client.session)
    assert any(isinstance(event, Shed) and event.reason is Reason.CANCELLED for event in desk.events)

    client.hello(client.announce(*range(1, SLOTS + 1)))

    assert verdicts(client.ask(SLOTS + 1)) == [QUEUED]


def test_after_a_break_answers_flow_as_before() -> None:
    """What is shed later has a stream to be told on: only what the break itself shed is silent."""
    desk = Desk()
    client = desk.client()
    desk.sessions.detach(client.session)
    client.hello()
    client.ask(*range(1, SLOTS + 2))

    desk.now += 61.0
    client.send()
    desk.tick()

    answer = client.read()
    assert answer is not None
    assert [(each.no, reason(each)) for each in answer.decisions] == [(SLOTS + 1, Reason.DEADLINE)]
