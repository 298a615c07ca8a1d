"""Disks that are full, shut or full of garbage: memory only, said aloud, and everybody is served."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from admission.v1 import types_pb2 as words
from tests.integration.faults.rig import Rig, acquire, release, target_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KIB = 1024


async def serve(rig: Rig, count: int) -> None:
    """Requests one after another."""
    async with rig.asking() as stub:
        for _ in range(count):
            decision = await acquire(stub, request_id=str(uuid4()))
            assert decision.verdict == words.VERDICT_ADMITTED
            assert await release(stub, decision.lease)


async def test_a_full_disk_under_limits_is_said_and_survived(rig: Rig) -> None:
    """The kernel's own full device: what was saved before stays whole, since only whole files replace it."""
    state = rig.folder / "state"
    state.mkdir()
    (state / "limits.json").write_text('{"version": 1, "targets": {}}')
    (state / "limits.new").symlink_to("/dev/full")
    await rig.sidecar()
    await serve(rig, 3)
    seen = await rig.shown(lambda seen: any("No space left" in line for line in seen.warnings))

    [warning] = [line for line in seen.warnings if "state_dir" in line]
    assert "memory only" in warning
    assert (state / "limits.json").read_text() == '{"version": 1, "targets": {}}'
    await serve(rig, 3)
    await rig.empties()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Writes until there is no room."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4 * KIB))


async def test_a_disk_that_fills_up_stops_the_journal_and_nothing_else(rig: Rig, small_disk: Path) -> None:
    """Recording is a service to tomorrow: today's requests do not wait for it."""
    rig.state_dir = str(small_disk / "state")
    await rig.sidecar()
    await serve(rig, 20)
    fill(small_disk / "filler")
    async with asyncio.timeout(30):
        while not any("journal not written" in line for line in (await rig.snapshot()).warnings):
            await serve(rig, 20)
    seen = await rig.snapshot()
    assert any("No space left" in line for line in seen.warnings)
    assert (await rig.get("/readyz"))[0] == 200
    await serve(rig, 20)
    await rig.empties()


@pytest.mark.parametrize(
    "garbage", [b"\x00\xff garbage", b'{"version": 1, "targets": {"default": {"limit": "x"}}}']
)
async def test_garbage_in_the_saved_state_is_set_aside_with_a_warning(rig: Rig, garbage: bytes) -> None:
    """A torn file must not stop the start, and must still be there for whoever wants to know why."""
    state = rig.folder / "state"
    state.mkdir()
    (state / "limits.json").write_bytes(garbage)
    await rig.sidecar()
    assert "limits.json cannot be read" in rig.log()
    assert any("starting without it" in line for line in (await rig.snapshot()).warnings)
    assert (state / "limits.unreadable").read_bytes() == garbage
    await serve(rig, 3)
    assert target_of(await rig.snapshot()).limit_tokens > 0
    await rig.empties()


async def test_a_state_directory_that_cannot_be_made_is_memory_only(rig: Rig) -> None:
    """A file stands where the directory should be: root may write anywhere, but not there."""
    (rig.folder / "taken").write_text("")
    rig.state_dir = str(rig.folder / "taken" / "state")
    await rig.sidecar()
    seen = await rig.snapshot()
    await serve(rig, 3)

    assert any("memory only" in line for line in seen.warnings)
    assert "memory only" in rig.log()
    await rig.empties()
