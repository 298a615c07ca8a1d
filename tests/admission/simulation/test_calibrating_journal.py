"""From what a sidecar recorded of its own work, the engine behind it comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from admission.core.controller import ControllerConfig
from admission.core.model import Completion, Reading, Sample, Ticket, TicketId
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import JournalConfig
from admission.simulation.calibrating.driving import Driven, drive
from admission.simulation.calibrating.job import Wish, calibrate
from admission.simulation.calibrating.journal import read_journal
from admission.simulation.calibrating.measured import CalibrationError, Measured
from admission.vocabulary import Mode, Outcome, SignalKind, Source
from tests.admission.simulation.calibrated import TRUTH, arrivals

START = 5_000.0


class Sidecar:
    """A host in shadow with a journal; what happens on the engine is told to it in time order."""

    def __init__(self, folder: Path, targets: tuple[str, ...] = ("chat",)) -> None:
        self.now = START
        self.folder = folder / "journal"
        config = ControllerConfig(mode=Mode.SHADOW)
        self.host = Host([TargetSpec(name=name, config=config) for name in targets], clock=lambda: self.now)
        self.journal = Journal(self.folder, JournalConfig(), print)
        self.journal.start(self.host.controllers)
        self.host.record_to(self.journal)

    def live(self, happenings: list[tuple[float, Callable[[], object]]]) -> None:
        """Do each at its time, and close the journal."""
        for at_s, happen in sorted(happenings, key=lambda each: each[0]):
            self.now = START + at_s
            happen()
        self.journal.close()


def permits(host: Host, requests: list[Measured], driven: Driven) -> list[tuple[float, Callable[[], object]]]:
    """Every request asks, streams and ends as the engine has it."""
    happenings: list[tuple[float, Callable[[], object]]] = []
    for number, request in enumerate(requests):
        id = TicketId("client", number)
        ticket = Ticket(id, prompt_tokens=request.prompt_tokens, max_tokens=1_000)
        done = Completion(
            Outcome.OK,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            decode_s=float(driven.decode()[number]),
        )
        happenings += [
            (request.at_s, partial(host.submit, "chat", ticket)),
            (float(driven.first[number]), partial(host.first_token, "chat", id)),
            (float(driven.last[number]), partial(host.finish, "chat", id, done)),
        ]
    return happenings


def scrape(host: Host, at_s: float) -> Callable[[], object]:
    """What the engine says of itself."""
    said = {
        SignalKind.KV_CAPACITY_TOKENS: TRUTH.kv_capacity_tokens,
        SignalKind.WAITING: 0,
        SignalKind.KV_USAGE_RATIO: 0.1,
        SignalKind.RUNNING: 3,
    }
    readings = [Reading(kind, value, START + at_s, Source.SCRAPE, "m") for kind, value in said.items()]
    return lambda: [host.observe("chat", reading) for reading in readings]


async def test_an_engine_is_calibrated_from_a_journal(tmp_path: Path) -> None:
    """An SRE points the command at a day's journal and gets the engine that served it, capacity included."""
    sidecar, requests = Sidecar(tmp_path), arrivals(rounds=2, each=15)
    driven = drive(TRUTH, requests)
    sidecar.live(
        [*permits(sidecar.host, requests, driven), *((t, scrape(sidecar.host, t)) for t in (1.0, 2.0))]
    )

    outcome = calibrate([sidecar.folder], Wish(evaluations=20))
    assert outcome.config.kv_capacity_tokens == TRUTH.kv_capacity_tokens
    assert outcome.config.base_s == pytest.approx(TRUTH.base_s, rel=0.05)
    assert outcome.config.prefill_s_per_token == pytest.approx(TRUTH.prefill_s_per_token, rel=0.05)
    assert outcome.judged is not None
    assert max(abs(line.error) for line in outcome.judged.lines) < 0.05


async def test_permits_give_the_times_on_the_engine(tmp_path: Path) -> None:
    """Durations come from the permit, cached tokens from its completion; who failed is load and no more."""
    sidecar, requests = Sidecar(tmp_path), arrivals(each=2)
    driven = drive(TRUTH, requests)
    happenings = permits(sidecar.host, requests, driven)
    failed = TicketId("client", 999)
    happenings += [
        (0.5, lambda: sidecar.host.submit("chat", Ticket(failed, prompt_tokens=70))),
        (0.9, lambda: sidecar.host.finish("chat", failed, Completion(Outcome.ERROR, cached_tokens=30))),
        (1.0, scrape(sidecar.host, 1.0)),
    ]
    sidecar.live(happenings)

    recording = read_journal(sidecar.folder)
    assert len(recording.requests) == len(requests) + 1
    assert recording.kv_capacity_tokens == TRUTH.kv_capacity_tokens
    assert [(one.running, one.kv_ratio) for one in recording.series] == [(3, 0.1)]
    began = min(0.5, requests[0].at_s)
    known = {(one.prompt_tokens, one.output_tokens): one for one in recording.requests}
    for number, request in enumerate(requests):
        seen = known[request.prompt_tokens, request.output_tokens]
        assert seen.at_s == pytest.approx(request.at_s - began, abs=1e-6)
        assert seen.ttft_s == pytest.approx(driven.ttft(recording.clock)[number])
        assert seen.decode_s == pytest.approx(driven.decode()[number])
    assert known[70, 1] == replace(known[70, 1], ttft_s=None, decode_s=None, cached_tokens=30)


async def test_spans_are_taken_where_they_tell_more(tmp_path: Path) -> None:
    """Traffic that does not ask the sidecar is known from the engine's own spans alone."""
    sidecar = Sidecar(tmp_path)

    def span(at_s: float) -> Callable[[], object]:
        sample = Sample(START + at_s, Outcome.OK, e2e_s=2.0, ttft_s=0.5, prompt_tokens=100, output_tokens=16)
        return lambda: sidecar.host.sample("chat", sample)

    sidecar.live([(3.0, span(3.0)), (4.5, span(4.5))])
    first, second = read_journal(sidecar.folder).requests
    assert first == Measured(0.0, 100, 16, 0.5, 1.5)
    assert second.at_s == pytest.approx(1.5)


async def test_journals_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    """No journal, another target, several targets, no requests, a torn file: one line each."""
    with pytest.raises(CalibrationError, match="no journal, or nothing in it"):
        read_journal(tmp_path)
    sidecar = Sidecar(tmp_path, ("chat", "code"))
    sidecar.live([(1.0, scrape(sidecar.host, 1.0)), (1.0, lambda: sidecar.host.renew("x", ["code"]))])
    with pytest.raises(CalibrationError, match="several targets, choose one with --target: chat, code"):
        read_journal(sidecar.folder)
    with pytest.raises(CalibrationError, match="no target 'gpt' in the journal; there are chat, code"):
        read_journal(sidecar.folder, "gpt")
    with pytest.raises(CalibrationError, match="no finished requests"):
        read_journal(sidecar.folder, "chat")
    (tmp_path / "torn.tgj").write_bytes(b"nothing")
    with pytest.raises(CalibrationError, match="not a journal segment"):
        read_journal(tmp_path / "torn.tgj")
