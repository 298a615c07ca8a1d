"""The bounded queue: three classes with ageing that crosses them, deadlines by heap, cancel at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId
from admission.vocabulary import PriorityClass


@dataclass(slots=True, eq=False)
class Waiter:
    """A ticket in the queue. Monotonic seconds."""

    ticket: Ticket
    cost: Cost
    arrived_at: float
    deadline_at: float


_Entry = tuple[float, int, Waiter]


class Queue:
    """Waiters by class, oldest first. A waiter may gain one class for each `ageing_s` that it has waited."""

    def __init__(self, ageing_s: float) -> None:
        self.ageing_s = ageing_s
        self._waiters: dict[TicketId, Waiter] = {}
        self._by_owner: dict[str, dict[TicketId, None]] = {}
        self._order: list[list[_Entry]] = [[] for _ in PriorityClass]
        self._deadlines: list[_Entry] = []
        self._sequence = 0
        self.count = [0] * len(PriorityClass)
        self.prompt_tokens = [0] * len(PriorityClass)
        self.cost = [0] * len(PriorityClass)

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, id: TicketId) -> bool:
        return id in self._waiters

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its place by arrival (it may have waited before)."""
        self._sequence += 1
        id = waiter.ticket.id
        self._waiters[id] = waiter
        self._by_owner.setdefault(id.owner, {})[id] = None
        heapq.heappush(self._order[waiter.ticket.priority], (waiter.arrived_at, self._sequence, waiter))
        heapq.heappush(self._deadlines, (waiter.deadline_at, self._sequence, waiter))
        self._account(waiter, 1)

    def remove(self, id: TicketId) -> Waiter | None:
        """Take a waiter out; None when it is not there."""
        waiter = self._waiters.pop(id, None)
        if waiter is not None:
            owned = self._by_owner[id.owner]
            del owned[id]
            if not owned:
                del self._by_owner[id.owner]
            self._account(waiter, -1)
            self._compact(waiter.ticket.priority)
        return waiter

    def pick(self, passes: Callable[[Waiter], bool], now: float, *, aged: bool) -> Waiter | None:
        """The most urgent waiter that `passes`: by class (after ageing, when `aged`), then by arrival."""
        candidates = [
            head for head in (self._first(rank, passes) for rank in PriorityClass) if head is not None
        ]
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        return min(candidates, key=lambda waiter: (self.rank(waiter, now, aged=aged), waiter.arrived_at))

    def rank(self, waiter: Waiter, now: float, *, aged: bool) -> int:
        """The class, one better for each `ageing_s` waited when `aged`: 0 is the most urgent."""
        if not aged:
            return waiter.ticket.priority
        return max(0, waiter.ticket.priority - int((now - waiter.arrived_at) / self.ageing_s))

    def expired(self, now: float) -> Iterator[Waiter]:
        """Waiters past their deadline, taken out one by one."""
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = heapq.heappop(self._deadlines)[2]
            if self._waits(waiter):
                self.remove(waiter.ticket.id)
                yield waiter

    def next_deadline(self) -> float | None:
        """The earliest deadline of a waiter that is still there."""
        while self._deadlines and not self._waits(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def owned_by(self, owner: str) -> list[TicketId]:
        """The waiters of one session."""
        return list(self._by_owner.get(owner, ()))

    def waiters(self) -> list[Waiter]:
        """All waiters, in order of entry."""
        return list(self._waiters.values())

    def ahead_of(self, priority: PriorityClass) -> tuple[int, int]:
        """How many waiters, and how much cost, a newcomer of that class finds before it."""
        end = priority + 1
        return sum(self.count[:end]), sum(self.cost[:end])

    def _first(self, rank: int, passes: Callable[[Waiter], bool]) -> Waiter | None:
        order = self._order[rank]
        while order and not self._waits(order[0][2]):
            heapq.heappop(order)
        if not order:
            return None
        head = order[0][2]
        if passes(head):
            return head
        # The head is held: step around it, in order, unless nobody passes (which is quicker to find out).
        if not any(self._waits(entry[2]) and passes(entry[2]) for entry in order):
            return None
        ordered = (entry[2] for entry in sorted(order) if self._waits(entry[2]))
        return next(waiter for waiter in ordered if passes(waiter))

    def _waits(self, waiter: Waiter) -> bool:
        # By identity: a ticket that came back after a broken stream has a new waiter under its old id.
        return self._waiters.get(waiter.ticket.id) is waiter

    def _account(self, waiter: Waiter, sign: int) -> None:
        rank = waiter.ticket.priority
        self.count[rank] += sign
        self.prompt_tokens[rank] += sign * waiter.cost.prompt
        self.cost[rank] += sign * waiter.cost.total

    def _compact(self, rank: int) -> None:
        # Cancelled waiters leave their heap entries behind; drop them before they outnumber the live ones.
        if len(self._order[rank]) > 64 + 2 * self.count[rank]:
            self._order[rank] = [entry for entry in self._order[rank] if self._waits(entry[2])]
            heapq.heapify(self._order[rank])
        if len(self._deadlines) > 64 + 2 * len(self._waiters):
            self._deadlines = [entry for entry in self._deadlines if self._waits(entry[2])]
            heapq.heapify(self._deadlines)
