"""Is a signal missing, fresh or stale? The age at which it is stale follows the interval at which it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar, NamedTuple

from admission.core.model import Reading
from admission.vocabulary import SignalKind, Source
from telemetry.link import SignalReport

_INTERVALS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class StalenessConfig:
    """When a reading is too old. Seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    intervals: float = 3.0
    """A signal is stale after this many of its median intervals."""
    floor_s: float = 3.0
    ceiling_s: float = 120.0
    frozen_s: float = 30.0
    """A KV usage above 0 that stays the same this long with nothing running is called frozen."""
    signals: int = 4096
    """At most this many signals are followed; the one silent for longest goes first."""

    def __post_init__(self) -> None:
        """ValueError for bounds that cannot hold."""
        if not 0.0 < self.floor_s <= self.ceiling_s:
            raise ValueError("floor_s: must be above 0 and not above ceiling_s")
        if self.intervals < 1.0 or self.frozen_s <= 0.0 or self.signals < 1:
            raise ValueError("intervals and signals must be at least 1, frozen_s above 0")


class SignalKey(NamedTuple):
    """Which signal: a target's, of one kind, from one source and member."""

    target: str
    kind: SignalKind
    source: Source
    member: str


@dataclass(slots=True)
class _Track:
    """What is known of one signal."""

    at: float
    last: float
    lowest: float
    highest: float
    changed_at: float
    count: int = 1
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_INTERVALS))


class Staleness:
    """Follows every signal by its readings. Pure: the caller passes `now`, monotonic seconds."""

    def __init__(self, config: StalenessConfig | None = None) -> None:
        self._config = config or StalenessConfig()
        self._tracks: dict[SignalKey, _Track] = {}
        self._expected: dict[tuple[str, SignalKind, Source], None] = {}
        self._notes: dict[tuple[str, str, str], SignalReport] = {}

    def expect(self, target: str, kinds: Iterable[SignalKind], source: Source) -> None:
        """Signals that are reported as missing until their first reading comes."""
        for kind in kinds:
            self._expected[target, kind, source] = None

    def saw(self, target: str, reading: Reading) -> None:
        """A reading came. One that is older than the last of its signal counts, and changes nothing else."""
        key = SignalKey(target, reading.kind, reading.source, reading.member)
        track = self._tracks.get(key)
        if track is not None:
            _follow(track, reading)
            return
        self._make_room()
        value = reading.value
        self._tracks[key] = _Track(reading.at, value, value, value, reading.at)

    def note(self, report: SignalReport) -> None:
        """A receiver's own word on a signal: its warning joins ours of the same name, else it is shown as it is."""
        key = (report.target, report.name, report.source)
        if key in self._notes or len(self._notes) < self._config.signals:
            self._notes[key] = report

    def state(self, key: SignalKey, now: float) -> str:
        """`fresh`, `stale`, or `missing` when it was never seen."""
        track = self._tracks.get(key)
        if track is None:
            return "missing"
        return "fresh" if now - track.at <= self._allowed_s(track) else "stale"

    def allowed_age_s(self, key: SignalKey) -> float | None:
        """The age from which a signal is stale, None while it is missing."""
        track = self._tracks.get(key)
        return None if track is None else self._allowed_s(track)

    def unchanged_s(self, key: SignalKey, now: float) -> float | None:
        """For how long a signal that comes has had the same value, None when it is missing or stale."""
        track = self._tracks.get(key)
        if track is None or self.state(key, now) != "fresh":
            return None
        return now - track.changed_at

    def reports(self, now: float) -> list[SignalReport]:
        """Every signal: the followed ones, the expected ones that never came, and what receivers noted."""
        shared = self._shared_kinds()
        notes = dict(self._notes)
        found = []
        for key, track in self._tracks.items():
            report = self._report(key, track, now, with_member=key[:3] in shared)
            noted = notes.pop((report.target, report.name, report.source), None)
            if noted is not None and noted.warning:
                report.warning = noted.warning
            found.append(report)
        seen = {key[:3] for key in self._tracks}
        missing = [_missing(*expected) for expected in self._expected if expected not in seen]
        return found + missing + list(notes.values())

    def _allowed_s(self, track: _Track) -> float:
        config = self._config
        if not track.intervals:
            return config.floor_s
        return min(max(config.intervals * median(track.intervals), config.floor_s), config.ceiling_s)

    def _make_room(self) -> None:
        if len(self._tracks) >= self._config.signals:
            oldest = min(self._tracks, key=lambda key: self._tracks[key].at)
            del self._tracks[oldest]

    def _shared_kinds(self) -> set[tuple[str, SignalKind, Source]]:
        """Signals that several members have, so that their names need the member."""
        once: set[tuple[str, SignalKind, Source]] = set()
        shared: set[tuple[str, SignalKind, Source]] = set()
        for key in self._tracks:
            (shared if key[:3] in once else once).add(key[:3])
        return shared

    def _report(self, key: SignalKey, track: _Track, now: float, *, with_member: bool) -> SignalReport:
        return SignalReport(
            target=key.target,
            name=key.kind.name.lower() + (f" @{key.member}" if with_member else ""),
            source=key.source,
            state=self.state(key, now),
            age_s=max(0.0, now - track.at),
            interval_s=median(track.intervals) if track.intervals else None,
            last=track.last,
            lowest=track.lowest,
            highest=track.highest,
            warning=self._frozen(key, track, now),
            count=track.count,
        )

    def _frozen(self, key: SignalKey, track: _Track, now: float) -> str:
        """An engine that lost all its requests at once can leave its gauge as it was."""
        if key.kind is not SignalKind.KV_USAGE_RATIO or track.last <= 0.0:
            return ""
        running = key._replace(kind=SignalKind.RUNNING)
        idle = self._tracks.get(running)
        same_s, idle_s = self.unchanged_s(key, now), self.unchanged_s(running, now)
        if idle is None or idle.last > 0.0 or same_s is None or idle_s is None:
            return ""
        if min(same_s, idle_s) < self._config.frozen_s:
            return ""
        return f"stays at {track.last:.2f} with nothing running for {min(same_s, idle_s):.0f} s: it may be frozen"


def _follow(track: _Track, reading: Reading) -> None:
    track.count += 1
    if reading.at < track.at:
        return
    if reading.at > track.at:
        track.intervals.append(reading.at - track.at)
    if reading.value != track.last:
        track.changed_at = reading.at
    track.at, track.last = reading.at, reading.value
    track.lowest, track.highest = min(track.lowest, reading.value), max(track.highest, reading.value)


def _missing(target: str, kind: SignalKind, source: Source) -> SignalReport:
    return SignalReport(target=target, name=kind.name.lower(), source=source, state="missing")
