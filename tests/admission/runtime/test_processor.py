"""What a thread used is told apart from what it was kept from."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.runtime.processor import Usage, thread_usage


def test_both_are_read_from_the_kernel(tmp_path: Path) -> None:
    """Nanoseconds there, seconds here."""
    file = tmp_path / "schedstat"
    file.write_text("1500000000 250000000 42\n")

    assert thread_usage(file) == pytest.approx(Usage(1.5, 0.25))


@pytest.mark.parametrize("text", ["", "0 0", "a b c"])
def test_a_system_that_does_not_tell_leaves_the_time_of_the_thread(tmp_path: Path, text: str) -> None:
    """A sidecar that is busy is still known to be."""
    file = tmp_path / "schedstat"
    file.write_text(text)

    assert thread_usage(file).kept_waiting_s == 0.0
    assert thread_usage(file).ran_s > 0.0
    assert thread_usage(tmp_path / "absent").ran_s > 0.0
