"""Numbers as an operator reads them: short, with a unit, and `-` for what is not known."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UNKNOWN = "-"
_GIB = 2**30
_MIB = 2**20


def seconds(value: float | None) -> str:
    """A latency: `41 ms`, `1.24 s`, `12 s`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:.0f} s"


def ago(value: float | None) -> str:
    """A length of time: `now`, `12 s`, `4 min`, `3 h`, `2 d`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 1:
        return "<1 s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size or (size == 60 and value >= 100):
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s"


def count(value: float | None) -> str:
    """A number of tokens or requests: `812`, `41.2k`, `1.26M`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.3g}{unit}" if scaled < 1000 else f"{scaled:.0f}{unit}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Requests per second: `0`, `0.3`, `12.4`, `140`; never `0` for something that happened."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if value < 0.05:
        return "<0.1"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(value: float | None) -> str:
    """A ratio of 0 to 1 as a percentage."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value * 100:.0f} %"


def share(good: float, total: float) -> str:
    """A part of a whole as a percentage that never rounds up to 100 %; `-` of nothing."""
    if total <= 0:
        return UNKNOWN
    return f"{math.floor(good / total * 1000) / 10:.3g} %"


def size(value: float | None) -> str:
    """Bytes of memory: `612 MiB`, `5.1 GiB`, `80 GiB`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < _GIB:
        return f"{value / _MIB:.0f} MiB"
    gib = value / _GIB
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def zone(name: str | None) -> tzinfo:
    """The time zone called `name`; UTC when it is not known."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def clock(unix_s: float, where: tzinfo) -> str:
    """The time of day, `03:12:44`, with the zone's name when it is UTC."""
    text = datetime.fromtimestamp(unix_s, where).strftime("%H:%M:%S")
    return f"{text} UTC" if where is UTC else text


def words(name: str) -> str:
    """A name as words: `QUEUE_FULL` is `queue full`, acronyms stay."""
    acronyms = {"ttft": "TTFT", "kv": "KV", "vram": "VRAM"}
    return " ".join(acronyms.get(word, word) for word in name.lower().split("_"))


def gpu(uuid: str) -> str:
    """A GPU's UUID, short enough to read and long enough to find."""
    return uuid if len(uuid) <= 14 else uuid[:12] + "…"


def reading(name: str, value: float) -> str:
    """A measured value as its name says it is: bytes, seconds, a ratio or a plain number."""
    for suffix, say in (("_bytes", size), ("_s", seconds), ("_ratio", percent)):
        if name.lower().endswith(suffix):
            return say(value)
    return count(value) if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
