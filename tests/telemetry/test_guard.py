"""The guard logs what is new, and nothing each second."""

from __future__ import annotations

import pytest

from telemetry.guard import GuardedSink
from telemetry.link import TelemetryView
from tests.telemetry.test_link import Counted


def test_a_warning_is_logged_when_it_appears(caplog: pytest.LogCaptureFixture) -> None:
    """It stands in every view while it lasts; a number in it that moves is no news."""
    sink = Counted()
    guard = GuardedSink(sink)
    for warnings in (["late by 1.5 s"], ["late by 2.5 s", "port taken"], ["port taken"], [], ["port taken"]):
        guard.view(TelemetryView(warnings=warnings))
    assert [record.message for record in caplog.records] == ["late by 1.5 s", "port taken", "port taken"]
    assert len(sink.views) == 5
