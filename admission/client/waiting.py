"""Calls without a final answer, and the times at which we stop waiting for one."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from admission.client.calls import Call, CallState


class WaitingRoom:
    """Calls by number, with one deadline each (a later one replaces it)."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._deadlines: list[tuple[float, int, Call]] = []
        self._entry = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls.values()))

    def first_queued(self) -> Call | None:
        """The call that has waited longest in the sidecar's queue."""
        return next((call for call in self._calls.values() if call.queued), None)

    def get(self, no: int) -> Call | None:
        """The call of that number, if it waits."""
        return self._calls.get(no)

    def add(self, call: Call) -> None:
        """The call waits under its present number."""
        self._calls[call.no] = call

    def remove(self, call: Call) -> bool:
        """The call waits no longer. False: it did not wait."""
        return self._calls.pop(call.no, None) is not None

    def empty(self) -> list[Call]:
        """Takes all calls out, in order; their deadlines stay."""
        calls = list(self._calls.values())
        self._calls.clear()
        return calls

    def set_deadline(self, call: Call, at: float) -> None:
        """Replaces the call's deadline, monotonic seconds."""
        call.deadline = at
        self._entry += 1
        heapq.heappush(self._deadlines, (at, self._entry, call))

    def due(self, now: float) -> list[Call]:
        """Calls whose deadline has come; each is returned once."""
        calls = []
        while self._deadlines and self._deadlines[0][0] <= now:
            at, _, call = heapq.heappop(self._deadlines)
            if _alive(call, at):
                call.deadline = 0.0
                calls.append(call)
        return calls

    def next_deadline(self) -> float | None:
        """The earliest deadline of a call that still waits."""
        while self._deadlines and not _alive(self._deadlines[0][2], self._deadlines[0][0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None


def _alive(call: Call, at: float) -> bool:
    return call.state is CallState.WAITING and call.deadline == at
