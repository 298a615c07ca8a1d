"""Random lives of ten thousands of calls: whatever is cut short, nothing stays held."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers, sampled_from

from admission.client.calls import Call, CallState
from admission.v1.admission_service_pb2 import SessionResponse
from admission.v1.types_pb2 import Decision, Ticket
from admission.vocabulary import Outcome, Reason, Verdict
from tests.admission.client.sidecar import Policy, admit, decision, queue, refuse, silent
from tests.admission.client.wire import Wire

CANCELS = 100_000


def test_a_hundred_thousand_random_cancels_leave_nothing_held() -> None:
    """A cancel between question and grant is where permits leak."""
    random_ = random.Random(7)
    wire = Wire(_dice(random_, [admit, admit, queue, silent, refuse(Reason.QUEUE_FULL)])).up()
    open_calls: list[Call] = []
    ended = 0
    while ended < CANCELS:
        open_calls += [wire.session.acquire(Ticket(), wire.now) for _ in range(random_.randrange(1, 30))]
        message = wire.session.take(wire.now) if random_.random() < 0.7 else None
        ended += _cut_short(wire, open_calls, random_)
        breaks = random_.random() < 0.02
        if message is not None:
            answer = wire.sidecar.apply(message) if not breaks or random_.random() < 0.5 else None
            if answer is not None and not breaks:
                wire.session.received(answer, wire.now)
        wire.now += random_.random() * 0.1
        wire.session.wake(wire.now)
        if breaks:
            wire.down()
            wire.now += 0.2
            wire.session.opened(wire.now)
    _cut_short(wire, open_calls, random_, every=True)
    wire.pump()
    wire.after(0.6)
    assert wire.held() == 0
    assert wire.session.stats()["waiting"] == 0
    assert wire.sidecar.held == set()
    assert wire.sidecar.waiting == {}
    assert wire.session.gauges()["held"] == 0


def _dice(random_: random.Random, policies: Sequence[Policy]) -> Policy:

    def policy(ticket: Ticket) -> Decision | None:
        return random_.choice(policies)(ticket)

    return policy


def _cut_short(wire: Wire, calls: list[Call], random_: random.Random, *, every: bool = False) -> int:
    chosen = calls[:] if every else random_.sample(calls, random_.randrange(len(calls) + 1))
    for call in chosen:
        wire.session.finish(call, Outcome.ABORTED, None)
        if random_.random() < 0.1:
            wire.session.finish(call, Outcome.OK, None)
        calls.remove(call)
    return len(chosen)


def test_without_breaks_and_silence_the_books_never_differ() -> None:
    """Resync repairs what is lost; in quiet operation there is nothing to repair."""
    random_ = random.Random(8)
    wire = Wire(_dice(random_, [admit, admit, queue, refuse(Reason.QUEUE_FULL)])).up()
    open_calls: list[Call] = []
    for _ in range(3000):
        open_calls += [wire.session.acquire(Ticket(), wire.now) for _ in range(random_.randrange(4))]
        message = wire.session.take(wire.now)
        _cut_short(wire, open_calls, random_)
        if message is not None:
            wire.session.received(wire.sidecar.apply(message), wire.now)
        wire.now += random_.random() * 0.01
        wire.session.wake(wire.now)
    assert wire.sidecar.mismatches == 0
    assert wire.session.counters.get("missed") == 0


class SessionMachine(RuleBasedStateMachine):
    """Any order of questions, answers, breaks and time."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire(local_limit=4).up()
        self.calls: list[Call] = []
        self.link = True

    @rule(policy=sampled_from([admit, queue, silent, refuse(Reason.DEADLINE)]))
    def change_policy(self, policy: object) -> None:
        self.wire.sidecar.policy = policy  # type: ignore[assignment]

    @rule(prompt_bytes=integers(0, 10_000))
    def ask(self, prompt_bytes: int) -> None:
        self.calls.append(self.wire.session.acquire(Ticket(prompt_bytes=prompt_bytes), self.wire.now))

    @rule(milliseconds=integers(1, 700))
    def pass_time(self, milliseconds: int) -> None:
        self.wire.after(milliseconds / 1000)

    @rule()
    def pump(self) -> None:
        self.wire.pump()

    @precondition(lambda self: self.calls)
    @rule(index=integers(0, 10_000), outcome=sampled_from(list(Outcome)))
    def finish(self, index: int, outcome: Outcome) -> None:
        self.wire.session.finish(self.calls[index % len(self.calls)], outcome, None)

    @precondition(lambda self: self.calls)
    @rule(index=integers(0, 10_000), count=integers(1, 20))
    def stream(self, index: int, count: int) -> None:
        call = self.calls[index % len(self.calls)]
        self.wire.session.first_token(call, self.wire.now)
        self.wire.session.chunks(call, count, self.wire.now)

    @precondition(lambda self: self.wire.sidecar.waiting and self.link)
    @rule(verdict=sampled_from([Verdict.ADMITTED, Verdict.SHED]))
    def decide_a_waiter(self, verdict: Verdict) -> None:
        no = next(iter(self.wire.sidecar.waiting))
        if verdict is Verdict.ADMITTED:
            self.wire.session.received(self.wire.sidecar.grant(no), self.wire.now)
            return
        self.wire.sidecar.waiting.pop(no)
        out = self.wire.sidecar.numbered(_shed(no))
        self.wire.session.received(out, self.wire.now)

    @rule()
    def break_or_mend(self) -> None:
        if self.link:
            self.wire.session.closed("broken", self.wire.now)
        else:
            self.wire.session.opened(self.wire.now)
            self.wire.pump()
        self.link = not self.link

    @invariant()
    def books_agree(self) -> None:
        held = [call for call in self.calls if call.state is CallState.HELD]
        assert self.wire.held() == len(held)
        assert all(
            call.answer is not None
            for call in self.calls
            if call.state is not CallState.WAITING and call.state is not CallState.ENDED
        )

    def teardown(self) -> None:
        if not self.link:
            self.wire.session.opened(self.wire.now)
        for call in self.calls:
            self.wire.session.finish(call, Outcome.ABORTED, None)
        self.wire.pump()
        self.wire.after(0.6)
        assert self.wire.held() == 0
        assert self.wire.sidecar.held == set()
        assert self.wire.sidecar.waiting == {}


def _shed(no: int) -> SessionResponse:
    return SessionResponse(decisions=[decision(no, Verdict.SHED, Reason.DEADLINE)])


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
