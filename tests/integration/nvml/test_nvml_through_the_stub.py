"""The real binding and the real ctypes path, on a compiled stand-in whose answers move while it is sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.nvml.conftest import Watch
from tests.nvml_stub.stub import StubFile, build

pytestmark = pytest.mark.integration

TOTAL, RESERVED = 24 << 30, 512 << 20
Start = Callable[..., Watch]


def test_values_that_move_are_seen_as_they_move(watch: Start, gpus: StubFile) -> None:
    """Free bytes are what the watermark acts on; what the driver reserves is neither used nor free."""
    seen = watch()
    assert seen.reading("VRAM_USED_BYTES")["value"] == 20 << 30
    seen.reading("VRAM_FREE_BYTES", TOTAL - RESERVED - (20 << 30))
    gpus.set({"0.used": 23 << 30})
    seen.reading("VRAM_FREE_BYTES", TOTAL - RESERVED - (23 << 30))
    gpus.set({"0.used": 1 << 30, "0.util": 7})
    seen.reading("VRAM_FREE_BYTES", TOTAL - RESERVED - (1 << 30))
    seen.reading("GPU_UTILIZATION_RATIO", 0.07)


def test_the_report_has_every_unit_right(watch: Start) -> None:
    """Bytes, a ratio, watts, degrees."""
    report = watch().until(lambda line: "gpu" in line)["gpu"]
    assert report["memory_total_bytes"] == TOTAL
    assert report["utilization_ratio"] == 0.5
    assert report["power_w"] == 350.5
    assert report["temperature_c"] == 61.0
    assert (report["state"], report["target"], report["unsupported"]) == ("ok", "default", [])


def test_a_gpu_that_is_lost_has_no_values_and_comes_back_under_its_uuid(watch: Start, gpus: StubFile) -> None:
    """Never 0 bytes free, never the last value for ever: a state, and silence."""
    seen = watch()
    seen.reading("VRAM_FREE_BYTES")
    gpus.set({"0.lost": 1})
    seen.reading("GPU_STATE", 0.0)
    silent = seen.during(1.0)
    assert {line["reading"] for line in silent if "reading" in line} == {"GPU_STATE"}
    assert {line["gpu"]["state"] for line in silent if "gpu" in line} == {"lost"}
    assert {line["gpu"]["memory_free_bytes"] for line in silent if "gpu" in line} == {None}
    gpus.set({"0.lost": 0, "0.used": 2 << 30})
    seen.reading("VRAM_FREE_BYTES", TOTAL - RESERVED - (2 << 30))
    seen.reading("GPU_STATE", 1.0)


def test_calls_that_are_not_supported_are_listed_and_the_rest_goes_on(watch: Start, gpus: StubFile) -> None:
    """A MIG parent, a unified-memory machine, a guest: each lacks something else."""
    gpus.set({"0.error.utilization": 3, "0.error.power": 3, "0.error.clocks": 3})
    seen = watch()
    report = seen.until(lambda line: "gpu" in line)["gpu"]
    assert report["unsupported"] == ["clocks", "power", "utilization"]
    assert report["utilization_ratio"] is None
    kinds = {line["reading"] for line in seen.during(1.0) if "reading" in line}
    assert "VRAM_FREE_BYTES" in kinds
    assert not kinds & {"GPU_UTILIZATION_RATIO", "GPU_POWER_W", "GPU_CLOCK_REASONS"}


def test_several_gpus_are_told_apart_and_one_lost_leaves_the_others(watch: Start, gpus: StubFile) -> None:
    """A node has eight; one falls off the bus."""
    gpus.set({"count": 3, "1.uuid": "GPU-bbbb", "1.used": 1 << 30, "2.uuid": "GPU-cccc"})
    seen = watch()
    seen.reading("VRAM_USED_BYTES", 20 << 30)
    seen.reading("VRAM_USED_BYTES", 1 << 30, "GPU-bbbb")
    gpus.set({"1.lost": 1})
    seen.reading("GPU_STATE", 0.0, "GPU-bbbb")
    members = {line["member"] for line in seen.during(1.0) if line.get("reading") == "VRAM_FREE_BYTES"}
    assert members == {"GPU-aaaa", "GPU-cccc"}


@pytest.mark.parametrize(
    ("missing", "unsupported"),
    [
        (("MEMORY_V2", "EVENT_REASONS", "TEMPERATURE_V"), []),
        (("UTILIZATION",), ["utilization"]),
    ],
)
def test_a_driver_without_a_function_is_asked_the_old_way_or_not_at_all(
    watch: Start, library: Path, tmp_path: Path, missing: tuple[str, ...], unsupported: list[str]
) -> None:
    """`FunctionNotFound` comes from the library's symbols: only another build can show it."""
    seen = watch(build(tmp_path / "old", missing))
    report = seen.until(lambda line: "gpu" in line)["gpu"]
    assert report["unsupported"] == unsupported
    assert report["temperature_c"] == 61.0
    # Without version 2 the driver's reserve counts as used; what is free stays the same.
    assert report["memory_free_bytes"] == TOTAL - RESERVED - (20 << 30)


def test_hot_and_braked_is_degraded_and_capped_is_not(watch: Start, gpus: StubFile) -> None:
    """0x40 is heat, 0x4 the power cap that a busy GPU runs at."""
    gpus.set({"0.clocks": 0x4})
    seen = watch()
    report = seen.until(lambda line: "gpu" in line)["gpu"]
    assert (report["state"], report["clock_reasons"]) == ("ok", "sw_power_cap")
    gpus.set({"0.clocks": 0x44})
    report = seen.until(lambda line: line.get("gpu", {}).get("state") == "degraded")["gpu"]
    assert report["clock_reasons"] == "sw_power_cap,hw_thermal"


def test_a_call_that_hangs_is_reported_while_the_loop_goes_on(watch: Start, gpus: StubFile) -> None:
    """A driver that hangs takes its thread, and nothing else."""
    seen = watch()
    seen.reading("VRAM_FREE_BYTES")
    gpus.set({"0.delay_ms.memory": 9000})
    line = seen.until(lambda line: line.get("warn") == "nvml:hung")
    assert "has not returned" in line["text"]


def test_no_library_is_one_line_and_no_readings(watch: Start) -> None:
    """Most developer machines, and every container without the runtime."""
    seen = watch(None)
    report = seen.until(lambda line: "signal" in line)["signal"]
    assert (report["name"], report["state"]) == ("nvml", "missing")
    assert "libnvidia-ml.so.1 is not on this machine" in report["warning"]
    assert not [line for line in seen.during(0.5) if "reading" in line]


def test_a_driver_that_is_not_loaded_is_named(watch: Start, gpus: StubFile) -> None:
    """The library is there, the kernel module is not."""
    gpus.set({"init": 9})
    report = watch().until(lambda line: "signal" in line)["signal"]
    assert "Driver Not Loaded" in report["warning"]
