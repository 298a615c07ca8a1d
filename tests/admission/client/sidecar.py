"""A sidecar in memory that keeps the Session rules: for tests of the session and of its shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from admission.client.settings import ClientSettings
from admission.v1.admission_service_pb2 import SessionRequest, SessionResponse
from admission.v1.types_pb2 import Decision, Finish, Ticket
from admission.vocabulary import Mode, Reason, Verdict

Policy = Callable[[Ticket], Decision | None]


def decision(no: int, verdict: int, reason: int = 0, **more: Any) -> Decision:
    """A decision, also with numbers that no enum has."""
    numbers: dict[str, Any] = {"verdict": int(verdict), "reason": int(reason)}
    return Decision(no=no, **numbers, **more)


def modes(**by_target: int) -> SessionResponse:
    """A message that tells modes."""
    told: Any = {target: int(mode) for target, mode in by_target.items()}
    return SessionResponse(modes=told)


def admit(ticket: Ticket) -> Decision:
    """Everything runs."""
    return decision(ticket.no, Verdict.ADMITTED, target="default")


def queue(ticket: Ticket) -> Decision:
    """Everything waits."""
    return decision(ticket.no, Verdict.QUEUED, position=3)


def silent(ticket: Ticket) -> None:
    """Nothing is answered."""


def refuse(reason: Reason, **more: Any) -> Policy:
    """Everything is refused."""
    return lambda ticket: decision(ticket.no, Verdict.REJECTED, reason, **more)


@dataclass
class MemorySidecar:
    """Applies requests in the order of the protocol and keeps books of what it believes is held."""

    policy: Policy = admit
    mode: Mode = Mode.ENFORCE
    max_waiting: int = 0
    boot: bytes = b"boot-1"
    held: set[int] = field(default_factory=set)
    waiting: dict[int, Ticket] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    tickets: list[Ticket] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    hellos: list[Any] = field(default_factory=list)
    progress: dict[int, int] = field(default_factory=dict)
    first_tokens: list[int] = field(default_factory=list)
    applied: int = 0
    mismatches: int = 0
    unknown_finishes: int = 0
    seq: int = 0
    newest: int = 0
    repeats: int = 0
    grants: dict[int, int] = field(default_factory=dict)
    """Number of the response that carried each grant."""

    def apply(self, message: SessionRequest) -> SessionResponse:
        """One request in, everything that it brings about out."""
        self.applied += 1
        out = SessionResponse()
        if message.HasField("hello"):
            self._hello(message, out)
        if message.resynced:
            self._resync(message)
        for no, chunks in zip(message.progress.no, message.progress.chunks, strict=True):
            self.progress[no] = self.progress.get(no, 0) + chunks
        self.first_tokens += message.first_tokens.no
        for finish in message.finishes:
            self.unknown_finishes += finish.no not in self.held
            self.finishes.append(finish)
            self._end(finish.no)
        for no in message.cancels:
            self.waiting.pop(no, None)
            self._end(no)
        for ticket in message.acquires:
            self._acquire(ticket, out)
        unseen = sum(self.grants.get(no, 0) > message.seen for no in self.held)
        if message.held_count != len(self.held) - unseen:
            self.mismatches += 1
            out.resync = True
        return self.numbered(out)

    def numbered(self, out: SessionResponse) -> SessionResponse:
        """The response with its place in the order; one that says nothing has none and is not sent."""
        if out.ByteSize():
            self.seq += 1
            out.seq = self.seq
        return out

    def grant(self, no: int) -> SessionResponse:
        """A waiter's turn has come."""
        self.waiting.pop(no)
        self._hold(no)
        return self.numbered(SessionResponse(decisions=[decision(no, Verdict.ADMITTED)]))

    def _hello(self, message: SessionRequest, out: SessionResponse) -> None:
        self.seq = 0
        self.waiting.clear()
        self.hellos.append(message.hello)
        self.grants.clear()
        self.held = {each.no for each in message.hello.held}
        out.welcome.boot = self.boot
        out.welcome.max_waiting = self.max_waiting
        out.welcome.heartbeat.FromMilliseconds(500)
        out.MergeFrom(modes(default=self.mode))

    def _resync(self, message: SessionRequest) -> None:
        announced = {each.no for each in message.held}
        self.held = announced | {no for no in self.held if self.grants.get(no, 0) > message.seen}

    def _hold(self, no: int) -> None:
        self.held.add(no)
        self.grants[no] = self.seq + 1

    def _acquire(self, ticket: Ticket, out: SessionResponse) -> None:
        if ticket.no <= self.newest:
            self._repeat(ticket, out)
            return
        self.newest = ticket.no
        copy = Ticket()
        copy.CopyFrom(ticket)
        self.tickets.append(copy)
        answer = self.policy(ticket)
        if answer is None:
            self.waiting[ticket.no] = copy
            return
        out.decisions.append(answer)
        if answer.verdict == int(Verdict.ADMITTED):
            self._hold(ticket.no)
        elif answer.verdict == int(Verdict.QUEUED):
            self.waiting[ticket.no] = copy

    def _repeat(self, ticket: Ticket, out: SessionResponse) -> None:
        """The same number gets the same answer; only a waiter has a reason to ask again."""
        assert ticket.no in self.waiting or ticket.no in self.held or ticket.no in self.done
        self.repeats += 1
        if ticket.no in self.waiting and self.policy is not silent:
            out.decisions.append(decision(ticket.no, Verdict.QUEUED, position=2))
        elif ticket.no in self.held:
            self.grants[ticket.no] = self.seq + 1
            out.decisions.append(decision(ticket.no, Verdict.ADMITTED))

    def _end(self, no: int) -> None:
        self.held.discard(no)
        self.done.add(no)


class MemoryStream:
    """A stream to the sidecar in memory; `say` pushes a message from its side, `end` ends it."""

    def __init__(self, sidecar: MemorySidecar) -> None:
        self._sidecar = sidecar
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self.half_closed = False

    async def read(self) -> Any:
        """The next answer."""
        return await self._answers.get()

    async def write(self, message: SessionRequest, /) -> None:
        """Goes through the wire format, as the real one does."""
        copy = SessionRequest.FromString(message.SerializeToString())
        answer = self._sidecar.apply(copy)
        if answer.seq:
            self.say(answer)

    def say(self, message: SessionResponse) -> None:
        """The sidecar says something."""
        self._answers.put_nowait(message)

    def end(self) -> None:
        """The stream ends."""
        self._answers.put_nowait(grpc.aio.EOF)

    async def done_writing(self) -> None:
        """Half-close: the sidecar frees everything and ends the stream."""
        self.half_closed = True
        self._sidecar.held.clear()
        self.end()

    def cancel(self) -> None:
        """Ends it now."""
        self.end()


class MemoryCarrier:
    """Carries streams to one sidecar; `down` makes it unreachable."""

    def __init__(self, sidecar: MemorySidecar) -> None:
        self.sidecar = sidecar
        self.streams: list[MemoryStream] = []
        self.down = False

    def __call__(self, settings: ClientSettings) -> MemoryCarrier:
        """What AsyncClient asks for."""
        return self

    def stream(self) -> MemoryStream:
        """Opens one."""
        stream = MemoryStream(self.sidecar)
        self.streams.append(stream)
        if self.down:
            stream.end()
        return stream

    async def close(self) -> None:
        """Nothing to close."""
