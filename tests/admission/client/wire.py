"""Connects a session without I/O to the sidecar in memory, under a clock that the test moves."""

from __future__ import annotations

from typing import Any

from admission.client.calls import Call
from admission.client.session import Session
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket
from tests.admission.client.sidecar import MemorySidecar, Policy, admit


class Wire:
    """`up` opens a stream, `pump` carries messages until both sides are quiet."""

    def __init__(self, policy: Policy = admit, **settings: Any) -> None:
        self.sidecar = MemorySidecar(policy)
        self.now = 100.0
        self.session = Session(
            ClientSettings(**settings), identity=b"s" * 16, name="test", random=lambda: 0.5, now=self.now
        )
        self.messages = 0

    def up(self) -> Wire:
        """A stream opens and Hello is exchanged."""
        self.session.opened(self.now)
        self.pump()
        return self

    def down(self) -> list[Call]:
        """The stream breaks (or cannot be opened)."""
        if self.session.link.state.value == "down":
            self.session.opened(self.now)
        return self.session.closed("broken", self.now)

    def pump(self) -> list[Call]:
        """Everything that is to be said is said and answered."""
        touched: list[Call] = []
        while (message := self.session.take(self.now)) is not None:
            self.messages += 1
            assert self.messages < 10_000_000, "the two never fall silent"
            answer = self.sidecar.apply(message)
            if answer.seq:
                touched += self.session.received(answer, self.now)
        return touched

    def ask(self, **ticket: Any) -> Call:
        """One question, carried to the sidecar."""
        call = self.session.acquire(Ticket(**ticket), self.now)
        self.pump()
        return call

    def after(self, seconds: float) -> list[Call]:
        """Time passes, and what is due is done."""
        self.now += seconds
        decided = self.session.wake(self.now)
        self.pump()
        return decided

    def held(self) -> int:
        """What the client believes to hold."""
        return int(self.session.stats()["held"])
