"""What the engine says of itself: readings by member, merged, with their age."""

from __future__ import annotations

from typing import NamedTuple

from admission.core.model import Reading
from admission.vocabulary import SignalKind

MAX_MEMBERS = 256
GONE_S = 60.0
_SUMMED = frozenset(
    {
        SignalKind.RUNNING,
        SignalKind.WAITING,
        SignalKind.KV_CAPACITY_TOKENS,
        SignalKind.PREEMPTIONS_TOTAL,
        SignalKind.GENERATION_TOKENS_TOTAL,
        SignalKind.PROMPT_TOKENS_TOTAL,
        SignalKind.TTFT_COUNT_TOTAL,
        SignalKind.ENGINE_REJECTIONS_TOTAL,
        SignalKind.MAX_SEQUENCES,
    }
)
_SELDOM = frozenset({SignalKind.KV_CAPACITY_TOKENS, SignalKind.MAX_SEQUENCES})
"""Facts that do not go stale: they change with a restart only."""


class _Kept(NamedTuple):
    value: float
    at: float
    interval_s: float


_NOBODY: dict[str, _Kept] = {}


class EngineReadings:
    """The newest reading of each kind and member. Missing and stale are None: never 0, never 1."""

    def __init__(self) -> None:
        self._kept: dict[SignalKind, dict[str, _Kept]] = {}

    def take(self, reading: Reading) -> None:
        """Keep a reading; an older one than what is here, or one member too many, is left out."""
        members = self._kept.setdefault(reading.kind, {})
        before = members.get(reading.member)
        if before is None:
            self._forget_gone(members, reading.at)
            if len(members) < MAX_MEMBERS:
                members[reading.member] = _Kept(reading.value, reading.at, 1.0)
        elif reading.at >= before.at:
            gap_s = reading.at - before.at
            interval_s = before.interval_s + 0.2 * (min(gap_s, 60.0) - before.interval_s)
            members[reading.member] = _Kept(reading.value, reading.at, interval_s)

    @staticmethod
    def _forget_gone(members: dict[str, _Kept], now: float) -> None:
        """A member that comes may stand in for one that left: what has been silent for a minute is gone."""
        for name in [name for name, kept in members.items() if now - kept.at > GONE_S]:
            del members[name]

    def rise(self, reading: Reading) -> float:
        """How much a member's counter rose since its last reading; 0 for a first one, or after a gap or a restart."""
        before = self._kept.get(reading.kind, {}).get(reading.member)
        if before is None or reading.at - before.at > max(3.0 * before.interval_s, 3.0):
            return 0.0
        return max(0.0, reading.value - before.value)

    def leads(self, reading: Reading) -> bool:
        """Is this the member whose readings mark the rounds of scrapes: the first one that is fresh?"""
        members = self._kept.get(reading.kind, {})
        fresh = (
            name for name, kept in members.items() if reading.at - kept.at <= max(3.0 * kept.interval_s, 3.0)
        )
        return next(fresh, reading.member) == reading.member

    def value(self, kind: SignalKind, now: float) -> float | None:
        """The sum over members, or the worst of them for a ratio; None when no member is fresh."""
        # Asked several times a decision, nearly always of one member: no lists here.
        total: float | None = None
        for kept in self._kept.get(kind, _NOBODY).values():
            if now - kept.at > 3.0 and now - kept.at > 3.0 * kept.interval_s and kind not in _SELDOM:
                continue
            if total is None:
                total = kept.value
            else:
                total = total + kept.value if kind in _SUMMED else max(total, kept.value)
        return total

    def age(self, kind: SignalKind, now: float) -> float | None:
        """Seconds since the newest reading of that kind, None when there never was one."""
        return min((now - kept.at for kept in self._kept.get(kind, {}).values()), default=None)


class Untracked:
    """Work on the engine that did not pass us: what runs and waits there over what we have in flight."""

    KEPT_S = 15.0
    """Without another scrape what was seen counts for so long, then it is unknown."""

    def __init__(self) -> None:
        self._recent: list[float] = []
        self._at = float("-inf")

    def on_scrape(self, engine: float, ours: int, now: float) -> None:
        """Compare. The smaller of two scrapes counts, since a single one races with our own events."""
        self._recent = [*self._recent[-1:], max(0.0, engine - ours)]
        self._at = now

    def count(self, now: float) -> float:
        """Requests that are not ours."""
        return min(self._recent, default=0.0) if now - self._at <= self.KEPT_S else 0.0

    def forget(self) -> None:
        """The engine restarted: nothing is known."""
        self._recent = []


class Slots:
    """The engine's sequence limit, learned from its own waiting count."""

    def __init__(self) -> None:
        self.learned: int | None = None
        self.stated: int | None = None
        self._most_running = 0.0
        self._before: tuple[float, float] = (0.0, 0.0)
        self._confirmed = 0

    def on_scrape(self, running: float, waiting: float, kv_ratio: float | None) -> None:
        """Waiting requests beside free KV, with running at its highest twice over, is the slot limit."""
        if self.learned is not None:
            self._check(running, waiting)
        elif self._full(running, waiting) and kv_ratio is not None and kv_ratio < 0.9:
            self.learned, self._confirmed = int(running), 0
        self._most_running = max(self._most_running, running)
        self._before = (running, waiting)

    def _full(self, running: float, waiting: float) -> bool:
        highest = waiting > 0 and running >= max(1.0, self._most_running)
        return highest and self._before[0] == running and self._before[1] > 0

    def _check(self, running: float, waiting: float) -> None:
        if self.learned is not None and running > self.learned:
            self.learned = None
        elif running == self.learned and waiting > 0:
            self._confirmed += 1

    def room(self, finishes_per_s: float, now: float) -> int | None:
        """How many may be on the engine at once, None when no limit is known."""
        if self.learned is None:
            return self.stated + 4 if self.stated is not None else None
        margin = int(0.25 * finishes_per_s)
        if self._confirmed < 5 or now % 30.0 < 2.0:
            # Now and then one more than fits, so that a limit learned too low is found out.
            margin = max(1, margin)
        return self.learned + margin

    def forget(self) -> None:
        """The engine restarted, maybe with other settings."""
        self.learned = None
        self._most_running = 0.0
        self._before = (0.0, 0.0)
