"""The bounded queue: three classes with ageing that crosses them, deadlines by heap, cancel at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from admission.core.model import TicketId
from admission.core.queueing.line import Line, Order, Waiter
from admission.vocabulary import PriorityClass

__all__ = ["Queue", "Waiter"]


class Queue:
    """Waiters by class, each in its order. A waiter may gain one class for each `ageing_s` that it has waited."""

    def __init__(self, ageing_s: float) -> None:
        self.ageing_s = ageing_s
        self._waiters: dict[TicketId, Waiter] = {}
        self._by_owner: dict[str, dict[TicketId, None]] = {}
        self._lines = [Line(self._waiters) for _ in PriorityClass]
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._sequence = 0
        self.count = [0] * len(PriorityClass)
        self.prompt_tokens = [0] * len(PriorityClass)
        self.cost = [0] * len(PriorityClass)

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, id: TicketId) -> bool:
        return id in self._waiters

    def serve(self, priority: PriorityClass, order: Order) -> None:
        """Serve a class in that order."""
        self._lines[priority].reorder(order)

    def served(self, waiter: Waiter, now: float) -> None:
        """It was taken out to run."""
        self._lines[waiter.ticket.priority].served(waiter, now)

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its place."""
        self._sequence += 1
        id = waiter.ticket.id
        self._waiters[id] = waiter
        self._by_owner.setdefault(id.owner, {})[id] = None
        self._lines[waiter.ticket.priority].add(waiter)
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
        """The most urgent waiter that `passes`: by class (after ageing, when `aged`), the first in its line."""
        candidates = [head for line in self._lines if (head := line.first(passes, now)) is not None]
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

    def _waits(self, waiter: Waiter) -> bool:
        # By identity: a ticket that came back after a broken stream has a new waiter under its old id.
        return self._waiters.get(waiter.ticket.id) is waiter

    def _account(self, waiter: Waiter, sign: int) -> None:
        rank = waiter.ticket.priority
        self.count[rank] += sign
        self.prompt_tokens[rank] += sign * waiter.cost.prompt
        self.cost[rank] += sign * waiter.cost.total

    def _compact(self, rank: int) -> None:
        # Cancelled waiters leave their entries behind; drop them before they outnumber the live ones.
        self._lines[rank].compact(self.count[rank])
        if len(self._deadlines) > 64 + 2 * len(self._waiters):
            self._deadlines = [entry for entry in self._deadlines if self._waits(entry[2])]
            heapq.heapify(self._deadlines)
