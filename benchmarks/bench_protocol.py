"""The protocol: unary and session beside bare echoes of the same messages, and what a flood does to decisions."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import flood, protocol
from benchmarks.result import Result

SECONDS_S = 4.0


def run() -> Iterator[Result]:
    """Ratios at 64 concurrent callers, the median of three alternating runs; then the flood."""
    measured = protocol.run(SECONDS_S)
    for name, row in measured["rows"].items():
        yield Result(f"{name} concurrent", row["pairs_per_s"], "pairs/s")
        yield Result(f"{name} concurrent, Acquire p99", row["p99_ms"], "ms")
    for name, floor in protocol.FLOORS.items():
        value = measured["ratios"][name]
        yield Result(name, value, "", f"at least {floor}", value >= floor)
    yield from flood.run()
