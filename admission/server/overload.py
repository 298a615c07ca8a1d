"""Is the sidecar itself too busy to decide in time? Judged by how late the loop runs and how old what it reads is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from admission.runtime.processor import Usage, thread_usage
from admission.runtime.settings import OverloadConfig

_WINDOW_S = 0.5
_LATE_SHARE = 0.5
_BUSY_SHARE = 0.8
_LEAST_SHARE = 0.3


class _Note(NamedTuple):
    at: float
    lag_s: float
    used: Usage


class LoopLag:
    """A timer that notes how late it fires and how much of the time the loop's thread computed.

    Being late is not enough: while other processes have the processor, or at the start, nobody is helped by a refusal.
    The thread is `busy` when it computed for most of the time in which it had a processor, and had one for a good part
    of the last half second. One long pause is not overload either (a garbage collection, a snapshot): the loop counts
    as behind when its thread is busy, it was late for half of the last half second, and is by more than `behind_s` now.
    """

    def __init__(
        self,
        config: OverloadConfig,
        clock: Callable[[], float],
        usage: Callable[[], Usage] = thread_usage,
    ) -> None:
        self._config = config
        self._clock = clock
        self._usage = usage
        self._due = 0.0
        self._judge_from = clock() + config.grace_s
        self._notes: deque[_Note] = deque()
        self._late_s = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        self.behind = False
        self.busy = False
        """The thread computed for most of the last half second: what is late is late because of us."""

    def start(self) -> None:
        """Probe from now on, on the running loop; judge when the first moments are over."""
        self._judge_from = self._clock() + self._config.grace_s
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Probe no more."""
        if self._handle:
            self._handle.cancel()

    def note(self, now: float, lag_s: float, used: Usage) -> None:
        """One probe fired `lag_s` late, when the thread had used so much in all."""
        notes = self._notes
        notes.append(_Note(now, lag_s, used))
        self.lag_s = lag_s
        self._late_s += lag_s
        while len(notes) > 1 and notes[0].at < now - _WINDOW_S:
            self._late_s -= notes.popleft().lag_s
        self.busy = now >= self._judge_from and self._is_busy(now - notes[0].at, notes[0].used, used)
        if self.behind:
            self.behind = self.busy and lag_s > self._config.recovered_s
        else:
            late = lag_s > self._config.behind_s and self._late_s > _LATE_SHARE * _WINDOW_S
            self.behind = self.busy and late

    def _is_busy(self, span_s: float, before: Usage, after: Usage) -> bool:
        ran_s = after.ran_s - before.ran_s
        could_run_s = span_s - (after.kept_waiting_s - before.kept_waiting_s)
        return span_s > 0.0 and ran_s > _BUSY_SHARE * could_run_s and ran_s > _LEAST_SHARE * span_s

    @property
    def strained(self) -> bool:
        """Whether answers take longer than their own work, already or soon."""
        return self.busy or self.lag_s > self._config.recovered_s

    def too_late(self, age_s: float) -> bool:
        """Whether input this old must be refused at once because the sidecar cannot keep up."""
        return self.behind or (self.busy and age_s > self._config.behind_s)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._clock() + self._config.probe_s
        self._handle = loop.call_later(self._config.probe_s, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock()
        self.note(now, max(now - self._due, 0.0), self._usage())
        self._schedule(loop)


class Echo:
    """How old is what this session sends when we read it?

    A message that acknowledges up to `seen` was written before the client had the answer after it. So the age
    of that answer, less the shortest round trip known, is a lower bound of the message's age, wherever it waited:
    in the client, the network, gRPC or the loop. No clock is compared with another.
    """

    __slots__ = ("_shortest_s", "_since", "age_s")

    def __init__(self) -> None:
        self._shortest_s = float("inf")
        self._since = 0.0
        self.age_s = 0.0

    def round_trip(self, took_s: float, now: float) -> None:
        """An acknowledgement came this long after its answer was written."""
        # The route may change: what was shortest a minute ago is forgotten slowly.
        if took_s < self._shortest_s or now - self._since > 60.0:
            self._shortest_s, self._since = took_s, now

    def unseen(self, written_s_ago: float | None) -> None:
        """A message came that does not know an answer written this long ago; None: it knows all."""
        if written_s_ago is None or self._shortest_s == float("inf"):
            self.age_s = 0.0
        else:
            self.age_s = max(written_s_ago - self._shortest_s, 0.0)
