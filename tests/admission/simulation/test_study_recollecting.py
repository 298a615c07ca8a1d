"""A journal's traffic is simulated with a word on how much of it is known."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from admission.core.controller import ControllerConfig
from admission.core.model import Completion, Ticket, TicketId
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import JournalConfig
from admission.simulation.asking import AskedWronglyError
from admission.simulation.inputs.journal_trace import JournalReport
from admission.simulation.preparing import Asked, prepare
from admission.simulation.recollecting import recollect, recollected
from admission.vocabulary import Outcome


def recorded(folder: Path, *targets: str) -> Path:
    """A sidecar's journal: a request a second at each target, every other one ends."""
    now = 1_000.0
    specs = [TargetSpec(name=name, config=ControllerConfig()) for name in targets]
    host = Host(specs, clock=lambda: now, random=Random(1))
    journal = Journal(folder / "journal", JournalConfig(), lambda warning: None)
    journal.start(host.controllers)
    host.record_to(journal)
    for no in range(20):
        now += 1.0
        for target in targets:
            host.submit(target, Ticket(TicketId(target, no), prompt_tokens=100 + no))
            if no % 2:
                host.finish(target, TicketId(target, no), Completion(Outcome.OK, output_tokens=7))
    journal.close()
    return folder / "journal"


async def test_people_are_told_how_much_was_guessed(tmp_path: Path) -> None:
    """A figure from lengths that nobody saw is worth less, and must say so."""
    prepared = prepare(Asked(journal=recorded(tmp_path, "chat"), policies=("none",)))

    assert prepared.facts["traffic"]["requests"] == 20
    assert prepared.facts["journal"]["known"] == 10
    assert "50 % by the engine's own count, 50 % as others were lately" in prepared.lines[1]
    assert prepared.study.run().runs[0].report.offered_requests == 20


async def test_of_several_targets_one_is_chosen(tmp_path: Path) -> None:
    """Two targets are two engines: on one they would be a load that nobody had."""
    folder = recorded(tmp_path, "chat", "embed")

    with pytest.raises(AskedWronglyError, match=r"--target \(chat, embed\)"):
        recollect(folder, "")
    assert recollect(folder, "embed").requests == 20
    assert prepare(Asked(journal=folder, target="chat")).facts["traffic"]["requests"] == 20


def test_segments_that_cannot_be_read_are_named() -> None:
    """What is missing must not look like silence."""
    report = JournalReport(
        requests=4, counted=3, learned=1, refused=1, unreadable=["0000000002.tgj: damaged"]
    )

    assert recollected(report) == (
        "lengths of answers: 75 % by streamed chunks, 25 % as others were lately; 25 % had been refused; "
        "could not be read to the end: 0000000002.tgj: damaged"
    )
