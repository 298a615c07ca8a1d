"""What a client says on its session, applied in the order of the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from admission.core.model import TicketId
from admission.runtime.host import Host
from admission.runtime.settings import OverloadConfig, SessionConfig
from admission.server import translate
from admission.server.early import Early
from admission.server.memo import Memo
from admission.server.overload import LoopLag
from admission.server.session import Entry, Session, State
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words

_RENEW_S = 0.25
_RESYNC_S = 1.0
_COUNTERS = (
    "ignored_finishes",
    "unknown_progress",
    "resyncs",
    "reinstated",
    "freed_by_resync",
    "repeats",
    "passed_untracked",
    "untracked_expired",
)


class Inbox:
    """Takes messages of all sessions."""

    def __init__(
        self,
        host: Host,
        config: SessionConfig,
        overload: OverloadConfig,
        tickets: translate.Tickets,
        early: Early,
        lag: LoopLag,
        memo: Memo,
    ) -> None:
        self._host = host
        self._config = config
        self._slice_s, self._behind_s = overload.slice_s, overload.behind_s
        self._tickets = tickets
        self._early = early
        self._lag = lag
        self._memo = memo
        self.counters: dict[str, int] = dict.fromkeys(_COUNTERS, 0)

    def receive(self, session: Session, message: wire.SessionRequest, now: float) -> None:
        """Apply one message in the order of the protocol."""
        if message.acquires and session.oldest_at is None:
            session.oldest_at = now
        session.acknowledge(message.seen, now)
        if now - session.renewed_at >= _RENEW_S:
            session.renewed_at = now
            self._host.renew(session.owner, session.used)
        if message.resynced:
            self._resync(session, message, now)
        if message.HasField("progress"):
            self._progress(session, message.progress)
        if message.HasField("first_tokens"):
            self._first_tokens(session, message.first_tokens)
        for finish in message.finishes:
            self._finish(session, finish, now)
        for no in message.cancels:
            self.cancel(session, no)
        if message.acquires:
            self._acquires(session, message.acquires, now)
        if message.held_count != session.held - session.unseen:
            self._ask_resync(session, now)

    # ---- parts of a message

    def announced(
        self, session: Session, held: Iterable[wire.Held], now: float, *, insists: bool = False
    ) -> list[int]:
        """Takes in announced permits; returns the numbers that had ended here already.

        A client that `insists`, being asked what it holds, is believed even about those.
        """
        ended: list[int] = []
        new: dict[str | None, list[wire.Held]] = {}
        for each in held:
            entry = session.entries.get(each.no)
            if entry is not None and entry.state is State.HELD:
                session.claim(entry)
            elif entry is not None and entry.state is State.DONE and entry.answer is None and not insists:
                ended.append(each.no)
            elif session.held < self._config.max_held:
                if entry is not None:
                    self._forget_waiter(session, each.no, entry)
                target = self._host.routes.find(*translate.route(each.ticket))
                session.reinstated(each.no, target, now)
                new.setdefault(target, []).append(each)
        for target, permits in new.items():
            if target is not None:
                session.used.add(target)
                self._host.reinstate(target, [self._tickets.held(session.owner, each) for each in permits])
                self.counters["reinstated"] += len(permits)
        return ended

    def _forget_waiter(self, session: Session, no: int, entry: Entry) -> None:
        """The client runs it although we refused it or let it wait: what it says is the truth."""
        waited = entry.state is State.WAITING
        session.end(entry)
        del session.entries[no]
        if waited and entry.target is not None:
            self._host.cancel(entry.target, TicketId(session.owner, no))

    def _resync(self, session: Session, message: wire.SessionRequest, now: float) -> None:
        self.counters["resyncs"] += 1
        self.announced(session, message.held, now, insists=True)
        announced = {each.no for each in message.held}
        lost = [
            no
            for no, entry in session.entries.items()
            if entry.state is State.HELD and entry.seq <= session.seen and no not in announced
        ]
        for no in lost:
            entry = session.entries.pop(no)
            session.end(entry)
            if entry.target is not None:
                self._host.cancel(entry.target, TicketId(session.owner, no))
        self.counters["freed_by_resync"] += len(lost)

    def _progress(self, session: Session, progress: words.Progress) -> None:
        owner, entries = session.owner, session.entries
        items: dict[str, list[tuple[TicketId, int, float]]] = {}
        for no, chunks, age_ms in zip(progress.no, progress.chunks, progress.age_ms, strict=False):
            entry = entries.get(no)
            if entry is None or entry.state is not State.HELD:
                self._unknown(session, entry)
            elif entry.target is not None:
                items.setdefault(entry.target, []).append((TicketId(owner, no), chunks, age_ms * 1e-3))
        for target, each in items.items():
            self._host.progress(target, each)

    def _first_tokens(self, session: Session, first: words.FirstTokens) -> None:
        for no in first.no:
            entry = session.entries.get(no)
            if entry is None or entry.state is not State.HELD:
                self._unknown(session, entry)
            elif entry.target is not None:
                self._host.first_token(entry.target, TicketId(session.owner, no))

    def _finish(self, session: Session, finish: words.Finish, now: float) -> None:
        no = finish.no
        entry = session.entries.get(no)
        if entry is None or entry.state is State.DONE:
            self.counters["ignored_finishes"] += 1
        elif entry.state is State.WAITING:
            # It ran without waiting for us, and is over.
            self.cancel(session, no)
        else:
            # Ended first: what the core says about it needs no answer.
            self._memo.end(session, no, entry, now)
            if entry.target is not None:
                id = entry.id or TicketId(session.owner, no)
                self._host.finish(entry.target, id, translate.completion(finish))

    def cancel(self, session: Session, no: int) -> None:
        """Takes a question back, or a permit; anything else is ignored."""
        entry = session.entries.get(no)
        if entry is None or entry.state is State.DONE:
            return
        if entry.target is not None:
            self._host.cancel(entry.target, TicketId(session.owner, no))
        self._memo.end(session, no, entry, self._host.now())

    def _acquires(self, session: Session, tickets: Iterable[words.Ticket], now: float) -> None:
        late = self._lag.too_late(session.echo.age_s)
        for count, ticket in enumerate(tickets, 1):
            if not late and count % 64 == 0:
                late = self._lag.busy and self._host.now() - now > self._slice_s
            self._acquire(session, ticket, now, late)

    def _acquire(self, session: Session, ticket: words.Ticket, now: float, late: bool) -> None:
        no = ticket.no
        entry = session.entries.get(no)
        if entry is not None:
            self._repeat(session, no, entry)
            return
        target = self._host.routes.find(*translate.route(ticket))
        session.entries[no] = entry = Entry(target, State.WAITING, now, 0, None, *translate.identity(ticket))
        session.waiting += 1
        full = session.waiting > self._config.max_waiting or session.held >= self._config.max_held
        if target is None or ((late or full) and not self._early.enforces(target)):
            self._pass(session, no, entry, target)
            return
        place = session.places.pop(no, None)
        if place is not None:
            entry.asked_at = place[0]
        read = self._tickets.read(session.owner, no, ticket, now - entry.asked_at)
        if read.waited_s:
            entry.asked_at = now - read.waited_s
        entry.id = read.id
        session.used.add(target)
        if late:
            self._early.overloaded(target, read, max(session.echo.age_s, self._lag.lag_s), self._behind_s)
        elif full:
            self._early.session_full(target, read, session.waiting, self._config.max_waiting)
        else:
            self._host.submit(target, read)

    def _pass(self, session: Session, no: int, entry: Entry, target: str | None) -> None:
        """Nobody's ticket, or no time to judge it where nothing is enforced: it runs and is not counted in."""
        entry.target = None
        self.counters["passed_untracked"] += 1
        session.hold(no, entry)
        decision = session.answer(no)
        decision.verdict = translate.ADMITTED  # type: ignore[assignment]
        decision.detail = "untracked: " + ("the sidecar is too busy" if target else "no target claims it")

    def _repeat(self, session: Session, no: int, entry: Entry) -> None:
        """The same key gets the same answer."""
        self.counters["repeats"] += 1
        decision = session.answer(no)
        if entry.answer is not None:
            translate.decide(decision, entry.answer, entry.target or "")
        else:
            decision.verdict = translate.ADMITTED  # type: ignore[assignment]
            decision.target = entry.target or ""
            if entry.state is State.HELD:
                session.grant_again(no, entry)

    # ---- agreement

    def _unknown(self, session: Session, entry: Entry | None) -> None:
        """Progress of a permit that is not held here: unless it just ended, ask what the client holds."""
        self.counters["unknown_progress"] += 1
        if entry is None:
            self._ask_resync(session, self._host.now())

    def _ask_resync(self, session: Session, now: float) -> None:
        if now - session.resync_asked_at < _RESYNC_S:
            return
        session.resync_asked_at = now
        session.out.resync = True
        session.touch()
