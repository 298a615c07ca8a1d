"""Session rules: one answer per key, order within a message, cancels and ends."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from admission.core.model import Finished
from admission.runtime.settings import SessionConfig
from admission.vocabulary import Mode, Outcome, Reason, Verdict
from tests.admission.server.desk import SLOTS, Desk, reason, ticket, verdicts, words

ADMITTED, QUEUED, REJECTED, SHED = Verdict.ADMITTED, Verdict.QUEUED, Verdict.REJECTED, Verdict.SHED


def test_a_welcome_tells_what_the_client_must_know() -> None:
    """Without lease, heartbeat, bounds and modes a client would have to guess them."""
    client = Desk().client()

    welcome = client.welcome.welcome
    assert (welcome.lease_ttl.seconds, welcome.heartbeat.nanos) == (30, 500_000_000)
    assert welcome.max_waiting == SessionConfig().max_waiting
    assert dict(client.welcome.modes) == {"default": Mode.ENFORCE}


def test_every_acquire_is_answered_at_once() -> None:
    """A client that hears nothing for 250 ms goes its own way: even a waiter must be told that it waits."""
    client = Desk().client()

    decisions = client.ask(*range(1, SLOTS + 3))

    assert [decision.no for decision in decisions] == list(range(1, SLOTS + 3))
    assert verdicts(decisions) == [ADMITTED] * SLOTS + [QUEUED] * 2
    assert decisions[-1].position == 2


def test_the_same_key_gets_the_same_answer_and_never_a_second_permit() -> None:
    """Retries and duplicates must not take room twice."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))

    again = client.ask(1, SLOTS + 1)

    assert verdicts(again) == [ADMITTED, QUEUED]
    assert (desk.in_flight, desk.queued) == (SLOTS, 1)


def test_a_finished_key_is_remembered_for_a_minute_and_then_forgotten() -> None:
    """A late duplicate of an acquire must not run again, and memory must not grow for ever."""
    desk = Desk()
    client = desk.client()
    client.ask(1)
    client.finish(1)

    assert verdicts(client.ask(1)) == [ADMITTED]
    assert desk.in_flight == 0
    desk.tick(61.0)
    assert client.session.entries == {}


def test_remembered_keys_are_bounded_in_number() -> None:
    """At 20,000 pairs a second a minute would be a million keys."""
    desk = Desk(session=SessionConfig(memo_entries=10))
    client = desk.client()
    for no in range(1, 100):
        client.ask(no)
        client.finish(no)

    assert len(client.session.entries) <= 10


def test_a_refused_key_gets_the_same_refusal_again() -> None:
    """The reason and its numbers are the answer, not only the verdict."""
    client = Desk().client()
    client.ask(*range(1, SLOTS + 1))
    first = client.ask(SLOTS + 1, patience=Duration())

    again = client.ask(SLOTS + 1)

    assert verdicts(first) == [REJECTED]
    assert reason(first[0]) is Reason.DEADLINE
    assert again == first


def test_finishes_make_room_for_the_acquires_of_the_same_message() -> None:
    """One message may end a request and ask for the next: in the other order the next would wait for nothing."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 1))

    answer = client.send(finishes=[words.Finish(no=1, outcome=1)], acquires=[ticket(SLOTS + 1)])

    assert verdicts(list(answer.decisions)) == [ADMITTED]
    assert desk.in_flight == SLOTS


def test_progress_before_finish_in_one_message_is_counted_for_the_permit() -> None:
    """The last chunks come with the finish: applied after it they would look unknown and ask for a resync."""
    client = Desk().client()
    client.ask(1)

    client.send(
        progress=words.Progress(no=[1], chunks=[3], age_ms=[5]),
        first_tokens=words.FirstTokens(no=[1], ttft_ms=[50]),
        finishes=[words.Finish(no=1, outcome=1)],
    )

    assert not client.asked_resync


def test_a_waiter_is_admitted_when_another_session_finishes() -> None:
    """Answers go to the session that they concern, whoever caused them."""
    desk = Desk()
    first, second = desk.client(1), desk.client(2)
    first.ask(*range(1, SLOTS + 1))
    second.ask(1)

    first.finish(1)

    answer = second.read()
    assert answer is not None
    assert [(each.no, each.verdict) for each in answer.decisions] == [(1, ADMITTED)]


def test_a_cancelled_waiter_leaves_at_once() -> None:
    """A place kept for a caller that left is a place taken from one that waits."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))

    client.send(cancels=[SLOTS + 1])

    assert desk.queued == 0


def test_a_cancelled_permit_is_free() -> None:
    """A grant that crossed a cancel on the wire must come back."""
    desk = Desk()
    client = desk.client()
    client.ask(1)

    client.send(cancels=[1])

    assert desk.in_flight == 0


def test_a_finish_of_a_waiter_takes_it_out_of_the_queue() -> None:
    """A client that went its own way and is done already must not be granted anything."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))

    client.finish(SLOTS + 1)

    assert desk.queued == 0


def test_outcomes_reach_the_core() -> None:
    """The law learns from how requests ended."""
    desk = Desk()
    client = desk.client()
    client.ask(1)

    client.send(finishes=[words.Finish(no=1, outcome=int(Outcome.BUSY), output_tokens=7)])

    finished = [event for event in desk.events if isinstance(event, Finished)]
    assert [(each.completion.outcome, each.completion.output_tokens) for each in finished] == [
        (Outcome.BUSY, 7)
    ]
