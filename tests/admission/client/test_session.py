"""The session's rules, without I/O and without a clock."""

from __future__ import annotations

import pytest

from admission.client.calls import Call, CallState, Usage
from admission.v1.admission_service_pb2 import SessionResponse
from admission.vocabulary import Mode, Outcome, Reason, Verdict
from tests.admission.client.sidecar import decision, modes, queue, refuse
from tests.admission.client.wire import Wire


def _says(no: int, verdict: Verdict, reason: int = 0) -> SessionResponse:
    return SessionResponse(decisions=[decision(no, verdict, reason)])


def _admitted(call: Call) -> bool:
    return call.answer is not None and call.answer.admitted


def test_first_message_is_hello_with_identity_and_counter() -> None:
    """The sidecar knows a session by its 16 bytes, and the newest stream by the attach counter."""
    wire = Wire().up()
    wire.down()
    wire.up()
    said = [(hello.session, hello.attach) for hello in wire.sidecar.hellos]
    assert said == [(b"s" * 16, 1), (b"s" * 16, 2)]


def test_acquire_and_finish_leave_nothing_held() -> None:
    """The plain life of a request."""
    wire = Wire().up()
    call = wire.ask(model="m")
    assert call.answer is not None
    assert call.answer.admitted
    assert wire.sidecar.held == {call.no}
    wire.session.finish(call, Outcome.OK, Usage(10, 2, 30))
    wire.pump()
    assert wire.sidecar.held == set()
    assert wire.held() == 0
    finish = wire.sidecar.finishes[0]
    assert (finish.prompt_tokens, finish.cached_tokens, finish.output_tokens) == (10, 2, 30)


def test_finish_twice_says_it_once() -> None:
    """Release is idempotent: `finally` blocks may overlap."""
    wire = Wire().up()
    call = wire.ask()
    wire.session.finish(call, Outcome.OK, None)
    wire.session.finish(call, Outcome.ERROR, None)
    wire.pump()
    assert [finish.outcome for finish in wire.sidecar.finishes] == [int(Outcome.OK)]


def test_finish_carries_engine_ttft_and_decode_time() -> None:
    """The law judges the engine by these two, so they start at admission."""
    wire = Wire().up()
    call = wire.ask()
    wire.now += 0.4
    wire.session.first_token(call, wire.now)
    wire.now += 1.5
    wire.session.chunks(call, 30, wire.now)
    wire.session.finish(call, Outcome.OK, None)
    wire.pump()
    finish = wire.sidecar.finishes[0]
    assert finish.ttft.ToMilliseconds() == 400
    assert finish.decode.ToMilliseconds() == 1500


def test_progress_is_batched_and_the_rest_goes_with_the_finish() -> None:
    """A message per chunk would cost more than the chunk; nothing may be lost at the end."""
    wire = Wire().up()
    call = wire.ask()
    wire.session.first_token(call, wire.now)
    wire.pump()
    before = wire.messages
    for _ in range(50):
        wire.session.chunks(call, 1, wire.now)
        wire.pump()
    assert wire.messages == before
    wire.after(0.21)
    assert wire.sidecar.progress == {call.no: 50}
    wire.session.chunks(call, 7, wire.now)
    wire.session.finish(call, Outcome.OK, None)
    wire.pump()
    assert wire.sidecar.progress == {call.no: 57}


def test_heartbeat_goes_each_half_second_with_the_held_count() -> None:
    """It renews the permits of streams that say nothing for minutes."""
    wire = Wire().up()
    wire.ask()
    before = wire.messages
    for _ in range(20):
        wire.after(0.25)
    assert 9 <= wire.messages - before <= 11
    assert wire.sidecar.mismatches == 0


def test_next_wakeup_leads_to_the_heartbeat() -> None:
    """A shell that sleeps until next_wakeup misses nothing."""
    wire = Wire().up()
    wake = wire.session.next_wakeup()
    assert wake is not None
    assert wake == pytest.approx(wire.now + 0.5)


def test_queued_counts_as_an_answer() -> None:
    """A waiter in the sidecar's queue is not a missed decision."""
    wire = Wire(queue).up()
    call = wire.ask()
    assert call.queued
    assert wire.after(5.0) == []
    wire.session.received(wire.sidecar.grant(call.no), wire.now)
    assert call.answer is not None
    assert call.answer.admitted
    assert not call.local


def test_resume_announces_progress_so_far() -> None:
    """A sidecar that restarted learns how far the streams are."""
    wire = Wire().up()
    call = wire.ask(model="m", max_tokens=5)
    wire.session.first_token(call, wire.now)
    wire.session.chunks(call, 9, wire.now)
    wire.now += 2
    wire.down()
    wire.up()
    held = wire.sidecar.hellos[-1].held[0]
    assert (held.first_token, held.chunks, held.age.seconds, held.ticket.max_tokens) == (True, 9, 2, 5)


def test_waiters_are_asked_for_again_with_the_time_they_waited() -> None:
    """A short break costs nobody the place in the queue."""
    wire = Wire(queue).up()
    call = wire.ask()
    old = call.no
    wire.now += 2
    assert wire.down() == []
    wire.up()
    again = wire.sidecar.tickets[-1]
    assert again.no == call.no != old
    assert again.waited.seconds == 2
    assert call.queued


def test_resync_announces_everything() -> None:
    """The sidecar's picture is repaired from the client's."""
    wire = Wire().up()
    calls = [wire.ask() for _ in range(3)]
    wire.sidecar.held.clear()
    wire.after(0.6)
    assert wire.sidecar.held == {call.no for call in calls}
    assert wire.sidecar.mismatches == 1


def test_disowned_permits_are_not_announced_again() -> None:
    """Else the counts would never agree and every heartbeat would ask for a resync."""
    wire = Wire().up()
    call = wire.ask()
    message = SessionResponse()
    message.welcome.unknown.append(call.no)
    wire.session.received(message, wire.now)
    wire.sidecar.held.clear()
    wire.after(0.6)
    assert wire.sidecar.mismatches == 0
    wire.session.finish(call, Outcome.OK, None)
    wire.after(0.6)
    assert wire.sidecar.finishes == []
    assert wire.held() == 0


def test_mode_off_passes_everything_and_frees_waiters() -> None:
    """`off` reaches all clients at once."""
    wire = Wire(queue).up()
    waiter = wire.ask()
    message = modes(default=Mode.OFF)
    assert wire.session.received(message, wire.now) == [waiter]
    assert waiter.state is CallState.PASSED
    wire.pump()
    assert wire.sidecar.waiting == {}
    assert wire.ask().state is CallState.PASSED
    assert wire.session.passing_all


def test_refusals_carry_what_the_sidecar_said() -> None:
    """Reason, measured against threshold, position and when to come back reach the caller."""
    policy = refuse(
        Reason.WATERMARK_KV, measured=0.98, threshold=0.97, unit="ratio", position=4, detail="KV full"
    )
    wire = Wire(policy).up()
    answer = wire.ask().answer
    assert answer is not None
    assert (answer.reason, answer.measured, answer.threshold, answer.position) == (
        Reason.WATERMARK_KV,
        0.98,
        0.97,
        4,
    )
    assert wire.session.counters.values["refused", "WATERMARK_KV"] == 1


def test_waiting_is_bounded_per_session() -> None:
    """The sidecar says how many; more are refused here and cost it nothing."""
    wire = Wire(queue)
    wire.sidecar.max_waiting = 2
    wire.up()
    wire.ask()
    wire.ask()
    third = wire.ask()
    assert third.answer is not None
    assert third.answer.reason is Reason.QUEUE_FULL
    assert len(wire.sidecar.tickets) == 2


def test_unknown_words_of_a_later_release_are_no_fault() -> None:
    """Client and sidecar one release apart work together."""
    wire = Wire(lambda ticket: decision(ticket.no, 9)).up()
    call = wire.ask()
    assert call.answer is None
    wire.session.received(modes(default=9), wire.now)
    wire.after(0.3)
    assert _admitted(call)
    wire.sidecar.policy = lambda ticket: decision(ticket.no, 3, 99)
    refused = wire.ask().answer
    assert refused is not None
    assert refused.reason is None


def test_a_restart_is_counted() -> None:
    """The boot id tells a restart from a broken stream."""
    wire = Wire().up()
    wire.down()
    wire.sidecar.boot = b"boot-2"
    wire.up()
    assert wire.session.counters.get("restarts_seen") == 1


def test_one_notice_per_change_of_state() -> None:
    """The log tells each change once, however many requests see it."""
    wire = Wire(local_limit=1)
    for _ in range(5):
        wire.down()
        wire.ask()
    texts = [notice.text for notice in wire.session.notices]
    assert len(texts) == 2
    assert "cannot reach" in texts[0]
    assert "local limit" in texts[1]
