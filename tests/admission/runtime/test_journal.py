"""What was recorded replays to the same events; bad disks and bad files harm nobody."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from admission.core.controller import ControllerConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Completion, Flow, Reading, Ticket, TicketId
from admission.runtime import journal as journal_module
from admission.runtime import segments
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.replay import replay
from admission.runtime.settings import JournalConfig
from admission.vocabulary import Mode, Outcome, PriorityClass, SignalKind, Source

ROOT = Path(__file__).parents[3]
SMALL = JournalConfig(
    batch=16, chunk_bytes=500, segment_bytes=2_000, buffer_bytes=200_000, max_bytes=4_000_000
)


class Recording:
    """A host with a journal, under the test's clock."""

    def __init__(
        self, folder: Path, config: JournalConfig = SMALL, targets: tuple[str, ...] = ("a", "b")
    ) -> None:
        self.now = 100.0
        self.warnings: list[str] = []
        self.folder = folder / "journal"
        core = ControllerConfig(mode=Mode.ENFORCE, limit=FixedConfig(limit_tokens=2_000))
        specs = [TargetSpec(name=name, config=core) for name in targets]
        self.host = Host(specs, clock=lambda: self.now, random=Random(3))
        self.journal = Journal(self.folder, config, self.warnings.append)

    def start(self) -> Recording:
        """Begin to record."""
        self.journal.start(self.host.controllers)
        self.host.record_to(self.journal)
        return self

    def live(self, steps: int, seed: int = 5) -> None:
        """A while of mixed traffic."""
        random = Random(seed)
        running: list[tuple[str, TicketId]] = []
        for number in range(steps):
            self.now += random.random() * 0.2
            target = random.choice(self.host.targets)
            self._step(random, target, TicketId(f"owner{number % 3}", seed * 10_000 + number), running)

    def _step(self, random: Random, target: str, id: TicketId, running: list[tuple[str, TicketId]]) -> None:
        what = random.random()
        if what < 0.5:
            ticket = Ticket(
                id, random.choice(list(PriorityClass)), Flow(model="m"), random.randrange(900), max_tokens=200
            )
            self.host.submit(target, ticket)
            running.append((target, id))
        elif what < 0.7 and running:
            self.host.finish(*running.pop(0), Completion(Outcome.OK, output_tokens=random.randrange(200)))
        elif what < 0.8 and running:
            self.host.progress(running[0][0], [(running[0][1], 2, 0.0)])
        elif what < 0.85:
            reading = Reading(SignalKind.KV_USAGE_RATIO, random.random(), self.now, Source.SCRAPE)
            self.host.observe(target, reading)
        elif what < 0.9 and running:
            self.host.cancel(*running.pop())
        else:
            self.host._wake()


async def test_a_replay_gives_the_same_events_byte_for_byte(tmp_path: Path) -> None:
    """A bad night in production becomes a test, or the journal is worth nothing."""
    recording = Recording(tmp_path).start()

    for seed in range(5):
        recording.live(300, seed)
        _drain(recording)  # else a busy machine drops inputs, as it should
    recording.journal.close()

    report = replay(recording.folder)
    assert report.same, (report.differences[:3], report.errors)
    assert report.inputs == recording.journal.recorded_inputs > 1_000
    assert report.segments > 1
    assert report.events > 500


async def test_each_segment_replays_alone(tmp_path: Path) -> None:
    """The ring drops the oldest: what is left must not need it."""
    recording = Recording(tmp_path).start()
    recording.live(1_000)
    recording.journal.close()

    for path in segments.segments(recording.folder):
        report = replay(path)
        assert report.same
        assert report.segments == 1


async def test_a_replay_in_another_process_agrees(tmp_path: Path) -> None:
    """Hash seeds and identities differ there: a decision that depends on them would show."""
    recording = Recording(tmp_path).start()
    recording.live(800)
    recording.journal.close()
    program = (
        "import sys, pathlib; from admission.runtime.replay import replay;"
        "report = replay(pathlib.Path(sys.argv[1])); print(report.same, report.inputs)"
    )

    for seed in ("1", "2"):
        run = subprocess.run(  # noqa: ASYNC221 - nothing else runs
            [sys.executable, "-c", program, str(recording.folder)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        )
        assert run.stdout.split() == ["True", str(recording.journal.recorded_inputs)]


async def test_a_core_that_decides_otherwise_is_found(tmp_path: Path) -> None:
    """The comparison must be able to fail: here one recorded input is not the one that was decided on."""
    recording = Recording(tmp_path, targets=("a",)).start()
    recording.host.submit("a", Ticket(TicketId("o", 1), prompt_tokens=10, max_tokens=10))
    recording.journal.close()
    (path,) = segments.segments(recording.folder)
    (_, snapshot), (_, batch) = [(kind, segments.decode(data)) for kind, data in segments.frames(path)]
    target, op, now, plain, digest, brief = batch[0][0]
    forged = [(target, op, now, (*plain[:6], 10**9, *plain[7:]), digest, brief)]
    path.write_bytes(
        segments.MAGIC
        + segments.frame(segments.SNAPSHOT, segments.encode(snapshot[0]))
        + segments.frame(segments.BATCH, segments.encode(forged))
    )

    report = replay(path)

    assert (report.different, report.same) == (1, False)
    assert report.differences[0].op == "SUBMIT"
    assert "Admitted" in report.differences[0].recorded
    assert report.differences[0].replayed != report.differences[0].recorded


async def test_the_ring_is_bounded(tmp_path: Path) -> None:
    """A disk must not fill because traffic is high."""
    recording = Recording(
        tmp_path,
        JournalConfig(batch=16, chunk_bytes=500, segment_bytes=2_000, buffer_bytes=10_000, max_bytes=20_000),
    ).start()
    for seed in range(40):
        recording.live(200, seed)
        _drain(recording)
    recording.journal.close()

    sizes = [path.stat().st_size for path in segments.segments(recording.folder)]
    assert sum(sizes) < 40_000
    assert min(int(path.stem) for path in segments.segments(recording.folder)) > 1
    assert replay(recording.folder).same


def _drain(recording: Recording) -> None:
    """Wait for the thread: an empty queue and nothing in its hands."""
    writer = recording.journal._writer
    done = threading.Event()
    original = writer.offer
    assert original is not None
    for _ in range(10_000):
        if writer._waiting_bytes == 0:
            return
        done.wait(0.001)
    raise AssertionError("the journal's thread does not keep up")


async def test_a_slow_disk_drops_inputs_counts_them_and_begins_anew(tmp_path: Path) -> None:
    """The loop never waits for a disk; what is written stays replayable."""
    config = JournalConfig(
        batch=4, chunk_bytes=500, segment_bytes=2_000, buffer_bytes=30_000, max_bytes=1_000_000
    )
    recording = Recording(tmp_path, config)
    gate = threading.Event()
    frame = segments.frame

    def slow(kind: int, payload: bytes) -> bytes:
        gate.wait(10)
        return frame(kind, payload)

    segments.frame = slow
    try:
        recording.start()
        recording.live(2_000)
        dropped = recording.journal.dropped_inputs
        gate.set()
        _drain(recording)
        recording.live(300, seed=9)
        recording.journal.close()
    finally:
        segments.frame = frame

    assert dropped > 0
    report = replay(recording.folder)
    assert report.same, (report.differences[:3], report.errors)
    assert report.inputs == recording.journal.recorded_inputs > 0


async def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    """Admission works without a journal."""
    (tmp_path / "journal").write_text("a file is in the way")
    recording = Recording(tmp_path).start()

    recording.live(100)
    recording.journal.close()

    assert len(recording.warnings) == 1
    assert "journal not written" in recording.warnings[0]
    assert not recording.journal.writable


async def test_a_disk_that_fills_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space left: inputs are decided as before."""
    recording = Recording(tmp_path)

    def full(_self: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module._Writer, "_next_file", full)
    recording.start()
    recording.live(10)
    for _ in range(10_000):
        if not recording.journal.writable:
            break
        threading.Event().wait(0.001)
    recording.live(200, seed=6)
    recording.journal.close()

    assert len(recording.warnings) == 1
    assert "No space left" in recording.warnings[0]


async def test_a_segment_cut_short_replays_as_far_as_it_goes(tmp_path: Path) -> None:
    """The process may be killed in the middle of a write."""
    recording = Recording(tmp_path).start()
    recording.live(300)
    recording.journal.close()
    path = segments.segments(recording.folder)[-1]
    path.write_bytes(path.read_bytes()[:-7])

    assert replay(path).same


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        segments.MAGIC + b"\x01\x00\x00\x00\x04\x00\x00\x00\x00abcd",
        segments.MAGIC + b"\x02" * 40,
    ],
)
def test_what_is_no_segment_is_an_error_of_its_own(tmp_path: Path, content: bytes) -> None:
    """Never a stack trace, and never the end of the other segments."""
    path = tmp_path / "0000000001.tgj"
    path.write_bytes(content)

    report = replay(path)

    assert not report.same or report.inputs == 0
    assert len(report.errors) <= 1


def test_a_folder_without_segments_is_an_error(tmp_path: Path) -> None:
    """To call nothing "the same decisions" would be a lie."""
    assert not replay(tmp_path).same


class _Evil:
    """Runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch pwned",))


@pytest.mark.parametrize(
    "value",
    [_Evil(), os.path.join, subprocess.Popen, Path("/etc"), ControllerConfig.__init__],
    ids=["reduce", "function", "class", "path", "method"],
)
def test_a_journal_cannot_bring_in_foreign_objects(value: object) -> None:
    """Segments are files: whoever can write one must not be able to run anything."""
    with pytest.raises(segments.JournalError, match="does not belong"):
        segments.decode(pickle.dumps(value))


async def test_tenants_and_text_are_not_in_the_files(tmp_path: Path) -> None:
    """A journal may be sent to others: the core has only hashes to give."""
    recording = Recording(tmp_path, targets=("a",)).start()
    recording.host.submit("a", Ticket(TicketId("o", 1), flow=Flow("t0123456789abcdef", "m", "/v1")))
    recording.journal.close()

    (path,) = segments.segments(recording.folder)
    content = b"".join(data for _, data in segments.frames(path))
    assert b"t0123456789abcdef" in content
    assert path.parent.stat().st_mode & 0o077 == 0


async def test_a_restart_goes_on_with_the_next_number(tmp_path: Path) -> None:
    """Segments of the last run stay readable."""
    for _ in range(2):
        recording = Recording(tmp_path).start()
        recording.live(20)
        recording.journal.close()

    assert [path.stem for path in segments.segments(recording.folder)] == ["0000000001", "0000000002"]
    assert replay(recording.folder).same
