"""The off file in places that cannot be looked into."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.client.counters import Counters
from admission.client.errors import SettingsError
from admission.client.settings import ClientSettings
from admission.client.switch import LOOK_EVERY_S, Switch


class _Unreadable:
    """A path under a directory that is closed to us (a real one is open to root)."""

    def exists(self) -> bool:
        raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("off", [True, False])
def test_what_cannot_be_looked_at_leaves_the_last_answer(off: bool, tmp_path: Path) -> None:
    """Every guarded request once failed with status 500 for it."""
    file, counters = tmp_path / "off", Counters()
    if off:
        file.touch()
    switch = Switch(ClientSettings(off_file=str(file)), counters)
    assert switch.off(0.0) is off
    switch._file = _Unreadable()  # type: ignore[assignment]
    assert switch.off(LOOK_EVERY_S) is off
    assert switch.off(LOOK_EVERY_S + 0.1) is off
    assert counters.get("off_file_unread") == 1

    switch._file = file
    file.unlink(missing_ok=True)
    assert switch.off(9.0) is False


def test_a_name_that_no_file_can_have_is_a_wrong_setting(tmp_path: Path) -> None:
    """One line at start, no traceback."""
    with pytest.raises(SettingsError, match=r"TIDEGATE_OFF_FILE: cannot look at .*: File name too long"):
        ClientSettings(off_file=str(tmp_path / ("x" * 5000)))
