"""The client's whole behaviour without I/O: every input takes `now`, decided calls come back as a list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from admission.client.answers import answer_of, refusal
from admission.client.calls import Answer, Call, CallState, Usage, seconds_of, set_duration
from admission.client.counters import Counters
from admission.client.failpolicy import FailPolicy
from admission.client.holdings import Holdings
from admission.client.link import Link, LinkState
from admission.client.modes import Modes
from admission.client.outbox import Outbox
from admission.client.settings import ClientSettings
from admission.client.waiting import WaitingRoom
from admission.v1.admission_service_pb2 import SessionRequest, SessionResponse, Welcome
from admission.v1.types_pb2 import Decision, Ticket
from admission.vocabulary import Mode, Outcome, Reason, Verdict

_LONGEST_QUEUE_S = 75.0
_AFTER_PATIENCE_S = 1.0
_PROBE_AFTER_S = 2.0
_SOON_S = 0.05
_TELL_EVERY_S = 60.0
_MAX_NOTICES = 64


class Notice(NamedTuple):
    """A change of state worth one log line; a loud one is shown even where only warnings are."""

    text: str
    loud: bool = True


class Session:
    """One client's life at the sidecar. The shell moves bytes, this decides everything.

    Times are monotonic seconds and never decrease; `random` returns 0 to 1 and spreads retries.
    Methods that may decide calls return those calls, each with `answer` set (or `queued`).
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        identity: bytes,
        name: str,
        random: Callable[[], float],
        now: float,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters if counters is not None else Counters()
        self.notices: deque[Notice] = deque(maxlen=_MAX_NOTICES)
        self.link = Link(random, settings.decision_timeout_ms / 1000, now)
        self._address, self._random = settings.address, random
        self._timeout_s = settings.decision_timeout_ms / 1000
        self._off = settings.off
        self._modes = Modes()
        self._alone = FailPolicy(settings, random)
        self._tell_at = now
        self._no = 0
        self._waiting, self._held = WaitingRoom(), Holdings()
        self._out = Outbox(identity, name, self.link, self._held, now)
        self._probe_at = now

    # ---- what the host asks

    def acquire(self, ticket: Ticket, now: float) -> Call:
        """Asks for a permit. The call is decided at once when the client is off or on its own."""
        call = Call(ticket, now)
        self.counters.count("asked")
        cause = self._passing(ticket)
        if cause:
            self._pass(call, cause, now)
            return call
        why = self.link.away(now)
        if why:
            self._decide_alone(call, why, now)
        elif self.link.max_waiting and len(self._waiting) >= self.link.max_waiting:
            self._refuse(call, refusal(Reason.QUEUE_FULL, "too many wait in this client", self._random()))
        else:
            self.link.asked(now)
            self._ask(call)
            self._expect(call, now)
        return call

    def first_token(self, call: Call, now: float) -> None:
        """The first non-empty output came."""
        if call.state is CallState.HELD and call.first_token_at is None:
            call.first_token_at = call.newest_at = now
            self._out.first_token(call)

    def chunks(self, call: Call, count: int, now: float) -> None:
        """More output came."""
        if call.state is CallState.HELD:
            call.chunks += count
            call.newest_at = now
            self._out.chunks(call, count)

    def finish(self, call: Call, outcome: Outcome, usage: Usage | None) -> None:
        """Gives the permit back, or takes the question back. May be called again: then nothing happens."""
        if call.state is CallState.WAITING:
            self._forget(call)
            self.counters.count("cancelled")
        elif call.state is CallState.HELD:
            self._held.remove(call)
            self._out.finish(call, call.finish_message(outcome, usage))
            self.counters.count("finished", outcome.name)
        call.state = CallState.ENDED

    def set_off(self, off: bool, now: float) -> list[Call]:
        """Switches the client off (everything passes, waiters first) or on again."""
        if off == self._off:
            return []
        self._off = off
        self.notices.append(Notice("off: everything passes" if off else "on again"))
        return self._release_passing(now)

    @property
    def passing_all(self) -> bool:
        """True when no request needs even a look."""
        return self._off or self._modes.all_off

    def in_shadow(self, ticket: Ticket) -> bool:
        """Does the ticket's target refuse nothing?"""
        return self._modes.of(ticket) is Mode.SHADOW

    # ---- what the stream brings

    def wants_stream(self, now: float) -> bool:
        """Shall the shell open a stream now?"""
        return self.link.state is LinkState.DOWN and now >= self.link.reconnect_at

    def opened(self, now: float) -> None:
        """A stream is open. Waiters are asked for again, under fresh numbers, with the time they have waited."""
        self.link.opened(now)
        self._out.begin(now)
        for call in self._waiting.empty():
            set_duration(call.ticket.waited, now - call.asked_at)
            self._ask(call)

    def closed(self, why: str, now: float) -> list[Call]:
        """The stream broke, or none could be opened. Returns the calls that this decided."""
        self._note_close(why, now)
        self.link.closed(now)
        self._out.drop()
        alone = self.link.away(now)
        decided: list[Call] = []
        for call in self._waiting:
            call.queued = False
            if alone:
                self._forget(call)
                self._decide_alone(call, alone, now)
                decided.append(call)
            else:
                self._expect(call, now)
        return decided

    def received(self, message: SessionResponse, now: float) -> list[Call]:
        """A message of the sidecar. Returns the calls that it decided or queued."""
        self.link.received(message.seq, now)
        if message.HasField("welcome"):
            self._welcome(message.welcome)
        if message.HasField("drain_in"):
            self._leave_soon(now)
        if message.resync:
            self._out.resync()
            self.counters.count("resyncs")
        touched = [call for decision in message.decisions if (call := self._decision(decision, now))]
        if message.modes and self._modes.update(message.modes):
            self.notices.append(Notice(f"modes: {self._modes.text()}", loud=False))
            touched += self._release_passing(now)
        return touched

    # ---- time and output

    def wake(self, now: float) -> list[Call]:
        """Does what is due: missed decisions, the end of a silence, dead streams. Returns decided calls."""
        self._alone.allowed(self._held.load, now)
        due = self._waiting.due(now)
        for call in due:
            self._miss(call, now)
        self._probe(now)
        self.link.wake(now)
        return due

    def next_wakeup(self) -> float | None:
        """When `wake`, `take` or `wants_stream` has something new, monotonic seconds."""
        times = [self._waiting.next_deadline(), self.link.next_wakeup(), self._out.next_wakeup()]
        if self.link.state is LinkState.ATTACHED and self._waiting.first_queued() is not None:
            times.append(self._probe_at)
        if self.link.state is LinkState.DOWN:
            times.append(self.link.reconnect_at)
        return min((at for at in times if at is not None), default=None)

    def take(self, now: float) -> SessionRequest | None:
        """The next message to write, with everything that has gathered; None when there is nothing to say."""
        return self._out.compose(now)

    def stats(self) -> dict[str, int | str]:
        """A snapshot of the client's own state and counts."""
        return {
            "link": self.link.state.value,
            "off": int(self._off),
            "held": len(self._held),
            "waiting": len(self._waiting),
            "modes": self._modes.text(),
            **self.counters.flat(),
        }

    def gauges(self) -> dict[str, float]:
        """The same state as numbers for Prometheus."""
        return {
            "attached": float(self.link.state is LinkState.ATTACHED),
            "off": float(self._off),
            "held": float(len(self._held)),
            "waiting": float(len(self._waiting)),
            "local_limit": float(self._alone.bound),
        }

    # ---- passing

    def _passing(self, ticket: Ticket) -> str:
        if self._off:
            return "switch"
        return "mode" if self._modes.of(ticket) is Mode.OFF else ""

    def _pass(self, call: Call, cause: str, now: float) -> None:
        call.state, call.admitted_at = CallState.PASSED, now
        call.answer = Answer(Verdict.ADMITTED, local=True, detail=f"off by {cause}")
        self.counters.count("passed", cause)

    def _release_passing(self, now: float) -> list[Call]:
        released = []
        for call in self._waiting:
            cause = self._passing(call.ticket)
            if cause:
                self._forget(call)
                self._pass(call, cause, now)
                released.append(call)
        return released

    # ---- asking

    def _ask(self, call: Call) -> None:
        self._number(call)
        call.queued = False
        self._waiting.add(call)
        self._out.acquire(call)

    def _expect(self, call: Call, now: float) -> None:
        call.put_at = now
        self._waiting.set_deadline(call, now + self._timeout_s)

    def _number(self, call: Call) -> None:
        self._no += 1
        call.no = call.ticket.no = self._no

    def _forget(self, call: Call) -> None:
        """No longer waiting; the sidecar hears of it if it may have the question."""
        if self._waiting.remove(call):
            self._out.cancel(call)

    def _decision(self, decision: Decision, now: float) -> Call | None:
        call = self._waiting.get(decision.no)
        if call is None:
            self.counters.count("late_decisions")
            return None
        answer = answer_of(decision)
        if int(decision.verdict) == Verdict.QUEUED:
            self._queue(call, decision, now)
        elif answer is None:
            return None
        else:
            self._waiting.remove(call)
            self._modes.learn(call.ticket.model, decision.target)
            self._settle(call, answer, now)
        return call

    def _settle(self, call: Call, answer: Answer, now: float) -> None:
        self._heard()
        if answer.admitted:
            call.answer, call.announced = answer, True
            self._held.add(call, now)
            self._alone.allowed(self._held.load, now)
            self.counters.count("admitted", "sidecar")
        elif answer.reason is Reason.CANCELLED or (answer.reason is Reason.DRAINING and self.link.leaving):
            self._decide_alone(call, "sidecar gave the ticket back", now)
        else:
            self._refuse(call, answer)

    def _queue(self, call: Call, decision: Decision, now: float) -> None:
        self._heard()
        call.position = decision.position
        call.expected_wait_s = seconds_of(decision.expected_wait)
        if not call.queued:
            call.queued = True
            self.counters.count("queued")
            ticket = call.ticket
            longest = seconds_of(ticket.patience) if ticket.HasField("patience") else _LONGEST_QUEUE_S
            call.give_up_at = now + longest + _AFTER_PATIENCE_S
        self._waiting.set_deadline(call, call.give_up_at)

    def _heard(self) -> None:
        self.link.answered()
        if not self.link.leaving:
            self._healed()

    def _refuse(self, call: Call, answer: Answer) -> None:
        call.state, call.answer = CallState.ENDED, answer
        self.counters.count("refused", answer.reason.name if answer.reason is not None else "UNKNOWN")

    # ---- alone

    def _miss(self, call: Call, now: float) -> None:
        self.counters.count("missed")
        if self.link.missed(call.put_at, now):
            self.counters.count("silences")
            self.notices.append(Notice("sidecar does not answer in time: not asking for 5 s"))
        self._forget(call)
        if self.link.quiet_for(now) > self._timeout_s:
            self._hurry_queued(now)
        self._decide_alone(call, "no decision in time", now)

    def _probe(self, now: float) -> None:
        """Nothing came for a while and the sidecar has queued us: the same question must get its answer at once."""
        if self._probe_at > now or self.link.state is not LinkState.ATTACHED:
            return
        quiet_s = self.link.quiet_for(now)
        still_s = _PROBE_AFTER_S - quiet_s
        self._probe_at = now + (max(still_s, _SOON_S) if still_s > 0 else _PROBE_AFTER_S)
        queued = self._waiting.first_queued()
        if queued is not None and quiet_s >= _PROBE_AFTER_S:
            self._out.acquire(queued)
            self._expect(queued, now)

    def _hurry_queued(self, now: float) -> None:
        """The sidecar hangs: those it has queued do not wait for it much longer."""
        for call in self._waiting:
            if call.queued and call.deadline > now + self._timeout_s:
                self._waiting.set_deadline(call, now + self._timeout_s)

    def _decide_alone(self, call: Call, why: str, now: float) -> None:
        self._mark_break(now)
        shadow = self.in_shadow(call.ticket)
        answer = self._alone.decide(call.ticket, why, self._held.load, now, shadow=shadow)
        if answer.admitted:
            call.answer, call.local, call.announced = answer, True, False
            self._number(call)
            self._held.add(call, now)
            self.counters.count("admitted", "client")
            return
        if now >= self._tell_at:
            self._tell_at = now + _TELL_EVERY_S
            self.notices.append(Notice(f"refusing without the sidecar: {answer.detail}"))
        self.counters.count("refused_locally")
        self._refuse(call, answer)

    def _mark_break(self, now: float) -> None:
        """What is held now bounds what we admit alone, if we were ever attached."""
        if self.link.boot:
            self._alone.broke(self._held.load, now)

    def _healed(self) -> None:
        self._alone.healed()
        self._tell_at = 0.0

    # ---- the link

    def _welcome(self, welcome: Welcome) -> None:
        again = bool(self.link.boot) or self.link.unreachable_told
        if self.link.welcomed(welcome.boot):
            self.counters.count("restarts_seen")
        self.counters.count("attached")
        self._out.welcomed()
        self._healed()
        self.link.heartbeat_s = min(5.0, max(0.05, seconds_of(welcome.heartbeat) or 0.5))
        self.link.max_waiting = welcome.max_waiting
        self.counters.count("disowned", by=self._held.disown(welcome.unknown))
        self.notices.append(Notice(f"attached to the sidecar{' again' if again else ''}", loud=again))

    def _leave_soon(self, now: float) -> None:
        if not self.link.leaving:
            self._mark_break(now)
            self.link.leaving = True
            self.notices.append(Notice("sidecar stops soon: deciding alone"))

    def _note_close(self, why: str, now: float) -> None:
        if self.link.state is LinkState.ATTACHED:
            self._mark_break(now)
            self.counters.count("broken")
            self.notices.append(Notice(f"lost the sidecar: {why}"))
            return
        self.counters.count("attach_failed")
        if not self.link.unreachable_told:
            self.link.unreachable_told = True
            self.notices.append(Notice(f"cannot reach the sidecar at {self._address}: {why}"))
