"""A journal of the product's own making becomes the traffic that went in."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean

import pytest

from admission.core.controller import ControllerConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Completion, Flow, Held, Ticket, TicketId
from admission.runtime import segments
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import JournalConfig
from admission.simulation.inputs.arrival import Arrival, TraceError
from admission.simulation.inputs.journal_trace import HORIZON_S, JournalTrace
from admission.vocabulary import Mode, Outcome, PriorityClass

SMALL = JournalConfig(
    batch=16, chunk_bytes=500, segment_bytes=2_000, buffer_bytes=2_000_000, max_bytes=40_000_000
)
WHOLE = JournalConfig()
ACME = Flow("tacme", "m", "/v1/chat/completions")


class Sidecar:
    """A host that records, under the test's clock."""

    def __init__(
        self,
        folder: Path,
        config: JournalConfig = WHOLE,
        targets: tuple[str, ...] = ("only",),
        now: float = 1_000.0,
        limit_tokens: int = 10_000_000,
    ) -> None:
        self.now = now
        self.folder = folder / "journal"
        core = ControllerConfig(mode=Mode.ENFORCE, limit=FixedConfig(limit_tokens=limit_tokens))
        specs = [TargetSpec(name=name, config=core) for name in targets]
        self.host = Host(specs, clock=lambda: self.now, random=Random(3))
        self.journal = Journal(self.folder, config, lambda warning: None)
        self.journal.start(self.host.controllers)
        self.host.record_to(self.journal)

    def ask(self, no: int, at_s: float, target: str = "only", **ticket: object) -> TicketId:
        """Submit a ticket at a moment."""
        self.now = at_s
        id = TicketId("o", no)
        given = {"flow": ACME, "prompt_tokens": 100, **ticket}
        self.host.submit(target, Ticket(id, **given))  # type: ignore[arg-type]
        return id

    def end(
        self, id: TicketId, at_s: float, outcome: Outcome = Outcome.OK, target: str = "only", **done: int
    ) -> None:
        """Finish it."""
        self.now = at_s
        self.host.finish(target, id, Completion(outcome, **done))

    def written(self) -> None:
        """Wait for the thread, which counts what the open segment holds."""
        done = threading.Event()
        for _ in range(10_000):
            if self.journal._writer._waiting_bytes == 0:
                return
            done.wait(0.001)
        raise AssertionError("the journal's thread does not keep up")

    def closed(self) -> Path:
        """The folder, all of it written."""
        self.journal.close()
        return self.folder


async def test_what_went_in_comes_out(tmp_path: Path) -> None:
    """When, how long, which class, whose, streamed or not: all of it as asked and as the engine counted."""
    sidecar = Sidecar(tmp_path)
    first = sidecar.ask(1, 1_000.5, max_tokens=400)
    second = sidecar.ask(
        2, 1_002.0, priority=PriorityClass.BATCH, flow=Flow(), prompt_tokens=70, stream=False, max_tokens=50
    )
    sidecar.end(second, 1_003.0, prompt_tokens=72, output_tokens=30)
    sidecar.end(first, 1_004.0, output_tokens=333, cached_tokens=64)

    trace = JournalTrace(sidecar.closed(), target="only")

    assert list(trace.arrivals()) == [
        Arrival(0.0, 100, 333, tenant="tacme", max_tokens=400, cached_tokens=64),
        Arrival(1.5, 72, 30, PriorityClass.BATCH, max_tokens=50, stream=False),
    ]
    assert (trace.report.requests, trace.report.known, trace.report.learned) == (2, 2, 0)


async def test_refused_requests_count_as_offered(tmp_path: Path) -> None:
    """They are the load that admission is about; their answers are as long as those of the same kind were."""
    sidecar = Sidecar(tmp_path, limit_tokens=5_000)
    lengths = [10, 20, 400]
    for no, length in enumerate(lengths):
        sidecar.end(sidecar.ask(no, 1_000.0 + no), 1_000.5 + no, output_tokens=length)
    for no in range(10, 90):
        sidecar.ask(no, 1_010.0 + no, prompt_tokens=9_000)

    trace = JournalTrace(sidecar.closed())
    refused = [arrival for arrival in trace.arrivals() if arrival.prompt_tokens == 9_000]

    assert (len(refused), trace.report.learned) == (80, 80)
    assert 70 < trace.report.refused < 80, "an idle engine takes one; whoever waited behind it was shed later"
    assert {arrival.output_tokens for arrival in refused} == set(lengths), "the long ones too"


async def test_without_counts_the_chunks_tell(tmp_path: Path) -> None:
    """A stream without usage shows its length; a caller that left has shown a part of it."""
    sidecar = Sidecar(tmp_path)
    streamed, left = sidecar.ask(1, 1_000.0), sidecar.ask(2, 1_000.0, max_tokens=2)
    for _ in range(3):
        sidecar.host.progress("only", [(streamed, 5, 0.0), (left, 7, 0.0)])
    sidecar.end(streamed, 1_002.0)
    sidecar.end(left, 1_002.0, Outcome.ABORTED, output_tokens=3)

    trace = JournalTrace(sidecar.closed())

    assert [arrival.output_tokens for arrival in trace.arrivals()] == [15, 21]
    assert (trace.report.counted, trace.report.learned) == (1, 1)


async def test_embeddings_have_no_answer(tmp_path: Path) -> None:
    """The engine counted a prompt and no answer: a learned length would invent hours of decoding."""
    sidecar = Sidecar(tmp_path)
    sidecar.end(sidecar.ask(1, 1_000.0, stream=False), 1_000.1, prompt_tokens=100)
    assert [arrival.output_tokens for arrival in JournalTrace(sidecar.closed()).arrivals()] == [0]


async def test_invalid_requests_are_left_out(tmp_path: Path) -> None:
    """The engine answered 400 at once: no work, and no one whose wait counts."""
    sidecar = Sidecar(tmp_path)
    sidecar.end(sidecar.ask(1, 1_000.0), 1_000.1, Outcome.INVALID)
    sidecar.end(sidecar.ask(2, 1_001.0), 1_002.0, output_tokens=4)

    trace = JournalTrace(sidecar.closed())

    assert len(list(trace.arrivals())) == 1
    assert trace.report.invalid == 1


async def test_prompts_told_in_bytes_are_learned(tmp_path: Path) -> None:
    """Clients without a tokenizer know bytes only; the engine's counts of others say what a byte is."""
    sidecar = Sidecar(tmp_path)
    for no in range(20):
        id = sidecar.ask(no, 1_000.0 + no, prompt_tokens=0, prompt_bytes=3_000)
        sidecar.end(id, 1_000.5 + no, prompt_tokens=1_000, output_tokens=5)
    sidecar.ask(50, 1_100.0, prompt_tokens=0, prompt_bytes=6_000)

    trace = JournalTrace(sidecar.closed())
    arrivals = list(trace.arrivals())

    assert arrivals[0].prompt_tokens == 1_000
    assert arrivals[-1].prompt_tokens == pytest.approx(2_000, rel=0.02)
    assert trace.report.prompts_learned == 1


async def test_lengths_learned_before_the_journal_count(tmp_path: Path) -> None:
    """The ring has dropped the past; the snapshot at its beginning has not."""
    sidecar = Sidecar(tmp_path)
    for no in range(30):
        sidecar.end(sidecar.ask(no, 1_000.0 + no), 1_000.5 + no, output_tokens=777)
    folder = sidecar.closed()
    later = Journal(folder, WHOLE, lambda warning: None)
    for path in segments.segments(folder):
        path.unlink()
    later.start(sidecar.host.controllers)
    sidecar.host.record_to(later)
    sidecar.ask(99, 2_000.0)
    later.close()

    assert [arrival.output_tokens for arrival in JournalTrace(folder).arrivals()] == [777]


async def test_permits_announced_again_are_requests_too(tmp_path: Path) -> None:
    """Granted by a client while the sidecar was away: that load was there. Known ones are not counted twice."""
    sidecar = Sidecar(tmp_path)
    id = sidecar.ask(1, 1_000.0)
    sidecar.now = 1_010.0
    local = Ticket(TicketId("o", 2), flow=ACME, prompt_tokens=55)
    known = Ticket(id, flow=ACME, prompt_tokens=100)
    sidecar.host.reinstate(
        "only", [Held(local, 4.0, first_token=True, chunks=9, local=True), Held(known, 10.0)]
    )
    sidecar.end(local.id, 1_012.0, output_tokens=20)
    sidecar.end(id, 1_013.0, output_tokens=30)

    arrivals = list(JournalTrace(sidecar.closed(), target="only").arrivals())

    assert [(a.at_s, a.prompt_tokens, a.output_tokens) for a in arrivals] == [(0.0, 100, 30), (6.0, 55, 20)]


def _busy(sidecar: Sidecar, requests: int, seed: int = 5) -> list[float]:
    """Traffic of requests that overlap; the moments at which they came."""
    random = Random(seed)
    running: list[TicketId] = []
    came = []
    for no in range(requests):
        at_s = sidecar.now + random.random() * 0.2
        running.append(sidecar.ask(seed * 100_000 + no, at_s, prompt_tokens=random.randrange(1, 900)))
        came.append(at_s)
        if len(running) > 5:
            sidecar.end(running.pop(random.randrange(5)), at_s, output_tokens=random.randrange(1, 200))
        if no % 20 == 0:
            sidecar.written()
    return came


async def test_many_segments_are_one_story(tmp_path: Path) -> None:
    """The ring rotates in the middle of requests: none is lost, none is told twice, all in time order."""
    sidecar = Sidecar(tmp_path, SMALL)
    came = _busy(sidecar, 400)
    folder = sidecar.closed()

    trace = JournalTrace(folder)
    arrivals = list(trace.arrivals())

    assert trace.report.segments > 2
    assert [arrival.at_s for arrival in arrivals] == pytest.approx([at_s - came[0] for at_s in came])
    assert trace.report.known == 395
    assert trace.report.foreign_ends == 0
    assert 0 < len(list(JournalTrace(segments.segments(folder)[1]).arrivals())) < 400


@pytest.mark.parametrize("reborn_at", [3.0, 900_000.0])
async def test_a_reboot_is_a_gap_of_its_real_length(tmp_path: Path, reborn_at: float) -> None:
    """Monotonic time begins anew then: the wall clock tells that hardly any time has passed."""
    before = Sidecar(tmp_path)
    _busy(before, 50)
    before.closed()
    after = Sidecar(tmp_path, now=reborn_at)
    _busy(after, 50, seed=6)

    times = [arrival.at_s for arrival in JournalTrace(after.closed()).arrivals()]

    assert len(times) == 100
    assert times == sorted(times)
    assert times[-1] < 60


async def test_a_request_without_an_end_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Memory must stay flat over a day in which one end was lost."""
    sidecar = Sidecar(tmp_path)
    sidecar.ask(1, 1_000.0)
    for no in range(2, 40):
        sidecar.end(
            sidecar.ask(no, 1_000.0 + no * HORIZON_S / 10), 1_001.0 + no * HORIZON_S / 10, output_tokens=9
        )

    trace = JournalTrace(sidecar.closed())
    first = list(islice(trace.arrivals(), 3))

    assert [arrival.at_s for arrival in first] == [0.0, 120.0, 180.0]
    assert trace.report.known < 20, "the rest was not read yet"


async def test_one_target_of_several(tmp_path: Path) -> None:
    """Chosen, or told apart by the name of the target."""
    sidecar = Sidecar(tmp_path, targets=("chat", "embed"))
    sidecar.end(sidecar.ask(1, 1_000.0, "chat"), 1_001.0, target="chat", output_tokens=5)
    sidecar.end(sidecar.ask(1, 1_002.0, "embed"), 1_003.0, target="embed", output_tokens=6)
    folder = sidecar.closed()

    assert [(a.at_s, a.model, a.output_tokens) for a in JournalTrace(folder).arrivals()] == [
        (0.0, "chat", 5),
        (2.0, "embed", 6),
    ]
    assert [(a.at_s, a.model) for a in JournalTrace(folder, target="embed").arrivals()] == [(2.0, "")]
    with pytest.raises(TraceError, match="journal: no requests in the journal for target 'speech'"):
        list(JournalTrace(folder, target="speech").arrivals())


async def test_learned_lengths_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    """Two policies are compared on the same requests."""
    sidecar = Sidecar(tmp_path, limit_tokens=5_000)
    for no in range(40):
        sidecar.end(sidecar.ask(no, 1_000.0 + no), 1_000.5 + no, output_tokens=no + 1)
    for no in range(50, 150):
        sidecar.ask(no, 1_050.0 + no, prompt_tokens=9_000)
    folder = sidecar.closed()

    one, again, other = (list(JournalTrace(folder, seed=seed).arrivals()) for seed in (1, 1, 2))

    assert one == again != other
    assert mean(a.output_tokens for a in one[40:]) == pytest.approx(20, abs=5)


async def test_a_damaged_segment_costs_only_itself(tmp_path: Path) -> None:
    """The rest of the night is worth having; what is missing is said."""
    sidecar = Sidecar(tmp_path, SMALL)
    _busy(sidecar, 400)
    folder = sidecar.closed()
    damaged = segments.segments(folder)[1]
    damaged.write_bytes(damaged.read_bytes()[:-40] + b"garbage" * 10)

    trace = JournalTrace(folder)

    assert 100 < len(list(trace.arrivals())) < 400
    assert len(trace.report.unreadable) == 1
    assert trace.report.unreadable[0].startswith(damaged.name)


async def test_a_snapshot_of_another_version_is_passed_over(tmp_path: Path) -> None:
    """Inputs are plain values: they outlive the classes of the state beside them."""
    sidecar = Sidecar(tmp_path)
    sidecar.end(sidecar.ask(1, 1_000.0), 1_001.0, output_tokens=5)
    (path,) = segments.segments(sidecar.closed())
    frames = list(segments.frames(path))
    other = segments.encode({"format": 9, "at_unix_s": 1.0, "controllers": {"only": "something else"}})
    path.write_bytes(
        segments.MAGIC
        + segments.frame(segments.SNAPSHOT, other)
        + segments.frame(segments.BATCH, frames[1][1])
    )

    assert [a.output_tokens for a in JournalTrace(path).arrivals()] == [5]


def test_no_journal_is_a_trace_error(tmp_path: Path) -> None:
    """An empty folder, none at all, another file: one clear line."""
    (tmp_path / "other.csv").write_text("arrival_s\n")
    with pytest.raises(TraceError, match=r"no journal: no \.tgj files in it"):
        list(JournalTrace(tmp_path).arrivals())
    with pytest.raises(TraceError, match="gone: no journal"):
        list(JournalTrace(tmp_path / "gone").arrivals())
    with pytest.raises(
        TraceError, match=r"no requests in the journal \(other.csv: .*not a journal segment\)"
    ):
        list(JournalTrace(tmp_path / "other.csv").arrivals())


def test_a_journal_holds_no_text() -> None:
    """What is simulated from it can be shown to anybody: a ticket has counts and names, and no prompt."""
    ticket = Ticket(TicketId("o", 1))
    words = {name for name in ticket.__slots__ if isinstance(getattr(ticket, name), str | bytes)}
    assert words == set()
