"""What the client knows about its way to the sidecar: connected or not, silent or not, when to try again."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
_ATTACH_TIMEOUT_S = 5.0
_MISSES_TO_SILENCE = 3
_SILENCE_S = 5.0


class LinkState(Enum):
    """Where the stream stands."""

    DOWN = "down"
    ATTACHING = "attaching"
    """Hello is on its way, no Welcome yet."""
    ATTACHED = "attached"


class Link:
    """State of the stream, backoff between attempts, and missed decisions. `random` returns 0 to 1.

    Questions that were out at the same time and got no answer are one miss, not several: one hiccup of 250 ms is
    no reason to stop asking. Three misses one after the other, with no decision between them, are.
    """

    def __init__(self, random: Callable[[], float], timeout_s: float, now: float) -> None:
        self._random, self._timeout_s = random, timeout_s
        self.state = LinkState.DOWN
        self.attach = 0
        self.reconnect_at = now
        self.hangup = False
        """The shell shall close the stream: it leads to nobody."""
        self.boot = b""
        self.heartbeat_s = 0.5
        self.max_waiting = 0
        self.seen = 0
        self.leaving = False
        """The sidecar said that it stops soon."""
        self.unreachable_told = False
        self._failures = 0
        self._misses = 0
        self._missed_at = now
        self._probe_until = 0.0
        self._attach_deadline = 0.0
        self._last_received = now
        self._silent_since = now
        self._silent_until: float | None = None

    def away(self, now: float) -> str:
        """Why asking is of no use now; empty when it is worth a try."""
        if self.leaving:
            return "sidecar is stopping"
        if now < self._probe_until or (self._silent_until is not None and now < self._silent_until):
            return "sidecar does not answer"
        if self.state is LinkState.DOWN and self._failures:
            return "no sidecar"
        return ""

    def opened(self, now: float) -> None:
        """A stream was opened; Hello goes first."""
        self.state, self.attach = LinkState.ATTACHING, self.attach + 1
        self._attach_deadline = now + _ATTACH_TIMEOUT_S
        self.seen, self.hangup, self.leaving = 0, False, False

    def welcomed(self, boot: bytes) -> bool:
        """The sidecar took us. Returns True when it is another one than before (it restarted)."""
        restarted = self.boot not in (b"", boot)
        self.state, self.boot = LinkState.ATTACHED, boot
        self._failures = 0
        self.unreachable_told = False
        self.answered()
        return restarted

    def closed(self, now: float) -> None:
        """The stream ended or could not be opened."""
        self._failures = 0 if self.state is LinkState.ATTACHED else self._failures + 1
        self.state, self.hangup, self.leaving = LinkState.DOWN, False, False
        delay = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self._failures, 16))
        self.reconnect_at = now + delay * (0.5 + 0.5 * self._random())

    def received(self, seq: int, now: float) -> None:
        """Any message came."""
        self.seen = seq or self.seen
        self._last_received = now

    def asked(self, now: float) -> None:
        """A question goes out. After a silence it is the probe: nobody else asks until it has its answer."""
        if self._misses >= _MISSES_TO_SILENCE:
            self._probe_until = now + self._timeout_s

    def answered(self) -> None:
        """A decision came: the sidecar is awake."""
        self._misses, self._silent_until = 0, None
        self._probe_until = 0.0

    def missed(self, asked_at: float, now: float) -> bool:
        """The question of `asked_at` got no answer. Returns True when the client stops asking because of it."""
        if asked_at < self._missed_at:
            return False
        self._missed_at, self._probe_until = now, 0.0
        self._misses += 1
        if self._misses < _MISSES_TO_SILENCE:
            return False
        self._silent_since, self._silent_until = now, now + _SILENCE_S
        return True

    def wake(self, now: float) -> None:
        """Ends a silence that is over (then one question probes), and gives up on a dead stream."""
        if self.state is LinkState.ATTACHING and now >= self._attach_deadline:
            self.hangup = True
        if self._silent_until is not None and now >= self._silent_until:
            self._silent_until = None
            self.hangup = self.state is LinkState.ATTACHED and self._last_received < self._silent_since

    def next_wakeup(self) -> float | None:
        """The next time at which `wake` has something to do, monotonic seconds."""
        times = []
        if self.state is LinkState.ATTACHING and not self.hangup:
            times.append(self._attach_deadline)
        if self._silent_until is not None:
            times.append(self._silent_until)
        return min(times, default=None)

    def quiet_for(self, now: float) -> float:
        """Seconds since the last message from the sidecar."""
        return now - self._last_received
