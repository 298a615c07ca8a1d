"""The session without an answer: missed decisions, breaks, local limit, and the way back."""

from __future__ import annotations

from admission.client.calls import Call
from admission.v1.admission_service_pb2 import SessionResponse
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Mode, Outcome, Reason, Verdict
from tests.admission.client.sidecar import decision, queue, refuse, silent
from tests.admission.client.wire import Wire


def _says(no: int, verdict: Verdict, reason: int = 0) -> SessionResponse:
    return SessionResponse(decisions=[decision(no, verdict, reason)])


def _admitted(call: Call) -> bool:
    return call.answer is not None and call.answer.admitted


def test_no_answer_within_the_timeout_fails_open() -> None:
    """A hung sidecar costs 250 ms, not the request."""
    wire = Wire(silent).up()
    call = wire.ask()
    assert wire.after(0.249) == []
    assert wire.after(0.002) == [call]
    assert call.answer is not None
    assert call.answer.admitted
    assert call.local


def test_closed_policy_refuses_with_outage() -> None:
    """Whoever prefers no answer to an unguarded engine says `closed`."""
    wire = Wire(silent, fail="closed").up()
    call = wire.ask()
    wire.after(0.3)
    assert call.answer is not None
    assert call.answer.reason is Reason.OUTAGE
    assert call.answer.retry_after_s >= 1


def test_a_missed_question_is_taken_back() -> None:
    """Else the sidecar would grant a permit that nobody holds."""
    wire = Wire(silent).up()
    call = wire.ask()
    first = call.no
    wire.after(0.3)
    assert first in wire.sidecar.done
    assert wire.sidecar.held == {call.no}, "the local permit was announced through resync"


def test_a_late_grant_is_ignored() -> None:
    """The question was taken back: the sidecar frees it by the cancel."""
    wire = Wire(silent).up()
    call = wire.ask()
    first = call.no
    wire.after(0.3)
    wire.session.received(_says(first, Verdict.ADMITTED), wire.now)
    assert wire.held() == 1
    assert wire.session.counters.get("late_decisions") == 1


def test_never_attached_clients_run_the_local_limit() -> None:
    """Before any contact nothing is known but a count."""
    wire = Wire(local_limit=3)
    wire.down()
    calls = [wire.ask(prompt_bytes=10**6) for _ in range(4)]
    assert [call.answer is not None and call.answer.admitted for call in calls] == [True, True, True, False]
    assert calls[3].answer is not None
    assert calls[3].answer.reason is Reason.QUEUE_FULL


def test_unreachable_sidecar_decides_waiters_at_once() -> None:
    """A refused connection is an answer: nobody waits 250 ms for it."""
    wire = Wire()
    call = wire.session.acquire(Ticket(), wire.now)
    assert call.answer is None
    assert wire.down() == [call]
    assert call.answer is not None
    assert call.answer.admitted


def test_detached_clients_run_what_they_held() -> None:
    """Worst true in-flight over the limit stays at 1.05 that way."""
    wire = Wire().up()
    held = [wire.ask(max_tokens=100, prompt_bytes=400) for _ in range(2)]
    wire.down()
    wire.down()
    assert not _admitted(wire.ask(max_tokens=100, prompt_bytes=400))
    wire.session.finish(held[0], Outcome.OK, None)
    assert not _admitted(wire.ask(max_tokens=100, prompt_bytes=4000)), "more prompt than was held"
    assert not _admitted(wire.ask(max_tokens=1000, prompt_bytes=400)), "more cost than was held"
    assert _admitted(wire.ask(max_tokens=100, prompt_bytes=400))
    assert not _admitted(wire.ask(max_tokens=1, prompt_bytes=4))


def test_detached_client_that_held_nothing_runs_one() -> None:
    """One ticket may always run alone, however large."""
    wire = Wire().up()
    wire.down()
    wire.down()
    assert _admitted(wire.ask(prompt_bytes=10**8))
    assert not _admitted(wire.ask())


def test_a_break_lasts_until_the_next_answer_for_the_bound() -> None:
    """Failed attempts to reconnect do not shrink what may run."""
    wire = Wire().up()
    for _ in range(3):
        wire.ask()
    calls = list(wire.sidecar.held)
    wire.down()
    wire.down()
    wire.down()
    assert len(calls) == 3
    assert wire.session.gauges()["local_limit"] == 3


def test_local_permits_are_announced_as_local_on_resume() -> None:
    """The sidecar counts them as untracked until they end."""
    wire = Wire().up()
    first = wire.ask(model="m")
    wire.down()
    wire.down()
    wire.session.finish(first, Outcome.OK, None)
    alone = wire.ask(model="m")
    wire.up()
    announced = {each.no: each.local for each in wire.sidecar.hellos[-1].held}
    assert announced == {first.no: False, alone.no: True}
    assert wire.sidecar.held == {alone.no}, "the one that ended meanwhile was announced and ended"
    assert wire.sidecar.unknown_finishes == 0
    assert wire.sidecar.mismatches == 0


def test_waiters_of_a_broken_stream_go_alone_after_the_timeout() -> None:
    """No request hangs because the sidecar died."""
    wire = Wire(queue).up()
    call = wire.ask()
    wire.down()
    assert wire.after(0.3) == [call]
    assert _admitted(call)


def test_local_switch_works_without_a_sidecar() -> None:
    """`off` must work when the sidecar is dead."""
    wire = Wire(local_limit=1)
    wire.down()
    wire.ask()
    assert not _admitted(wire.ask())
    wire.session.set_off(True, wire.now)
    assert _admitted(wire.ask())
    wire.session.set_off(False, wire.now)
    assert not _admitted(wire.ask())


def test_shadow_refuses_nothing_even_alone() -> None:
    """In shadow everything is admitted, also when the sidecar is away and the policy is closed."""
    wire = Wire(fail="closed")
    wire.sidecar.mode = Mode.SHADOW
    wire.up()
    wire.down()
    wire.down()
    assert all(_admitted(wire.ask()) for _ in range(10))


def test_stopping_sidecar_is_not_asked() -> None:
    """Its DRAINING answers would refuse work that the engine can do: an upgrade is no outage."""
    wire = Wire(refuse(Reason.DRAINING)).up()
    message = SessionResponse()
    message.drain_in.FromSeconds(5)
    wire.session.received(message, wire.now)
    assert _admitted(wire.ask())
    assert wire.sidecar.tickets == []


def test_waiters_given_back_by_a_stopping_sidecar_go_alone() -> None:
    """They were in its queue when SIGTERM came."""
    wire = Wire(queue).up()
    call = wire.ask()
    message = _says(call.no, Verdict.SHED, Reason.DRAINING)
    message.drain_in.FromSeconds(5)
    wire.session.received(message, wire.now)
    assert _admitted(call)


def test_a_hung_sidecar_does_not_keep_those_it_queued() -> None:
    """One missed decision while nothing comes: the queued go the way of the fail policy soon after."""
    wire = Wire(queue).up()
    queued = wire.ask()
    wire.sidecar.policy = silent
    wire.now += 3
    wire.ask()
    wire.now += 0.26
    wire.session.wake(wire.now)
    wire.now += 0.26
    assert queued in wire.session.wake(wire.now)


def test_a_quiet_sidecar_is_probed_by_asking_again() -> None:
    """The same question must get the same answer at once, so it tells a long queue from a frozen sidecar."""
    wire = Wire(queue).up()
    call = wire.ask()
    for _ in range(40):
        wire.after(0.5)
    assert call.answer is None
    assert call.position == 2
    assert len(wire.sidecar.tickets) == 1
    assert wire.session.counters.get("queued") == 1
    assert wire.session.counters.get("missed") == 0
    wire.sidecar.policy = silent
    decided = [each for _ in range(20) for each in wire.after(0.25)]
    assert decided == [call]
    assert _admitted(call)


def test_a_frozen_sidecar_is_asked_two_seconds_after_its_last_word() -> None:
    """Whenever that was: those it queued are not left waiting for longer than need be."""
    wire = Wire(queue).up()
    wire.after(1.0)
    call = wire.ask()
    wire.after(1.1)
    wire.sidecar.policy = silent
    assert wire.session.next_wakeup() is not None
    for _ in range(10):
        wire.after(0.1)
    assert wire.sidecar.repeats == 1

    assert wire.after(0.26) == [call]


def test_backoff_grows_and_is_bounded() -> None:
    """A dead sidecar is not hammered, a returned one is found within seconds."""
    wire = Wire()
    delays = []
    for _ in range(12):
        wire.down()
        delays.append(wire.session.link.reconnect_at - wire.now)
        wire.now = wire.session.link.reconnect_at
        assert wire.session.wants_stream(wire.now)
    assert delays == sorted(delays)
    assert delays[0] < 0.25
    assert delays[-1] <= 5.0


def test_an_attempt_that_nobody_welcomes_is_given_up() -> None:
    """A connection that opens and stays mute is closed after 5 s."""
    wire = Wire()
    wire.session.opened(wire.now)
    assert wire.session.take(wire.now) is not None
    wire.now += 5.1
    wire.session.wake(wire.now)
    assert wire.session.link.hangup
