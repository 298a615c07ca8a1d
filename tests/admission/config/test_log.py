"""Log lines: one a line, whatever is in the fields."""

from __future__ import annotations

import json
import logging
import sys

from admission.config.log import JsonFormatter, TextFormatter


def record(**fields: object) -> logging.LogRecord:
    """The record of one event at a fixed time."""
    made = logging.makeLogRecord({"msg": "started", "levelname": "INFO", "name": "admission.app", **fields})
    made.created, made.msecs = 1_800_000_000.25, 250.0
    return made


def test_text_is_key_and_value() -> None:
    """People read it, and `grep` does."""
    line = TextFormatter().format(record(grpc="127.0.0.1:1", note="two words", empty="", many=["a", "b"]))

    assert line == '2027-01-15T08:00:00.250Z info started grpc=127.0.0.1:1 note="two words" empty="" many=a,b'


def test_a_value_cannot_start_another_line() -> None:
    """Names come from strangers: a newline in one must not forge an event."""
    assert "\n" not in TextFormatter().format(record(model="x\n2027 error forged"))


def test_json_is_one_object_with_the_same_fields() -> None:
    """Programs read it."""
    found = json.loads(JsonFormatter().format(record(limit_tokens=5, path=object)))

    assert found["event"] == "started"
    assert (found["level"], found["logger"], found["limit_tokens"]) == ("info", "admission.app", 5)
    assert found["at"] == "2027-01-15T08:00:00.250Z"


def test_a_traceback_is_kept() -> None:
    """An error without its place is half a report."""
    try:
        int("boom")
    except ValueError:
        failed = record(exc_info=sys.exc_info())

    assert "ValueError: invalid literal" in TextFormatter().format(failed)
    assert "ValueError: invalid literal" in json.loads(JsonFormatter().format(failed))["traceback"]
