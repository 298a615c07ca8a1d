"""All sessions: streams that come and go, answers on their way back, words to every client."""

from __future__ import annotations

from collections.abc import Iterator

from admission.core.model import (
    Admitted,
    Event,
    Finished,
    LeaseExpired,
    Queued,
    TicketId,
)
from admission.runtime.host import Host
from admission.runtime.settings import OverloadConfig, SessionConfig
from admission.server import translate
from admission.server.early import Early
from admission.server.inbox import Inbox
from admission.server.memo import Memo
from admission.server.overload import LoopLag
from admission.server.session import Entry, Session, State
from admission.v1 import admission_service_pb2 as wire

SESSION_ID_BYTES = 16


class SessionRefusedError(Exception):
    """The stream cannot be served; `kind` says whose fault it is."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Sessions:
    """All sessions, by owner (the session id in hex)."""

    def __init__(
        self,
        host: Host,
        config: SessionConfig,
        overload: OverloadConfig,
        tickets: translate.Tickets,
        early: Early,
        lag: LoopLag,
    ) -> None:
        self._host = host
        self.config = config
        self._early = early
        self._memo = Memo(config)
        self._inbox = Inbox(host, config, overload, tickets, early, lag, self._memo)
        self._sessions: dict[str, Session] = {}
        self.counters = self._inbox.counters | {"sessions_opened": 0, "streams_broken": 0, "stalls": 0}
        self._inbox.counters = self.counters
        self.receive = self._inbox.receive
        """Apply one message: (session, message, now)."""
        self.boot = b""
        self.lease_ttl_s = 30.0
        self.drain_until: float | None = None

    def __len__(self) -> int:
        """Sessions with a stream."""
        return sum(session.attached for session in self._sessions.values())

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    # ---- streams

    def attach(self, hello: wire.Hello, now: float) -> Session:
        """A stream begins. SessionRefusedError when it must not."""
        if len(hello.session) != SESSION_ID_BYTES:
            raise SessionRefusedError("invalid", f"hello.session: need {SESSION_ID_BYTES} bytes")
        owner = hello.session.hex()
        session = self._sessions.get(owner) or self._new(owner, now)
        if hello.attach <= session.attach and session.attach:
            raise SessionRefusedError("older", f"hello.attach {hello.attach} is not above {session.attach}")
        if session.attached:
            session.close("replaced by a newer stream")
            self.detach(session)
        session.new_stream(hello.attach or 1)
        session.client = translate.id_of(hello.client)
        self._host.attach(owner)
        self._welcome(session, self._inbox.announced(session, hello.held, now))
        return session

    def detach(self, session: Session) -> None:
        """The stream broke: its waiters go, their places and its permits stay for a while."""
        if not session.attached:
            return
        self.counters["streams_broken"] += 1
        session.attached, session.breaking = False, True
        session.detached_at = self._host.now()
        self._host.detach(session.owner)
        session.breaking = False

    def leave(self, session: Session) -> None:
        """The client said goodbye: all that it holds is free."""
        session.attached = False
        self._host.leave(session.owner)
        self._sessions.pop(session.owner, None)

    def _new(self, owner: str, now: float) -> Session:
        if len(self._sessions) >= self.config.max_sessions and not self._evict():
            raise SessionRefusedError("busy", f"{self.config.max_sessions} sessions are attached")
        self.counters["sessions_opened"] += 1
        session = self._sessions[owner] = Session(owner, self.config, now)
        return session

    def _evict(self) -> bool:
        gone = [each for each in self._sessions.values() if not each.attached and not each.tracked]
        if not gone:
            return False
        oldest = min(gone, key=lambda session: session.detached_at)
        del self._sessions[oldest.owner]
        return True

    def origin(self, id: TicketId) -> tuple[str, str] | None:
        """Request id and traceparent that a ticket came with; None when it is not of a session."""
        session = self._sessions.get(id.owner)
        entry = session.entries.get(id.no) if session else None
        return (entry.request_id, entry.traceparent) if entry else None

    # ---- answers

    def on_event(self, id: TicketId, target: str, event: Event, now: float) -> bool:
        """An event about a ticket: its session gets it in the next response. False when it is of no session."""
        owner, no = id
        session = self._sessions.get(owner)
        if session is None:
            return False
        entry = session.entries.get(no)
        if entry is not None and entry.state is not State.DONE:
            self._route(session, no, entry, target, event, now)
        return True

    def _route(self, session: Session, no: int, entry: Entry, target: str, event: Event, now: float) -> None:
        kind = type(event)
        if kind is Admitted:
            session.hold(no, entry)
            entry.answer = None
            translate.admit(session.answer(no), event, target)  # type: ignore[arg-type]
        elif kind is Queued:
            entry.answer = event  # type: ignore[assignment]
            translate.decide(session.answer(no), event, target)  # type: ignore[arg-type]
        elif kind is Finished:
            self._memo.end(session, no, entry, now)
        elif kind is LeaseExpired:
            session.end(entry)
            del session.entries[no]
        elif session.breaking:
            session.end(entry)
            del session.entries[no]
            session.places[no] = (entry.asked_at, session.detached_at + self.config.place_s)
        else:
            entry.answer = event  # type: ignore[assignment]
            translate.decide(session.answer(no), event, target)  # type: ignore[arg-type]
            self._memo.end(session, no, entry, now)

    @property
    def tracked(self) -> int:
        """Permits of all sessions that a controller knows."""
        return sum(session.tracked for session in self._sessions.values())

    def tick(self, now: float) -> None:
        """A few times a second: who does not read, what may be forgotten, modes that changed."""
        self._memo.trim(now)
        grace_s = max(each.lease.grace_s for each in self._host.configs.values())
        for session in list(self._sessions.values()):
            if session.untracked:
                self._end_untracked(session, now, grace_s)
            if session.attached:
                self._judge_reading(session, now)
            elif not session.held and session.detached_at < now - self.config.memo_s:
                del self._sessions[session.owner]
            if session.places:
                session.places = {no: place for no, place in session.places.items() if place[1] > now}
        if self._early.refresh():
            self.announce_modes()

    def _end_untracked(self, session: Session, now: float, grace_s: float) -> None:
        """As a controller ends those it knows: a while after the stream broke, or after the last sign of life."""
        silent = now - session.renewed_at >= self.lease_ttl_s
        if silent or (not session.attached and now - session.detached_at >= grace_s):
            self.counters["untracked_expired"] += session.end_untracked()

    def _judge_reading(self, session: Session, now: float) -> None:
        config = self.config
        began = session.write_began_at
        blocked = began is not None and now - began >= config.write_blocked_s
        unseen = bool(session.written) and now - session.written[0].at >= config.unseen_s
        if (blocked or unseen) != session.stalled:
            session.stalled = not session.stalled
            self.counters["stalls"] += session.stalled
            self._host.stalled(session.owner, session.stalled)

    # ---- words to clients

    def _welcome(self, session: Session, ended: list[int]) -> None:
        welcome = session.out.welcome
        welcome.boot = self.boot
        translate.set_duration(welcome.lease_ttl, self.lease_ttl_s)
        translate.set_duration(welcome.heartbeat, self.config.heartbeat_s)
        welcome.max_waiting = self.config.max_waiting
        welcome.unknown.extend(ended)
        self._say_modes(session)
        if self.drain_until is not None:
            self._say_drain(session, self.drain_until - self._host.now())
        session.touch()

    def announce_modes(self) -> None:
        """Tell every client the modes of all targets."""
        for session in self._sessions.values():
            if session.attached:
                self._say_modes(session)
                session.touch()

    def announce_drain(self, drain_s: float) -> None:
        """Tell every client that the sidecar stops in `drain_s` seconds."""
        self.drain_until = self._host.now() + drain_s
        for session in self._sessions.values():
            if session.attached:
                self._say_drain(session, drain_s)
                session.touch()

    def _say_modes(self, session: Session) -> None:
        for target, mode in self._early.modes().items():
            session.out.modes[target] = int(mode)  # type: ignore[assignment]

    def _say_drain(self, session: Session, drain_s: float) -> None:
        translate.set_duration(session.out.drain_in, max(drain_s, 0.0))
