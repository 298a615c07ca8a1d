"""GPUs sampled in the telemetry process reach the admission loop as readings, and people as a view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from admission.vocabulary import SignalKind, Source
from tests.integration.telemetry.harness import QUIET, Sink, running
from tests.nvml_stub.stub import StubFile

pytestmark = pytest.mark.integration


def newest(sink: Sink, kind: SignalKind) -> float | None:
    """The newest value of a kind."""
    found = [reading.value for reading in sink.readings if reading.kind is kind]
    return found[-1] if found else None


async def test_a_gpu_moves_is_lost_and_returns_while_telemetry_runs(
    library: Path, gpus: StubFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way from the driver's C function to the loop that decides."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("NVML_STUB_FILE", str(gpus.path))
    async with running(replace(QUIET, nvml=True)) as (_, sink):
        await sink.until(lambda: newest(sink, SignalKind.VRAM_FREE_BYTES) == (3 << 30) + (512 << 20))
        gpus.set({"0.used": 23 << 30})
        await sink.until(lambda: newest(sink, SignalKind.VRAM_FREE_BYTES) == 512 << 20)
        gpus.set({"0.lost": 1})
        await sink.until(lambda: newest(sink, SignalKind.GPU_STATE) == 0.0)
        await sink.until(lambda: [gpu.state for gpu in sink.last.gpus] == ["lost"])
        gpus.set({"0.lost": 0, "0.used": 1 << 30})
        await sink.until(lambda: newest(sink, SignalKind.VRAM_FREE_BYTES) == (22 << 30) + (512 << 20))
        await sink.until(lambda: [gpu.state for gpu in sink.last.gpus] == ["ok"])
        assert {(reading.source, reading.member) for reading in sink.readings} == {(Source.NVML, "GPU-aaaa")}
        states = {signal.name: signal.state for signal in sink.last.signals}
        assert states["vram_free_bytes"] == "fresh"


async def test_without_a_driver_the_view_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing and why, and no readings; the rest of telemetry runs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    async with running(replace(QUIET, nvml=True)) as (_, sink):
        await sink.until(lambda: any(signal.name == "nvml" for signal in sink.last.signals))
        [report] = [signal for signal in sink.last.signals if signal.name == "nvml"]
        assert report.state == "missing"
        assert "NVML is absent" in report.warning
        assert sink.readings == []
