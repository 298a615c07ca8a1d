"""Scrapes an engine's own metrics page: how loaded it says it is, and whether it answers at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from admission.core.model import Reading
from admission.vocabulary import EngineKind, SignalKind, Source
from telemetry.config import TargetBinding
from telemetry.link import SignalReport
from telemetry.receivers import Emit
from telemetry.receivers.exposition import Page, read_page
from telemetry.receivers.fetch import FetchError, FetchLimits, fetch

EXPECTED = (SignalKind.RUNNING, SignalKind.WAITING, SignalKind.KV_USAGE_RATIO)
"""What every page should have; the rest is nice to have."""


@dataclass(slots=True)
class Member:
    """One engine process of a target, and what its page said last."""

    target: str
    url: str
    name: str
    engine: EngineKind = EngineKind.UNKNOWN
    scrapes: int = 0
    failing: bool = False


def members(targets: Sequence[TargetBinding]) -> list[Member]:
    """Every URL of every target. A member is named by host:port, by the whole URL where that is not unique."""
    found = []
    for target in targets:
        places = [urlsplit(url).netloc.rpartition("@")[2] for url in target.metrics_urls]
        for url, place in zip(target.metrics_urls, places, strict=True):
            found.append(Member(target.name, url, place if places.count(place) == 1 else url))
    return found


def limits_for(interval_s: float) -> FetchLimits:
    """An overloaded engine answers late, which is not the same as gone: at least 2 s, at most 5 s."""
    return FetchLimits(total_s=min(max(3.0 * interval_s, 2.0), 5.0))


class ScrapeReceiver:
    """GETs every member's page each `interval_s` seconds and emits what it says, with the time of arrival.

    Each scrape emits ENGINE_UP: 1 for a page of a known engine, 0 for anything else. Other signals are emitted
    only when the page has them. The report `engine_up` says in its warning why a scrape failed; a report named
    `engine <kind>` (such as `engine vllm`) says which engine it is. In a pool ` @member` follows the name.
    """

    name = "scrape"

    def __init__(
        self,
        targets: Sequence[TargetBinding],
        *,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = members(targets)
        self._interval_s = interval_s
        self._limits = limits_for(interval_s)
        self._clock = clock

    async def run(self, emit: Emit) -> None:
        """Scrapes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for member in self._members:
                tasks.create_task(self._follow(member, emit))

    async def _follow(self, member: Member, emit: Emit) -> None:
        due = self._clock()
        while True:
            tell(member, await self._scrape(member), self._clock(), emit, pooled=self._pooled(member))
            due = max(due + self._interval_s, self._clock())
            await asyncio.sleep(due - self._clock())

    async def _scrape(self, member: Member) -> Page:
        try:
            return read_page(await fetch(member.url, self._limits))
        except FetchError as error:
            return Page(problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a server sends must not end the receiver
            return Page(problem=f"{type(error).__name__}: {error}")

    def _pooled(self, member: Member) -> bool:
        return sum(other.target == member.target for other in self._members) > 1


def tell(member: Member, page: Page, now: float, emit: Emit, *, pooled: bool = False) -> None:
    """Emits what one scrape of a member found. `now` in monotonic seconds."""
    member.scrapes += 1
    emit.count("scrapes")
    if page.invalid:
        emit.count("scrape_invalid_values", page.invalid)
    if page.problem:
        emit.count("scrape_failures")
    _tell_reading(member, SignalKind.ENGINE_UP, 0.0 if page.problem else 1.0, now, emit)
    for kind, value in page.values.items():
        _tell_reading(member, kind, value, now, emit)
    _tell_engine(member, page, emit, f" @{member.name}" if pooled else "")
    _tell_failing(member, page.problem, emit)


def _tell_reading(member: Member, kind: SignalKind, value: float, now: float, emit: Emit) -> None:
    emit.reading(member.target, Reading(kind, value, now, Source.SCRAPE, member.name))


def _tell_engine(member: Member, page: Page, emit: Emit, suffix: str) -> None:
    """The kind is known from the first good page on; it changes when another engine answers there."""
    emit.signal(_report(member, f"engine_up{suffix}", page.problem))
    if not page.problem and page.engine is not member.engine:
        if member.engine is not EngineKind.UNKNOWN:
            gone = f"{page.engine} answers there now"
            emit.signal(_report(member, f"engine {member.engine}{suffix}", gone))
        member.engine = page.engine
    if member.engine is not EngineKind.UNKNOWN:
        emit.signal(_report(member, f"engine {member.engine}{suffix}", page.problem))


def _report(member: Member, name: str, problem: str) -> SignalReport:
    return SignalReport(
        target=member.target,
        name=name,
        source=Source.SCRAPE,
        state="missing" if problem else "fresh",
        warning=problem,
        count=member.scrapes,
    )


def _tell_failing(member: Member, problem: str, emit: Emit) -> None:
    if problem or member.failing:
        text = f"{member.target}: {member.url}: {problem}" if problem else ""
        emit.warn(f"scrape:{member.target}:{member.name}", text)
    member.failing = bool(problem)
