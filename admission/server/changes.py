"""The latest changes of a target and why: a climb of the limit is one of them, however many steps it took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from admission.core.model import GateChanged, LimitChanged, Why

MAX_CHANGES = 50
LIMIT = "limit"


@dataclass(slots=True)
class Change:
    """One move, or several steps upwards by one source. Unix seconds of the last step and of the first."""

    at: float
    since: float
    what: str
    old: str
    new: str
    why: Why
    growth: bool = False
    count: int = 1


class Changes:
    """The last 50, oldest first."""

    def __init__(self) -> None:
        self._ring: deque[Change] = deque(maxlen=MAX_CHANGES)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._ring)

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, event: LimitChanged | GateChanged, at: float) -> None:
        """Keeps it. The limit grows each second, and must not push out what people look for: cuts and gates."""
        if isinstance(event, GateChanged):
            self._ring.append(Change(at, at, event.gate, event.old, event.state, event.why))
            return
        growth = event.new > event.old
        last = self._ring[-1] if self._ring else None
        if growth and last is not None and last.growth and last.why.source is event.why.source:
            last.at, last.new, last.why, last.count = at, str(event.new), event.why, last.count + 1
        else:
            self._ring.append(Change(at, at, LIMIT, str(event.old), str(event.new), event.why, growth))
