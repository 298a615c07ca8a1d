"""From a driver's C function to the refusal: the VRAM watermark of a sidecar that serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from admission.v1 import types_pb2 as words
from admission.v1.monitor_service_pb2 import GateSnapshot, GpuSnapshot, Snapshot
from tests.integration.faults.rig import Rig, acquire, counted, release, target_of
from tests.nvml_stub.stub import StubFile, environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GIB = 1 << 30
RESERVED = GIB // 2
TOTAL = 24 * GIB
ASK = {"model": "standin", "prompt": " tok" * 20, "max_tokens": 4}


def used_for(free_bytes: int) -> int:
    """What the stand-in must say is used so that this much is free."""
    return TOTAL - RESERVED - free_bytes


def with_gpu(rig: Rig, library: Path, gpus: StubFile) -> Rig:
    """A sidecar that finds the stand-in instead of a driver, and learns in half a second."""
    rig.environment = environment(library, gpus.path)
    rig.sections["telemetry"] = {"nvml": True, "nvml_interval_s": 0.1, "otlp_grpc": ""}
    rig.target = {"vram": {"learn_s": 0.5}}
    return rig


def gpu(seen: Snapshot) -> GpuSnapshot:
    """The GPU, or an empty one before it was seen."""
    return seen.gpus[0] if seen.gpus else GpuSnapshot()


def vram(seen: Snapshot) -> GateSnapshot:
    """The gate."""
    return next(gate for gate in target_of(seen).gates if gate.name == "vram")


async def serve_one(rig: Rig) -> None:
    """A request that ends well: the engine is up."""
    async with rig.asking() as stub:
        decision = await acquire(stub)
        assert decision.verdict == words.VERDICT_ADMITTED
        assert await release(stub, decision.lease)


async def test_free_bytes_that_fall_refuse_by_name_and_return_with_hysteresis(
    rig: Rig, library: Path, gpus: StubFile
) -> None:
    """Caller, gateway and on-call read the same reason, the same GPU, and the value against its mark."""
    with_gpu(rig, library, gpus)
    rig.target["metrics_urls"] = [f"http://127.0.0.1:{rig.engine_port}/metrics"]
    await rig.sidecar()
    await rig.engine("--engine", "h100-llama3-8b", TIDEGATE_DECISION_TIMEOUT_MS="5000")
    learned = await rig.shown(lambda seen: gpu(seen).HasField("critical_free_bytes"))
    assert (gpu(learned).free_baseline_bytes, gpu(learned).critical_free_bytes) == (3584 << 20, 1792 << 20)
    assert gpu(learned).vram_rule == "preallocating"
    assert (await rig.post(ASK))[0] == 200

    gpus.set({"0.used": used_for(GIB)})
    closed = await rig.shown(lambda seen: vram(seen).state == "critical")
    async with rig.asking() as stub:
        decision = await acquire(stub)
    status, headers, body = await rig.post(ASK)

    assert (decision.verdict, decision.reason) == (words.VERDICT_REJECTED, words.REASON_WATERMARK_VRAM)
    assert decision.detail == "GPU-aaaa: 1.00 GiB free, mark 1.75 GiB"
    assert (decision.measured, decision.threshold, decision.unit) == (GIB, 1792 << 20, "bytes")
    assert decision.retry_after.ToMilliseconds() >= 1_000
    assert (status, headers["x-tidegate-reason"]) == (429, "WATERMARK_VRAM")
    assert int(headers["retry-after"]) >= 1
    error = json.loads(body)["error"]
    assert error["code"] == "watermark_vram"
    assert "GPU-aaaa: 1.00 GiB free, mark 1.75 GiB" in error["message"]
    assert "GPU-aaaa" in vram(closed).why
    last = [change for change in target_of(closed).changes if change.what == "vram"][-1]
    assert (last.new, last.source) == ("critical", "nvml")
    assert "GPU-aaaa" in last.why

    # Over the mark, under 1.2 times the mark: what flutters about it must not open and close the gate.
    gpus.set({"0.used": used_for(2 * GIB)})
    await rig.shown(lambda seen: gpu(seen).memory_free_bytes == 2 * GIB and vram(seen).measured == 2 * GIB)
    assert (await rig.post(ASK))[0] == 429
    gpus.set({"0.used": used_for(3 * GIB)})
    await rig.shown(lambda seen: vram(seen).state == "open")
    assert (await rig.post(ASK))[0] == 200
    assert counted(target_of(await rig.snapshot()), words.VERDICT_REJECTED, words.REASON_WATERMARK_VRAM) == 3
    await rig.empties()


async def test_a_finished_request_is_enough_to_learn_and_a_growing_engine_has_marks_of_the_whole(
    rig: Rig, library: Path, gpus: StubFile
) -> None:
    """No scrape: the engine is up because it served. One that takes memory as it works may fill nine tenths."""
    with_gpu(rig, library, gpus)
    gpus.set({"0.used": 2 * GIB})
    await rig.sidecar()
    before = await rig.shown(lambda seen: gpu(seen).memory_free_bytes)
    assert gpu(before).vram_rule == "learning"
    await serve_one(rig)
    learned = await rig.shown(lambda seen: gpu(seen).vram_rule == "growing")
    assert gpu(learned).critical_free_bytes == pytest.approx(0.1 * TOTAL, rel=0.001)

    gpus.set({"0.used": used_for(3 * GIB)})
    await rig.shown(lambda seen: vram(seen).state == "high")
    await serve_one(rig)
    gpus.set({"0.used": used_for(2 * GIB)})
    await rig.shown(lambda seen: vram(seen).state == "critical")
    async with rig.asking() as stub:
        # Such an engine may keep what it once took, so at rest one request may try; beside it nobody.
        first, second = await acquire(stub), await acquire(stub)
        assert await release(stub, first.lease)
    assert (first.verdict, second.reason) == (words.VERDICT_ADMITTED, words.REASON_WATERMARK_VRAM)


async def test_a_gpu_lost_while_serving_is_shown_and_admission_goes_on_until_it_returns(
    rig: Rig, library: Path, gpus: StubFile
) -> None:
    """A lost GPU has no values: the gate that it had closed is stale, and says so, and refuses nobody."""
    with_gpu(rig, library, gpus)
    rig.target["vram"]["stale_s"] = 3.0
    await rig.sidecar()
    await serve_one(rig)
    await rig.shown(lambda seen: gpu(seen).HasField("critical_free_bytes"))
    gpus.set({"0.used": used_for(GIB)})
    await rig.shown(lambda seen: vram(seen).state == "critical")

    gpus.set({"0.lost": 1})
    lost = await rig.shown(lambda seen: gpu(seen).state == "lost" and vram(seen).state == "stale")
    assert not gpu(lost).HasField("memory_free_bytes")
    await serve_one(rig)
    await rig.shown(
        lambda seen: any(s.name == "vram_free_bytes" and s.state == "stale" for s in seen.signals)
    )

    gpus.set({"0.lost": 0})
    found = await rig.shown(lambda seen: gpu(seen).state == "ok" and vram(seen).state == "critical", 30)
    assert gpu(found).memory_free_bytes == GIB
    async with rig.asking() as stub:
        assert (await acquire(stub)).reason == words.REASON_WATERMARK_VRAM
    gpus.set({"0.used": used_for(3 * GIB)})
    await rig.shown(lambda seen: vram(seen).state == "open")
    await serve_one(rig)


async def test_a_gpu_that_cannot_tell_its_memory_says_so_and_refuses_nobody(
    rig: Rig, library: Path, gpus: StubFile
) -> None:
    """Machines whose CPU and GPU share memory answer NotSupported: unknown is neither empty nor full."""
    gpus.set({"0.error.memory": 3, "0.used": used_for(0)})
    with_gpu(rig, library, gpus)
    await rig.sidecar()
    seen = await rig.shown(lambda seen: "memory" in gpu(seen).unsupported)
    await serve_one(rig)
    await serve_one(rig)

    assert gpu(seen).utilization_ratio == 0.5
    assert not gpu(seen).HasField("memory_free_bytes")
    assert (vram(seen).state, vram(seen).why) == ("open", "no GPU memory reading")


async def test_without_a_driver_it_says_so_and_serves(rig: Rig) -> None:
    """Most machines that try it first have no GPU."""
    rig.environment = {"LD_LIBRARY_PATH": "/nonexistent"}
    rig.sections["telemetry"] = {"nvml": True}
    await rig.sidecar()
    seen = await rig.shown(lambda seen: any(signal.name == "nvml" for signal in seen.signals))
    await serve_one(rig)

    [signal] = [signal for signal in seen.signals if signal.name == "nvml"]
    assert (signal.state, list(seen.gpus)) == ("missing", [])
    assert "NVML is absent" in signal.warning
    assert (vram(seen).state, vram(seen).why) == ("open", "no GPU memory reading")
