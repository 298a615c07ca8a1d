"""One client's session: what each of its numbers stands for, and the answers on their way to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from admission.core.model import Queued, Rejected, Shed, TicketId
from admission.runtime.settings import SessionConfig
from admission.server.overload import Echo
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words


class State(IntEnum):
    """What a number stands for."""

    WAITING = 1
    HELD = 2
    DONE = 3


@dataclass(slots=True, eq=False)
class Entry:
    """The story of one number. `target` None: it passed untracked."""

    target: str | None
    state: State
    asked_at: float
    seq: int = 0
    """Of the response that carried its grant; 0 when the client is known to have it."""
    answer: Queued | Rejected | Shed | None = None
    """The last answer; None with a state other than WAITING: it was admitted."""
    request_id: str = ""
    traceparent: str = ""
    id: TicketId | None = None
    """As the core knows it."""


@dataclass(slots=True)
class Written:
    """A response that the client has not acknowledged."""

    seq: int
    at: float
    grants: list[int]


def _nobody(*_: object) -> None:
    """No stream is there."""


class Session:
    """Numbers, counts and unsent answers of one client. It outlives its streams."""

    def __init__(self, owner: str, config: SessionConfig, now: float) -> None:
        self.owner = owner
        self.config = config
        self.entries: dict[int, Entry] = {}
        self.places: dict[int, tuple[float, float]] = {}
        """Arrival of waiters whose stream broke, and when to forget it."""
        self.used: set[str] = set()
        """Targets that know this session."""
        self.attach = 0
        self.attached = False
        self.client = ""
        self.waiting = 0
        self.held = 0
        self.untracked = 0
        """Permits held that no controller knows."""
        self.unseen = 0
        """Permits held whose grant the client has not acknowledged."""
        self.seen = 0
        self.renewed_at = now
        self.detached_at = now
        self.resync_asked_at = -1.0
        self.stalled = False
        self.echo = Echo()
        self.written: deque[Written] = deque()
        self.seq = 1
        self.out = wire.SessionResponse()
        self.grants: list[int] = []
        self.anything = False
        self.oldest_at: float | None = None
        """When the message came whose answers wait to be written."""
        self.notify: Callable[[], None] = _nobody
        """Told when there is something to write."""
        self.close: Callable[[str], None] = _nobody
        """Ends the stream, with the reason."""
        self.write_began_at: float | None = None
        self.free_at = now
        """Until when the last write was under way."""
        self.worked_s = 0.0
        """Longest time that a message took whose answers wait to be written."""
        self.breaking = False
        """The stream broke: what is shed now keeps its place for a while."""

    # ---- answers

    def answer(self, no: int) -> words.Decision:
        """Room for one decision in the next response."""
        if not self.anything:
            self.touch()
        return self.out.decisions.add(no=no)

    def touch(self) -> None:
        """There is something to write."""
        self.anything = True
        self.notify()

    def new_stream(self, attach: int) -> None:
        """Numbering of responses starts again; what was on its way is asked for again by the client."""
        self.attach, self.attached, self.stalled = attach, True, False
        self.written.clear()
        for entry in self.entries.values():
            entry.seq = 0
        self.seq, self.seen, self.unseen = 1, 0, 0
        self.out, self.grants, self.anything = wire.SessionResponse(), [], False
        self.echo, self.oldest_at, self.write_began_at = Echo(), None, None
        self.worked_s = 0.0

    def take(self, now: float) -> wire.SessionResponse | None:
        """The response to write now; None when there is nothing to say."""
        if not self.anything:
            return None
        out = self.out
        out.seq = self.seq
        self.written.append(Written(self.seq, now, self.grants))
        self.seq += 1
        self.out = wire.SessionResponse()
        self.grants = []
        self.anything = False
        self.oldest_at, self.worked_s = None, 0.0
        return out

    def took(self, now: float) -> float | None:
        """Seconds from the arrival of what `take` would write now to its decision and, as far as it is ours, its way out.

        While the last write is under way the client or the network is what takes time, and not we. None: no decision.
        """
        if self.oldest_at is None or not self.out.decisions:
            return None
        return max(self.worked_s, now - max(self.oldest_at, self.free_at))

    def acknowledge(self, seen: int, now: float) -> None:
        """The client has every response up to `seen`."""
        written = self.written
        seen = min(seen, self.seq - 1)
        while written and written[0].seq <= seen:
            each = written.popleft()
            if each.seq == seen:
                self.echo.round_trip(now - each.at, now)
            for no in each.grants:
                entry = self.entries.get(no)
                if entry is not None and entry.state is State.HELD and entry.seq == each.seq:
                    self.unseen -= 1
        self.seen = max(self.seen, seen)
        self.echo.unseen(now - written[0].at if written else None)

    # ---- states

    @property
    def tracked(self) -> int:
        """Permits held that a controller knows."""
        return self.held - self.untracked

    def end_untracked(self) -> int:
        """Nobody counts them and nobody else would end them; returns how many there were. Announced again, they are back."""
        gone = [
            no for no, entry in self.entries.items() if entry.state is State.HELD and entry.target is None
        ]
        for no in gone:
            self.end(self.entries.pop(no))
        return len(gone)

    def hold(self, no: int, entry: Entry) -> None:
        """The permit is given, in the response that is being gathered."""
        if entry.state is State.WAITING:
            self.waiting -= 1
        entry.state = State.HELD
        entry.seq = self.seq
        self.held += 1
        self.untracked += entry.target is None
        self.unseen += 1
        self.grants.append(no)

    def grant_again(self, no: int, entry: Entry) -> None:
        """The client asks again for what it holds: it has not got the answer."""
        if entry.seq <= self.seen:
            self.unseen += 1
        entry.seq = self.seq
        self.grants.append(no)

    def reinstated(self, no: int, target: str | None, now: float) -> None:
        """The client holds it already."""
        self.entries[no] = Entry(target, State.HELD, now)
        self.held += 1
        self.untracked += target is None

    def claim(self, entry: Entry) -> None:
        """The client showed that it knows of its permit."""
        if entry.seq > self.seen:
            self.unseen -= 1
        entry.seq = 0

    def end(self, entry: Entry) -> None:
        """It waits or is held no more."""
        if entry.state is State.WAITING:
            self.waiting -= 1
        elif entry.state is State.HELD:
            self.held -= 1
            self.untracked -= entry.target is None
            if entry.seq > self.seen:
                self.unseen -= 1
        entry.state = State.DONE
