"""How late do spans arrive, and whose clock is wrong?"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass

BUCKETS_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
TOO_LATE_S = 10.0
AHEAD_S = -0.05
MINUTE_S = 60.0
MAX_SENDERS = 256


@dataclass(slots=True)
class _Floor:
    """The least lateness of a sender, over this minute and the one before."""

    since: float
    now_s: float
    before_s: float | None = None

    def add(self, late_s: float, now: float) -> None:
        if now - self.since >= MINUTE_S:
            recent = now - self.since < 2 * MINUTE_S
            self.before_s = self.now_s if recent else None
            self.since, self.now_s = now, late_s
        self.now_s = min(self.now_s, late_s)

    def floor_s(self) -> float:
        return self.now_s if self.before_s is None else min(self.now_s, self.before_s)


class Lateness:
    """Arrival minus end by the two wall clocks: counted in buckets, judged, and its floor kept for each sender."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._floors: OrderedDict[str, _Floor] = OrderedDict()

    def judge(self, sender: str, late_s: float, now: float) -> bool:
        """Whether a span this late still says how the engine does now; from ahead of our clock it does."""
        self._counts[bisect_left(BUCKETS_S, late_s)] += 1
        floor = self._floors.get(sender)
        if floor is None:
            floor = self._floors[sender] = _Floor(now, late_s)
            if len(self._floors) > MAX_SENDERS:
                self._floors.popitem(last=False)
        floor.add(late_s, now)
        self._floors.move_to_end(sender)
        return late_s <= TOO_LATE_S

    def counters(self) -> dict[str, int]:
        """The histogram, cumulative, by its upper bounds in seconds."""
        total, found = 0, {}
        for bound, count in zip((*BUCKETS_S, float("inf")), self._counts, strict=True):
            total += count
            found[f"span_lateness_le_{bound:g}"] = total
        return found

    def warnings(self, now: float) -> list[str]:
        """One line for each sender heard in the last two minutes whose clock, or path, is off."""
        recent = ((s, f.floor_s()) for s, f in self._floors.items() if now - f.since < 2 * MINUTE_S)
        return [line for sender, floor_s in recent if (line := _complaint(sender, floor_s))]


def _complaint(sender: str, floor_s: float) -> str:
    if floor_s < AHEAD_S:
        return f"spans of {sender} end {-floor_s:.2f} s after they arrive: its clock is ahead of ours"
    if floor_s > TOO_LATE_S:
        return (
            f"spans of {sender} arrive {floor_s:.0f} s or more after their end and do not steer: "
            "its clock is behind, or they wait in a queue or a tail sampler"
        )
    return ""
