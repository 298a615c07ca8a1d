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
    turn_at: float = float("inf")
    """From when on it has been passed for long enough."""
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


BY_ARRIVAL = ("fifo", "fit")
OTHERS = 3.0
"""Whoever has been passed for long enough goes first; then so many times its cost goes to others. Thus none starves, and those
that were passed, mostly large ones, do not crowd out the rest."""
_Entry = tuple[float, int, Waiter]
Test = Callable[[Waiter], bool]


class Line:
    """One class. Entries of those that left stay until they come to the front or outnumber the others.

    Args:
        waiting: who is in the queue still, by ticket; kept by its owner.
        order: who goes first.
    """

    def __init__(self, waiting: dict[TicketId, Waiter], order: Order = "fifo") -> None:
        self.order = order
        self._waiting = waiting
        self._entries: list[_Entry] = []
        self._turns: list[_Entry] = []
        self._sequence = 0
        self._owed = 0.0

    def __len__(self) -> int:
        """Entries, those of waiters that left included."""
        return max(len(self._entries), len(self._turns))

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its place (it may have waited before)."""
        self._sequence += 1
        heapq.heappush(self._entries, (waiter.key(self.order), self._sequence, waiter))
        if self.order not in BY_ARRIVAL:
            heapq.heappush(self._turns, (waiter.turn_at, self._sequence, waiter))

    def reorder(self, order: Order) -> None:
        """Serve in another order from now on."""
        if order == self.order:
            return
        waiting = [entry[2] for entry in sorted(self._entries, key=lambda entry: entry[1])]
        self.order, self._entries, self._turns = order, [], []
        for waiter in waiting:
            if self._waits(waiter):
                self.add(waiter)

    def served(self, waiter: Waiter, now: float) -> None:
        """It was taken out to run: in its turn, if nobody has been passed for longer."""
        next_turn = self._front(self._turns)
        in_turn = waiter.turn_at <= now and (next_turn is None or waiter.turn_at <= next_turn.turn_at)
        self._owed = OTHERS * waiter.cost.total if in_turn else self._owed - waiter.cost.total

    def first(self, passes: Test, now: float) -> Waiter | None:
        """The next one that `passes`."""
        due = self._front(self._turns) if self._owed <= 0 else None
        if due is not None and due.turn_at <= now and passes(due):
            return due
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
        for entries in (self._entries, self._turns):
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
