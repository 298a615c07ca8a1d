"""Numbers as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.v1.types_pb2 import Reason

if TYPE_CHECKING:
    from admission.v1.monitor_service_pb2 import Percentiles


def amount(value: float) -> str:
    """A count with separators; from ten million on in millions."""
    if abs(value) >= 1e12:
        return f"{value / 1e12:,.1f} T"
    return f"{value / 1e6:,.1f} M" if abs(value) >= 1e7 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def ratio(value: float) -> str:
    """Percent."""
    return f"{value * 100:.0f} %"


def size(value: int) -> str:
    """Bytes in GiB or MiB."""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def reason(number: int) -> str:
    """The reason's name; its number when a newer sidecar knows more than we do."""
    names = Reason.DESCRIPTOR.values_by_number
    return names[number].name.removeprefix("REASON_") if number in names else f"reason {number}"


def since(then_ns: int, now_ns: int) -> str:
    """The time between two instants."""
    return duration(max(0, now_ns - then_ns) / 1e9)


def percentiles(values: Percentiles) -> str:
    """p50 / p95 / p99, or a dash before the first sample."""
    if not values.HasField("p50"):
        return "-"
    return " / ".join(duration(value) for value in (values.p50, values.p95, values.p99))
