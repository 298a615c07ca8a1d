"""A server's decision path without sockets: real core and services, a clock that the test turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from admission.core.controller import ControllerConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Event
from admission.runtime.host import Host, TargetSpec
from admission.runtime.processor import Usage
from admission.runtime.settings import OverloadConfig, SessionConfig, UnaryConfig
from admission.server.answers import Answers
from admission.server.early import Early
from admission.server.overload import LoopLag
from admission.server.session import Session
from admission.server.sessions import Sessions
from admission.server.translate import Tickets, set_duration
from admission.server.unary import Leases
from admission.v1 import admission_service_pb2, types_pb2
from admission.vocabulary import Mode, Reason, Verdict

# Tests write plain numbers into enum fields and compare them with ours, which the stubs do not like.
wire: Any = admission_service_pb2
words: Any = types_pb2

COST = 200
SLOTS = 5
"""Tickets of `COST` tokens that fit the limit."""


def config(mode: Mode = Mode.ENFORCE, **more: Any) -> ControllerConfig:
    """Room for five tickets, a fixed limit, nothing kept back for other classes."""
    return ControllerConfig(
        mode=mode,
        limit=FixedConfig(limit_tokens=COST * SLOTS),
        limit_room=0.0,
        prefill_room=0.0,
        **more,
    )


def ticket(no: int = 0, **more: Any) -> Any:
    """A batch ticket, which waits a minute if it must."""
    waited_s = more.pop("waited_s", 0.0)
    made = words.Ticket(no=no, priority_class="batch", prompt_tokens=100, max_tokens=100, **more)
    if waited_s:
        set_duration(made.waited, waited_s)
    return made


@dataclass
class Context:
    """A gRPC context as far as services look at it."""

    address: str = "ipv4:127.0.0.1:4711"
    metadata: tuple[tuple[str, str], ...] = ()
    auth: dict[str, tuple[bytes, ...]] = field(default_factory=dict)

    def peer(self) -> str:
        """Who calls."""
        return self.address

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Headers."""
        return self.metadata

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        """What the certificate says."""
        return self.auth


class Desk:
    """Host, sessions and leases under one clock."""

    def __init__(
        self,
        core: ControllerConfig | None = None,
        session: SessionConfig | None = None,
        unary: UnaryConfig | None = None,
        targets: tuple[TargetSpec, ...] = (),
    ) -> None:
        self.now = 1000.0
        self.step_s = 0.0
        """What each look at the clock costs."""
        self.events: list[Event] = []
        self.host = Host(
            targets or (TargetSpec(config=core or config()),), clock=self._clock, random=Random(7)
        )
        overload = OverloadConfig()
        self.lag = LoopLag(overload, lambda: self.now, lambda: Usage(0.0, 0.0))
        self.tickets = Tickets(b"key")
        self.early = Early(self.host)
        self.sessions = Sessions(
            self.host, session or SessionConfig(), overload, self.tickets, self.early, self.lag
        )
        self.waits: list[float] = []
        self.leases = Leases(
            self.host,
            unary or UnaryConfig(),
            overload,
            self.tickets,
            self.early,
            self.lag,
            lambda took_s, _now: self.waits.append(took_s),
            30.0,
        )
        self.host.listen(Answers(self.sessions, self.leases))
        self.host.listen(self)

    def _clock(self) -> float:
        self.now += self.step_s
        return self.now

    def on_event(self, _target: str, event: Event, _now: float) -> None:
        """Remember it."""
        self.events.append(event)

    @property
    def in_flight(self) -> int:
        """By the core's count."""
        return self.host.view(self.host.targets[0]).in_flight

    @property
    def queued(self) -> int:
        """By the core's count."""
        return self.host.view(self.host.targets[0]).queued

    def tick(self, passed_s: float = 0.0) -> None:
        """Let time pass; wake whoever asked for it, a second at a time at most: a longer step would be a pause of ours."""
        until = self.now + passed_s
        while True:
            self.now = min(until, self.now + 1.0)
            self.host._wake()
            self.sessions.tick(self.now)
            self.leases.tick(self.now)
            if self.now >= until:
                return

    def client(self, name: int = 1) -> Client:
        """A client that is attached."""
        return Client(self, bytes([name]) * 16)


class Client:
    """The other end of one session, as honest as the test wants it to be."""

    def __init__(self, desk: Desk, identity: bytes) -> None:
        self.desk = desk
        self.identity = identity
        self.attach = 0
        self.seen = 0
        self.held: set[int] = set()
        self.asked_resync = False
        self.session = self.hello()

    def hello(self, held: tuple[Any, ...] = (), **message: Any) -> Session:
        """A new stream."""
        self.attach += 1
        self.seen = 0
        said = wire.Hello(session=self.identity, attach=self.attach, held=held)
        self.session = self.desk.sessions.attach(said, self.desk.now)
        self.held = {each.no for each in held}
        self.welcome = self.send(hello=said, **message)
        return self.session

    def write(self, **message: Any) -> None:
        """Send without reading."""
        message.setdefault("held_count", self._count(message))
        message.setdefault("seen", self.seen)
        self.desk.sessions.receive(self.session, wire.SessionRequest(**message), self.desk.now)

    def read(self) -> Any | None:
        """What the server would write now."""
        response = self.session.take(self.desk.now)
        if response is not None:
            self.seen = response.seq
            self.asked_resync |= response.resync
            for decision in response.decisions:
                if int(decision.verdict) == Verdict.ADMITTED:
                    self.held.add(decision.no)
        return response

    def send(self, **message: Any) -> Any:
        """Send, then read."""
        self.write(**message)
        return self.read() or wire.SessionResponse()

    def ask(self, *numbers: int, **more: Any) -> list[Any]:
        """Acquire; the decisions."""
        return list(self.send(acquires=[ticket(no, **more) for no in numbers]).decisions)

    def finish(self, *numbers: int) -> Any:
        """Give back."""
        return self.send(finishes=[words.Finish(no=no, outcome=1) for no in numbers])

    def announce(self, *numbers: int, **more: Any) -> tuple[Any, ...]:
        """Permits for a Hello or a resync."""
        return tuple(wire.Held(no=no, ticket=ticket(no), **more) for no in numbers)

    def _count(self, message: dict[str, Any]) -> int:
        for finish in message.get("finishes", ()):
            self.held.discard(finish.no)
        self.held.difference_update(message.get("cancels", ()))
        return len(self.held)


def verdicts(decisions: list[Any]) -> list[Verdict]:
    """In order."""
    return [Verdict(decision.verdict) for decision in decisions]


def reason(decision: Any) -> Reason | None:
    """None for an admission."""
    return Reason(decision.reason) if decision.reason else None
