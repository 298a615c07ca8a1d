"""What the GPUs of a machine report and what they do not, as a table for people and as data for programs."""

from __future__ import annotations

from typing import Any

from telemetry.receivers.nvml_calls import Call, clock_words
from telemetry.receivers.nvml_sampler import GpuSample, Observation

_GIB = 1 << 30


def as_text(observation: Observation, host: str) -> str:
    """Lines that end with a newline each."""
    lines = [f"host {host}: {len(observation.gpus)} GPU(s)"]
    if observation.problem:
        lines.append(f"NVML is absent: {observation.problem}")
    if observation.nameless:
        lines.append(f"{observation.nameless} GPU(s) do not answer")
    for number, gpu in enumerate(observation.gpus):
        lines += ["", f"GPU {number}  {gpu.name}  {gpu.uuid}  {gpu.state}", *_rows(gpu)]
    return "".join(f"{line}\n" for line in lines)


def _rows(gpu: GpuSample) -> list[str]:
    rows = []
    for call in Call:
        shown = _shown(gpu, call)
        reports = "no" if shown is None else "yes"
        why = gpu.unsupported.get(call, "no answer this time")
        rows.append(f"  {call:<13}{reports:<5}{why if shown is None else shown}")
    return rows


def _shown(gpu: GpuSample, call: Call) -> str | None:
    """The value in words, None when there is none."""
    if call is Call.MEMORY and gpu.memory is not None:
        used, free, total = (size / _GIB for size in gpu.memory)
        return f"{used:.2f} of {total:.2f} GiB used, {free:.2f} free"
    if call is Call.UTILIZATION and gpu.utilization_ratio is not None:
        return f"{gpu.utilization_ratio:.0%}"
    if call is Call.POWER and gpu.power_w is not None:
        return f"{gpu.power_w:.1f} W"
    if call is Call.TEMPERATURE and gpu.temperature_c is not None:
        return f"{gpu.temperature_c:.0f} C"
    if call is Call.CLOCKS and gpu.clock_reasons is not None:
        return clock_words(gpu.clock_reasons) or "nothing slows the clocks"
    return None


def as_dict(observation: Observation, host: str) -> dict[str, Any]:
    """The same as plain values. Bytes, ratios of 0 to 1, watts, degrees Celsius; None: not to be had."""
    return {
        "host": host,
        "problem": observation.problem,
        "silent_gpus": observation.nameless,
        "gpus": [_gpu(gpu) for gpu in observation.gpus],
    }


def _gpu(gpu: GpuSample) -> dict[str, Any]:
    used, free, total = gpu.memory or (None, None, None)
    return {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "state": gpu.state,
        "memory_used_bytes": used,
        "memory_free_bytes": free,
        "memory_total_bytes": total,
        "utilization_ratio": gpu.utilization_ratio,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
        "clock_reasons": None if gpu.clock_reasons is None else clock_words(gpu.clock_reasons),
        "unsupported": {str(call): why for call, why in gpu.unsupported.items()},
    }
