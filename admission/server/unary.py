"""Acquire, Report and Release for callers that cannot hold a stream."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admission.core.model import Admitted, Event, Finished, LeaseExpired, Queued, Rejected, Shed, TicketId
from admission.runtime.host import Host
from admission.runtime.settings import OverloadConfig, UnaryConfig
from admission.server import translate
from admission.server.early import Early
from admission.server.overload import LoopLag
from admission.server.session import State
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words

_NO = 1
_PLACES = 16_384
Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Lease:
    """One acquire of a unary caller. It is its own owner, so that it is renewed by itself."""

    owner: str
    key: Key | None
    target: str | None
    asked_at: float
    state: State = State.WAITING
    answer: Queued | Admitted | Rejected | Shed | None = None
    decided: asyncio.Event | None = None
    callers: int = 0
    """RPCs that wait for the answer now."""
    left_at: float = 0.0
    """When the last of them went."""
    answered: bool = False
    """An RPC took the final answer along."""
    request_id: str = ""
    traceparent: str = ""

    @property
    def spent(self) -> bool:
        """It was a permit and has ended."""
        return self.state is State.DONE and (self.answer is None or type(self.answer) is Admitted)


class _Names:
    """Names that nobody can guess: 16 random bytes in hex, drawn many at a time."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def next(self) -> str:
        """A new one."""
        if not self._drawn:
            drawn = secrets.token_hex(16 * 256)
            self._drawn = [drawn[at : at + 32] for at in range(0, len(drawn), 32)]
        return self._drawn.pop()


class Leases:
    """All unary permits by owner (the lease in hex) and by (peer, request_id)."""

    def __init__(
        self,
        host: Host,
        config: UnaryConfig,
        overload: OverloadConfig,
        tickets: translate.Tickets,
        early: Early,
        lag: LoopLag,
        note_decision: Callable[[float, float], None],
        lease_ttl_s: float,
    ) -> None:
        self._host, self._config, self._tickets, self._early, self._lag = host, config, tickets, early, lag
        self._behind_s = overload.behind_s
        self._note = note_decision
        self._ttl_s = lease_ttl_s
        self._names = _Names()
        self._leases: dict[str, Lease] = {}
        self._by_key: dict[Key, Lease] = {}
        self._queued: dict[str, Lease] = {}
        """Those that were ever queued and whose final answer nobody took yet."""
        self._untracked: dict[str, tuple[float, Lease]] = {}
        """Those that no controller knows and ends, by owner, with their last sign of life, the oldest first."""
        self._places: dict[Key, tuple[float, float]] = {}
        self._ended: deque[tuple[float, Lease]] = deque()
        self.counters = dict.fromkeys(
            (
                "acquires",
                "rejoined",
                "abandoned",
                "ignored_releases",
                "passed_untracked",
                "untracked_expired",
            ),
            0,
        )

    def __len__(self) -> int:
        """Leases that wait or are held."""
        return len(self._leases) - len(self._ended)

    @property
    def tracked(self) -> int:
        """Permits held that a controller knows."""
        return sum(lease.state is State.HELD and lease.target is not None for lease in self._leases.values())

    # ---- methods

    async def acquire(self, request: wire.AcquireRequest, context: Any) -> wire.AcquireResponse:
        """A decision at once, or QUEUED after max_hold; the same request_id rejoins its place."""
        came = self._host.now()
        ticket = request.ticket
        request_id, traceparent = translate.identity(ticket)
        lease = self._find(request_id, context)
        if lease is None:
            lease = self._new(request_id, traceparent, context, came)
            self._ask(lease, ticket, came)
        if lease.state is State.WAITING:
            await self._hold(lease)
        response = wire.AcquireResponse()
        self._answer(lease, response.decision)
        lease.answered = lease.state is not State.WAITING
        self._note(self._host.now() - came, came)
        return response

    async def report(self, request: wire.ReportRequest, _context: Any) -> wire.ReportResponse:
        """Renews leases, tells first tokens and progress, returns the leases that are not held."""
        held = [self._held(lease) for lease in request.leases]
        for lease in held:
            if lease is None:
                continue
            if lease.target is not None:
                self._host.renew(lease.owner, (lease.target,))
            else:
                self._renew_untracked(lease)
        self._first_tokens(held, request.first_tokens)
        self._progress(held, request.progress)
        pairs = zip(request.leases, held, strict=True)
        return wire.ReportResponse(lost=[name for name, lease in pairs if lease is None])

    async def release(self, request: wire.ReleaseRequest, context: Any) -> wire.ReleaseResponse:
        """Gives a permit back; a second time nothing happens."""
        lease = self._named(request, context)
        if lease is None or lease.state is State.DONE:
            self.counters["ignored_releases"] += 1
            return wire.ReleaseResponse(known=False)
        id = TicketId(lease.owner, _NO)
        if lease.target is None:
            self._done(lease)
        elif lease.state is State.WAITING:
            self._host.cancel(lease.target, id)
        else:
            self._host.finish(lease.target, id, translate.completion(request.finish))
            self._done(lease)
        return wire.ReleaseResponse(known=True)

    # ---- acquiring

    def _find(self, request_id: str, context: Any) -> Lease | None:
        """What this request_id has already. A permit that has ended is no answer: whoever asks again wants another."""
        if not request_id:
            return None
        lease = self._by_key.get((peer_of(context), request_id))
        if lease is None or lease.spent:
            return None
        self.counters["rejoined"] += 1
        return lease

    def _new(self, request_id: str, traceparent: str, context: Any, now: float) -> Lease:
        key = (peer_of(context), request_id) if request_id else None
        lease = Lease(self._names.next(), key, None, now, request_id=request_id, traceparent=traceparent)
        self._leases[lease.owner] = lease
        if key is not None:
            self._by_key[key] = lease
        return lease

    def _ask(self, lease: Lease, ticket: words.Ticket, now: float) -> None:
        self.counters["acquires"] += 1
        target = lease.target = self._host.routes.find(*translate.route(ticket))
        late = self._lag.behind
        if target is None or (late and not self._early.enforces(target)):
            self.counters["passed_untracked"] += 1
            lease.target, lease.state = None, State.HELD
            self._renew_untracked(lease)
            return
        place = self._places.pop(lease.key, None) if lease.key is not None else None
        if place is not None:
            lease.asked_at = place[0]
        read = self._tickets.read(lease.owner, _NO, ticket, now - lease.asked_at)
        if late:
            self._early.overloaded(target, read, self._lag.lag_s, self._behind_s)
        else:
            self._host.submit(target, read)

    def _renew_untracked(self, lease: Lease) -> None:
        self._untracked.pop(lease.owner, None)
        self._untracked[lease.owner] = (self._host.now(), lease)

    @property
    def hold_s(self) -> float:
        """How long an answer is held back now. Half when we are short of time: what waits in gRPC comes on top."""
        return self._config.max_hold_s * (0.5 if self._lag.strained else 1.0)

    async def _hold(self, lease: Lease) -> None:
        """Waits for the end of the queue, at most max_hold; a caller that leaves takes its ticket along."""
        if lease.decided is None:
            lease.decided = asyncio.Event()
            self._queued[lease.owner] = lease
        lease.callers += 1
        try:
            async with asyncio.timeout(self.hold_s):
                await lease.decided.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if lease.callers == 1:
                self._abandon(lease)
            raise
        finally:
            lease.callers -= 1
            lease.left_at = self._host.now()

    def _abandon(self, lease: Lease) -> None:
        """Nobody waits for the answer any more: the place is remembered for a while, the permit is not kept."""
        self.counters["abandoned"] += 1
        if lease.key is not None and self._by_key.get(lease.key) is lease:
            del self._by_key[lease.key]
            if len(self._places) < _PLACES:
                self._places[lease.key] = (lease.asked_at, self._host.now() + self._config.place_s)
        if lease.target is not None:
            self._host.cancel(lease.target, TicketId(lease.owner, _NO))
        self._done(lease)

    def _answer(self, lease: Lease, decision: words.Decision) -> None:
        answer = lease.answer
        if lease.spent:
            # Given back by another call while this one was on its way out.
            translate.gone(decision, lease.target or "")
        elif answer is None:
            decision.verdict = translate.ADMITTED  # type: ignore[assignment]
            decision.detail = "untracked: no target claims it, or the sidecar is too busy"
        else:
            translate.decide(decision, answer, lease.target or "")
        if decision.verdict == translate.ADMITTED:
            decision.lease = bytes.fromhex(lease.owner)
            translate.set_duration(decision.lease_ttl, self._ttl_s)

    # ---- reporting and releasing

    def _held(self, name: bytes) -> Lease | None:
        lease = self._leases.get(name.hex())
        return lease if lease is not None and lease.state is State.HELD else None

    def _named(self, request: wire.ReleaseRequest, context: Any) -> Lease | None:
        if request.lease:
            return self._leases.get(request.lease.hex())
        key = (peer_of(context), translate.id_of(request.request_id))
        return self._by_key.get(key) if request.request_id else None

    def _first_tokens(self, held: list[Lease | None], first: words.FirstTokens) -> None:
        for index in first.no:
            lease = held[index] if index < len(held) else None
            if lease is not None and lease.target is not None:
                self._host.first_token(lease.target, TicketId(lease.owner, _NO))

    def _progress(self, held: list[Lease | None], progress: words.Progress) -> None:
        for index, chunks, age_ms in zip(progress.no, progress.chunks, progress.age_ms, strict=False):
            lease = held[index] if index < len(held) else None
            if lease is not None and lease.target is not None:
                self._host.progress(lease.target, [(TicketId(lease.owner, _NO), chunks, age_ms * 1e-3)])

    # ---- answers

    def on_event(self, id: TicketId, _target: str, event: Event, _now: float) -> bool:
        """An event about a ticket. False when it is not one of ours."""
        lease = self._leases.get(id.owner)
        if lease is None:
            return False
        self._route(lease, event)
        return True

    def _route(self, lease: Lease, event: Event) -> None:
        kind = type(event)
        if kind is Queued:
            lease.answer = event  # type: ignore[assignment]
            return
        if kind is LeaseExpired or kind is Finished:
            self._done(lease)
            return
        lease.answer = event  # type: ignore[assignment]
        if kind is Admitted:
            lease.state = State.HELD
            # Nobody may be there: then the caller has rejoin_s to come for it.
            lease.left_at = self._host.now()
        else:
            self._done(lease)
        if lease.decided is not None:
            lease.decided.set()

    def _done(self, lease: Lease) -> None:
        if lease.state is State.DONE:
            return
        lease.state = State.DONE
        self._untracked.pop(lease.owner, None)
        self._ended.append((self._host.now(), lease))
        if len(self._ended) > self._config.memo_entries:
            self._forget_oldest()

    def tick(self, now: float) -> None:
        """A few times a second: waiters nobody asks about, places and answers that may be forgotten."""
        while self._ended and self._ended[0][0] < now - self._config.memo_s:
            self._forget_oldest()
        self._end_untracked(now)
        gone = now - self._config.rejoin_s
        for lease in list(self._queued.values()):
            if lease.state is State.DONE or lease.answered:
                del self._queued[lease.owner]
            elif not lease.callers and lease.left_at < gone:
                self._abandon(lease)
        for key in [key for key, (_, until) in self._places.items() if until < now]:
            del self._places[key]

    def _end_untracked(self, now: float) -> None:
        """As a controller ends those it knows, a TTL after the last sign of life."""
        for renewed_at, lease in list(self._untracked.values()):
            if now - renewed_at < self._ttl_s:
                return
            self.counters["untracked_expired"] += 1
            self._done(lease)

    def _forget_oldest(self) -> None:
        _, lease = self._ended.popleft()
        self._leases.pop(lease.owner, None)
        if lease.key is not None and self._by_key.get(lease.key) is lease:
            del self._by_key[lease.key]

    def origin(self, id: TicketId) -> tuple[str, str] | None:
        """Request id and traceparent that a ticket came with; None when it is not a unary one."""
        lease = self._leases.get(id.owner)
        return (lease.request_id, lease.traceparent) if lease else None


def peer_of(context: Any) -> str:
    """Who calls, without the port, which changes with every connection."""
    peer: str = context.peer()
    return peer.rpartition(":")[0] if peer.startswith("ipv") else peer
