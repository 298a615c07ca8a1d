"""Reads W3C trace context without the OpenTelemetry SDK."""

from __future__ import annotations

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class TraceParent(NamedTuple):
    """A caller's place in its trace; ids in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool


def parsed(traceparent: str) -> TraceParent | None:
    """The parts of a traceparent; None when it is not one."""
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if not match or not int(match[1], 16) or not int(match[2], 16):
        return None
    return TraceParent(match[1], match[2], bool(int(match[3], 16) & 1))


def trace_id_of(traceparent: str) -> str:
    """The trace id; empty when there is none."""
    found = parsed(traceparent)
    return found.trace_id if found else ""
