"""Who of one class goes next? Its waiters in the order that the class is served in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId

Order = Literal["deadline", "fifo", "fit", "newest", "slack", "cost"]
"""The earliest TTFT target first, which is the oldest where all have the same; the oldest; the oldest that fits; the
newest; the one that must start soonest to meet its TTFT; the cheapest."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A ticket in the queue. Monotonic seconds."""

    ticket: Ticket
    cost: Cost
    arrived_at: float
    deadline_at: float
    due_at: float = 0.0
    """When its first token should be there."""
    start_by: float = 0.0
    """When it must start for that."""
    full_at: float = float("-inf")
    """When it was last looked at in full and found that only the limit keeps it."""

    def key(self, order: Order) -> float:
        """Lowest goes first."""
        if order == "deadline":
            return self.due_at
        if order == "newest":
            return -self.arrived_at
        if order == "slack":
            return self.start_by
        return float(self.cost.total) if order == "cost" else self.arrived_at


NOBODY_STARVES = ("deadline", "fifo", "fit")
_Entry = tuple[float, int, Waiter]
Test = Callable[[Waiter], bool]


class Line:
    """One class. Entries of those that left stay until they come to the front or outnumber the others.

    Args:
        waiting: who is in the queue still, by ticket; kept by its owner.
        order: who goes first.
        overtaken_s: whoever has waited this long is passed by nobody any more.
    """

    def __init__(
        self, waiting: dict[TicketId, Waiter], order: Order = "fifo", overtaken_s: float = 0.0
    ) -> None:
        self.order = order
        self.overtaken_s = overtaken_s
        self._waiting = waiting
        self._entries: list[_Entry] = []
        self._oldest: list[_Entry] = []
        self._sequence = 0

    def __len__(self) -> int:
        """Entries, those of waiters that left included."""
        return max(len(self._entries), len(self._oldest))

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its place (it may have waited before)."""
        self._sequence += 1
        heapq.heappush(self._entries, (waiter.key(self.order), self._sequence, waiter))
        if self.order not in NOBODY_STARVES:
            heapq.heappush(self._oldest, (waiter.arrived_at, self._sequence, waiter))

    def reorder(self, order: Order, overtaken_s: float) -> None:
        """Serve in another order from now on."""
        self.overtaken_s = overtaken_s
        if order == self.order:
            return
        waiting = [entry[2] for entry in sorted(self._entries, key=lambda entry: entry[1])]
        self.order, self._entries, self._oldest = order, [], []
        for waiter in waiting:
            if self._waits(waiter):
                self.add(waiter)

    def first(self, passes: Test, now: float) -> Waiter | None:
        """The next one that `passes`."""
        oldest = self._front(self._oldest)
        if oldest is not None and now - oldest.arrived_at >= self.overtaken_s and passes(oldest):
            return oldest
        head = self._front(self._entries)
        if head is None or passes(head):
            return head
        # The head is held: step around it, in order, unless nobody passes (which is quicker to find out).
        if not any(self._waits(entry[2]) and passes(entry[2]) for entry in self._entries):
            return None
        ordered = (entry[2] for entry in sorted(self._entries) if self._waits(entry[2]))
        return next(waiter for waiter in ordered if passes(waiter))

    def compact(self, count: int) -> None:
        """Drop the entries of those that left before they outnumber the `count` that wait."""
        for entries in (self._entries, self._oldest):
            if len(entries) > 64 + 2 * count:
                entries[:] = [entry for entry in entries if self._waits(entry[2])]
                heapq.heapify(entries)

    def _front(self, entries: list[_Entry]) -> Waiter | None:
        while entries and not self._waits(entries[0][2]):
            heapq.heappop(entries)
        return entries[0][2] if entries else None

    def _waits(self, waiter: Waiter) -> bool:
        # By identity: a ticket that came back after a broken stream has a new waiter under its old id.
        return self._waiting.get(waiter.ticket.id) is waiter
