"""What a decision costs: submit and finish through the host with gates and journal, beside a plain rate limiter."""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyrate_limiter import Limiter, Rate

from admission.core.controller import ControllerConfig
from admission.core.model import Completion, Ticket, TicketId
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import JournalConfig
from admission.vocabulary import Mode, Outcome
from benchmarks.result import Result

ROUNDS = 9
PAIRS = 4_000
IN_FLIGHT = 16
TARGET = "default"
BAR = 1.5


def run() -> Iterator[Result]:
    """Medians of alternating rounds, so that both see the same machine."""
    ours, bare, peer = asyncio.run(_measure())
    yield Result("core: submit + finish, without journal", bare * 1e6, "us")
    yield Result("core: submit + finish, with journal", ours * 1e6, "us")
    yield Result("pyrate-limiter: try_acquire", peer * 1e6, "us")
    ratio = ours / peer
    yield Result("core with journal over pyrate-limiter", ratio, "x", f"at most {BAR}", ratio <= BAR)


async def _measure() -> tuple[float, float, float]:
    limiter = Limiter(Rate(10_000_000, 1_000))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder), JournalConfig(), warn=print)
        plain, recorded = _host(), _host()
        journal.start(recorded.controllers)
        recorded.record_to(journal)
        figures = [
            (
                _pairs(recorded, f"a{n}"),
                _pairs(plain, f"b{n}"),
                _per_call(lambda: limiter.try_acquire("a", blocking=False)),
            )
            for n in range(ROUNDS)
        ]
        journal.close()
    ours, bare, peer = zip(*figures, strict=True)
    return statistics.median(ours), statistics.median(bare), statistics.median(peer)


def _host() -> Host:
    config = dataclasses.replace(ControllerConfig(), mode=Mode.ENFORCE)
    host = Host([TargetSpec(name=TARGET, config=config)])
    host.start()
    return host


def _pairs(host: Host, owner: str) -> float:
    """Seconds for one submit and one finish with a window of permits in flight."""
    done = Completion(Outcome.OK, prompt_tokens=100, output_tokens=100)
    tickets = [Ticket(TicketId(owner, no), prompt_tokens=100, max_tokens=100) for no in range(PAIRS)]
    begun = time.perf_counter()
    for no, ticket in enumerate(tickets):
        host.submit(TARGET, ticket)
        if no >= IN_FLIGHT:
            host.finish(TARGET, tickets[no - IN_FLIGHT].id, done)
    for ticket in tickets[-IN_FLIGHT:]:
        host.finish(TARGET, ticket.id, done)
    return (time.perf_counter() - begun) / PAIRS


def _per_call(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(PAIRS):
        call()
    return (time.perf_counter() - begun) / PAIRS
