"""What outlives a restart, and what happens when the disk says no."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from admission.core.saved import SavedState
from admission.runtime.state import FILE, KEY_BYTES, MAX_BYTES, StateStore

SAVED = {"a": SavedState(limit=9_000, prefill_rate=1234.5, outputs={"m": [[1.0, 2.0], [], []]}, learned=True)}

Open = Callable[[Path | None], StateStore]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens stores and closes them with the test."""
    with ExitStack() as stack:

        def open_one(directory: Path | None) -> StateStore:
            store = StateStore(directory)
            stack.callback(store.close)
            return store

        yield open_one


def test_what_was_saved_is_loaded_by_the_next_process(tmp_path: Path, opened: Open) -> None:
    """Learning a limit again after every upgrade would cost minutes of goodput."""
    first = opened(tmp_path / "state")
    assert first.save(SAVED)
    first.close()

    assert opened(tmp_path / "state").load() == SAVED


def test_what_has_not_changed_is_not_written_again(tmp_path: Path, opened: Open) -> None:
    """An idle sidecar must not wear a disk out every five seconds; a file that somebody removed comes back."""
    store = opened(tmp_path)
    store.save(SAVED)
    first = (tmp_path / FILE).stat().st_ino
    store.save(SAVED)
    second = (tmp_path / FILE).stat().st_ino
    (tmp_path / FILE).unlink()
    store.save(SAVED)

    assert second == first
    assert json.loads((tmp_path / FILE).read_text())["targets"]["a"]["limit"] == 9_000


def test_nothing_saved_is_nothing_known(tmp_path: Path, opened: Open) -> None:
    """The first start is no problem to report."""
    store = opened(tmp_path)

    assert (store.load(), store.problem) == ({}, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 99, "targets": {}}',
        '{"version": 1, "targets": {"a": {"limit": "many"}}}',
        '{"version": 1}',
        "x" * (MAX_BYTES + 1),
    ],
    ids=["empty", "cut", "list", "newer", "wrong", "bare", "huge"],
)
def test_an_unreadable_file_is_set_aside_and_said(tmp_path: Path, text: str, opened: Open) -> None:
    """Half a file after a crash must neither stop the start nor be overwritten before somebody looked."""
    (tmp_path / FILE).write_text(text)
    store = opened(tmp_path)

    assert store.load() == {}
    assert "starting without it" in store.problem
    assert (tmp_path / "limits.unreadable").read_text() == text
    assert store.save(SAVED)
    assert store.problem == ""


def test_a_directory_that_cannot_be_made_is_memory_only(tmp_path: Path, opened: Open) -> None:
    """The sidecar serves without a disk; it says so, and raises nothing."""
    (tmp_path / "file").write_text("")
    store = opened(tmp_path / "file" / "state")

    assert not store.writable
    assert "memory only" in store.problem
    assert store.load() == {}
    assert store.save(SAVED) is False
    assert len(store.key("k")) == KEY_BYTES


def test_a_disk_that_fills_up_is_said_and_a_disk_that_recovers_too(tmp_path: Path, opened: Open) -> None:
    """The old file must survive the failed write."""
    store = opened(tmp_path)
    store.save(SAVED)
    (tmp_path / "limits.new").mkdir()
    failed = store.save({})

    assert failed is False
    assert "memory only" in store.problem
    assert json.loads((tmp_path / FILE).read_text())["targets"]["a"]["limit"] == 9_000
    (tmp_path / "limits.new").rmdir()
    assert store.save(SAVED)
    assert store.problem == ""


def test_two_sidecars_do_not_share_a_directory(tmp_path: Path, opened: Open) -> None:
    """They would overwrite each other's limits every few seconds."""
    first, second = opened(tmp_path), opened(tmp_path)

    assert first.writable
    assert not second.writable
    assert "another sidecar uses it" in second.problem
    first.close()
    assert opened(tmp_path).writable


def test_none_is_memory_only_by_choice(opened: Open) -> None:
    """A choice is named as one."""
    store = opened(None)

    assert not store.writable
    assert store.problem == "state_dir is none: limits are kept in memory only"


def test_a_key_stays_and_is_private(tmp_path: Path, opened: Open) -> None:
    """A tenant's hash must be the same after a restart, and nobody else may compute it."""
    first = opened(tmp_path)
    key = first.key("tenant_key")
    first.close()

    assert opened(tmp_path).key("tenant_key") == key
    assert (tmp_path / "tenant_key").stat().st_mode & 0o777 == 0o600
    assert key != os.urandom(KEY_BYTES)


def test_a_key_of_the_wrong_size_is_replaced(tmp_path: Path, opened: Open) -> None:
    """A cut file is no key."""
    (tmp_path / "k").write_bytes(b"short")

    assert len(opened(tmp_path).key("k")) == KEY_BYTES
