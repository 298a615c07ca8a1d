"""The few NVML calls that are worth making, with what each GPU can and cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

# Numbers of nvmlReturn_t in nvml.h.
_NEVER_HERE = frozenset({2, 3, 4, 13, 25, 26})
"""Invalid argument, not supported, no permission, function not found, version mismatch, deprecated: asking again is useless."""
_LOST = frozenset({15, 16, 28})
"""GPU is lost, reset required, GPU not found."""
_LIBRARY = frozenset({1, 9, 12, 18})
"""Uninitialized, driver not loaded, library not found, driver and library of different versions."""

# The bits of nvmlClocksEventReasons in nvml.h; 0x4 (software power cap) is normal for a busy GPU.
CLOCK_REASONS = MappingProxyType(
    {
        0x1: "idle",
        0x2: "application_clocks",
        0x4: "sw_power_cap",
        0x8: "hw_slowdown",
        0x10: "sync_boost",
        0x20: "sw_thermal",
        0x40: "hw_thermal",
        0x80: "hw_power_brake",
        0x100: "display_clocks",
    }
)
DEGRADED_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""The clock event reasons that mean less capacity than the GPU was bought for."""


class Call(StrEnum):
    """What is asked of a GPU."""

    MEMORY = "memory"
    UTILIZATION = "utilization"
    POWER = "power"
    TEMPERATURE = "temperature"
    CLOCKS = "clocks"


FAST = (Call.MEMORY, Call.UTILIZATION)
SLOW = (Call.POWER, Call.TEMPERATURE, Call.CLOCKS)


class Memory(NamedTuple):
    """Bytes. Used excludes what the driver keeps for itself where the driver tells it apart."""

    used: int
    free: int
    total: int


class GpuLostError(Exception):
    """The GPU does not answer any more."""


class LibraryGoneError(Exception):
    """NVML as a whole does not answer; the text says why."""


class UnusableError(Exception):
    """A value that cannot be."""


@dataclass(slots=True)
class Gpu:
    """One GPU, its handle of the present session, and the way that each call works on it."""

    uuid: str
    name: str
    handle: Any
    way: dict[Call, int] = field(default_factory=dict)
    unsupported: dict[Call, str] = field(default_factory=dict)
    """Calls that this GPU or driver does not answer, and what it said."""


def clock_words(reasons: int) -> str:
    """The names of the bits, comma-separated; unknown bits as hexadecimal numbers."""
    words = [word for bit, word in CLOCK_REASONS.items() if reasons & bit]
    rest = reasons & ~sum(CLOCK_REASONS)
    return ",".join(words + ([hex(rest)] if rest else []))


def ask(library: Any, gpu: Gpu, call: Call) -> Any | None:
    """Makes one call; None when the GPU cannot answer it, now or ever.

    Raises GpuLostError and LibraryGoneError. What is not supported is not asked again in this session.
    """
    if call in gpu.unsupported:
        return None
    known = gpu.way.get(call)
    reasons = []
    for number in range(len(_WAYS[call])) if known is None else (known,):
        try:
            value = _WAYS[call][number](library, gpu.handle)
        except (library.NVMLError, AttributeError, UnusableError) as error:
            if not _never_here(error, probing=known is None):
                return None
            reasons.append(str(error))
        else:
            gpu.way[call] = number
            return value
    gpu.unsupported[call] = reasons[0]
    return None


def _never_here(error: Exception, *, probing: bool) -> bool:
    """Whether this way is no use on this GPU. Raises for what concerns the whole GPU or library."""
    code = getattr(error, "value", None)
    if code in _LOST:
        raise GpuLostError(str(error)) from None
    if code in _LIBRARY:
        raise LibraryGoneError(str(error)) from None
    if code is None:
        return probing  # a binding without the function, or a value that cannot be
    return code in _NEVER_HERE


def _memory_v2(library: Any, handle: Any) -> Memory:
    return _memory(library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2))


def _memory_v1(library: Any, handle: Any) -> Memory:
    return _memory(library.nvmlDeviceGetMemoryInfo(handle))


def _memory(info: Any) -> Memory:
    memory = Memory(int(info.used), int(info.free), int(info.total))
    if not (0 < memory.total < 1 << 60 and memory.used <= memory.total and memory.free <= memory.total):
        raise UnusableError(f"used {memory.used}, free {memory.free} of {memory.total} bytes cannot be")
    return memory


def _utilization(library: Any, handle: Any) -> float:
    percent = int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
    if percent > 100:
        raise UnusableError(f"{percent} % cannot be")
    return percent / 100.0


def _power(library: Any, handle: Any) -> float:
    return int(library.nvmlDeviceGetPowerUsage(handle)) / 1000.0


def _temperature_v(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetTemperatureV(handle, library.NVML_TEMPERATURE_GPU))


def _temperature(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))


def _event_reasons(library: Any, handle: Any) -> int:
    return int(library.nvmlDeviceGetCurrentClocksEventReasons(handle))


def _throttle_reasons(library: Any, handle: Any) -> int:
    return int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


_WAYS: Mapping[Call, tuple[Callable[[Any, Any], Any], ...]] = MappingProxyType(
    {
        Call.MEMORY: (_memory_v2, _memory_v1),
        Call.UTILIZATION: (_utilization,),
        Call.POWER: (_power,),
        Call.TEMPERATURE: (_temperature_v, _temperature),
        Call.CLOCKS: (_event_reasons, _throttle_reasons),
    }
)
"""The newest way first; the next is tried when the driver or the binding does not have it."""
