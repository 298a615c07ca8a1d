"""How much of a processor this thread had, and how long it was kept waiting for one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class Usage(NamedTuple):
    """Seconds since the thread began."""

    ran_s: float
    kept_waiting_s: float
    """It could have run, and others had the processors; 0 where the system does not tell."""


def thread_usage(schedstat: Path = _SCHEDSTAT) -> Usage:
    """Of the calling thread. Linux tells the waiting (nanoseconds run, nanoseconds waited, turns)."""
    try:
        ran_ns, waited_ns, _ = schedstat.read_bytes().split()
        return Usage(int(ran_ns) * 1e-9, int(waited_ns) * 1e-9)
    except (OSError, ValueError):
        return Usage(time.thread_time(), 0.0)
