"""The demo as a person runs it: it protects, and whatever happens it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import uuid
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from admission.simulation.demo.plan import USUAL, DemoPlan, choose_ports
from admission.simulation.demo.stage import Stage, StageError

pytestmark = pytest.mark.integration

MARK = "DEMO_TEST_MARK"


async def start_demo(folder: Path, mark: str, *options: str) -> Process:
    """Start `tidegate demo` with temporary files under `folder`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "admission.cli",
        "demo",
        *options,
        env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def marked(mark: str) -> list[str]:
    """Command lines of the processes that carry the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (PermissionError, FileNotFoundError, ProcessLookupError):
                continue
    return found


def left_files(folder: Path) -> list[Path]:
    """Temporary folders of the demo."""
    return list(folder.glob("tidegate-demo-*"))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("after_s", "again_s", "number", "options"),
    [
        (0.1, 0.0, signal.SIGINT, ()),
        (1.0, 0.1, signal.SIGINT, ()),
        (2.5, 0.05, signal.SIGTERM, ()),
        (8.0, 0.1, signal.SIGINT, ()),
        (5.0, 0.3, signal.SIGHUP, ("--no-dashboard", "--keep")),
    ],
)
async def test_a_signal_at_any_moment_leaves_nothing(
    tmp_path: Path, after_s: float, again_s: float, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """No process and no file stays behind, in the start, in the middle, with all of it up; nor by a second ctrl-c."""
    mark = uuid.uuid4().hex
    process = await start_demo(tmp_path, mark, "--quick", *options)
    await asyncio.sleep(after_s)
    process.send_signal(number)
    await asyncio.sleep(again_s)
    if process.returncode is None:
        process.send_signal(number)
    await asyncio.wait_for(process.communicate(), 15)
    assert process.returncode != 0
    assert marked(mark) == []
    assert left_files(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(110)
async def test_protection_serves_twice_as_many_well(tmp_path: Path) -> None:
    """On the same arrivals at least twice the good answers, and who is not served is told why at once."""
    mark = uuid.uuid4().hex
    process = await start_demo(tmp_path, mark, "--quick", "--no-dashboard", "--json")
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    without, protected = json.loads(out)["runs"].values()
    assert without["offered_requests"] == protected["offered_requests"]
    assert protected["good_requests"] >= 2 * without["good_requests"]
    assert protected["good_tokens"] > without["good_tokens"]
    assert sum(protected["refusals"].values()) > 0
    assert all(reason.isupper() for reason in protected["refusals"]), "each refusal has a typed reason"
    assert protected["endings"].get("failed", 0) == 0
    assert without["refusals"] == {}
    assert marked(mark) == []


def test_taken_ports_are_moved_and_named() -> None:
    """Whoever has 8000 or 4317 keeps it; the demo says where it went instead."""
    with socket.socket() as one, socket.socket() as two:
        taken = []
        for holder, port in ((one, USUAL.engine), (two, USUAL.otlp_grpc)):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind(("127.0.0.1", port))
                holder.listen()
            except OSError:
                pass  # somebody else has it, which serves as well
            taken.append(port)
        ports, moved = choose_ports()
    assert ports.engine not in taken
    assert ports.otlp_grpc not in taken
    assert {f"port {port} is taken" for port in taken} <= {line.split(":")[0] for line in moved}
    assert len({getattr(ports, name) for name in ports.__slots__}) == len(ports.__slots__)


def test_the_story_is_told_with_its_scaling() -> None:
    """The input is named for what it is: how much of the trace, how much faster, which engine, and no GPU."""
    plan = DemoPlan()
    story = plan.story(plan.arrivals())
    for word in (
        "Azure code",
        "160 recorded seconds",
        "played 4 times",
        "h100-llama3-8b",
        "no GPU",
        "960 requests",
    ):
        assert word in story


async def test_stage_says_why_a_process_did_not_come_up(tmp_path: Path) -> None:
    """The message ends with the process's own last words."""
    stage = Stage(tmp_path)
    stage.start("broken", [sys.executable, "-c", "raise SystemExit('no engine here')"])
    with pytest.raises(StageError, match="no engine here"):
        await stage.wait_for_port("broken", 1)
    await stage.stop()


async def test_stage_ends_grandchildren_that_ignore_sigterm(tmp_path: Path) -> None:
    """A child's child that will not go is killed with its group."""
    mark = uuid.uuid4().hex
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}]).wait()"
    stage = Stage(tmp_path)
    stage.start("parent", [sys.executable, "-c", code], {MARK: mark})
    async with asyncio.timeout(5):
        while len(marked(mark)) < 2:
            await asyncio.sleep(0.05)
    await stage.stop()
    await asyncio.sleep(0.1)
    assert marked(mark) == []
