"""Remembers what ended, for a minute and within bounds, so that a repeated key gets the same answer."""

from __future__ import annotations

from collections import deque

from admission.runtime.settings import SessionConfig
from admission.server.session import Entry, Session, State


class Memo:
    """Ended numbers of all sessions in the order of their end."""

    def __init__(self, config: SessionConfig) -> None:
        self._memo_s = config.memo_s
        self._max = config.memo_entries
        self._ended: deque[tuple[float, Session, int]] = deque()

    def end(self, session: Session, no: int, entry: Entry, now: float) -> None:
        """The number waits or is held no more; ending it twice is the same."""
        if entry.state is State.DONE:
            return
        session.end(entry)
        self._ended.append((now, session, no))
        if len(self._ended) > self._max:
            self._forget_oldest()

    def trim(self, now: float) -> None:
        """Forget what ended too long ago."""
        while self._ended and self._ended[0][0] < now - self._memo_s:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, session, no = self._ended.popleft()
        entry = session.entries.get(no)
        if entry is not None and entry.state is State.DONE:
            del session.entries[no]
