"""Samples become readings of the targets that a GPU works for, and reports for people."""

from __future__ import annotations

from admission.vocabulary import SignalKind, Source
from telemetry.config import TargetBinding
from telemetry.receivers.nvml import GpuTeller, bound_to
from telemetry.receivers.nvml_sampler import NvmlSampler
from tests.telemetry.receivers.fake_nvml import FakeGpu, FakeNvml
from tests.telemetry.receivers.recording import Recording


def told(*gpus: FakeGpu, targets: tuple[TargetBinding, ...] = (TargetBinding(),)) -> Recording:
    """What one step over these GPUs emits."""
    emit = Recording()
    GpuTeller(targets, host="node").tell(NvmlSampler(load=lambda: FakeNvml(*gpus)).step(5.0), emit)
    return emit


def test_a_gpu_gives_readings_under_its_uuid() -> None:
    """The watermark names the GPU by it, on every machine the same."""
    emit = told(FakeGpu("GPU-a"))
    assert emit.values() == {
        SignalKind.VRAM_USED_BYTES: float(1 << 30),
        SignalKind.VRAM_FREE_BYTES: float(23 << 30),
        SignalKind.VRAM_TOTAL_BYTES: float(24 << 30),
        SignalKind.GPU_UTILIZATION_RATIO: 0.5,
        SignalKind.GPU_POWER_W: 350.5,
        SignalKind.GPU_TEMPERATURE_C: 61.0,
        SignalKind.GPU_CLOCK_REASONS: 0.0,
        SignalKind.GPU_STATE: 1.0,
    }
    assert {(r.source, r.member, r.at) for _, r in emit.readings} == {(Source.NVML, "GPU-a", 5.0)}


def test_what_a_gpu_cannot_answer_is_not_a_reading_and_is_listed() -> None:
    """Missing is not 0: a unified-memory machine must not look full, nor empty."""
    emit = told(FakeGpu("GPU-a", errors={"memory_v2": 3, "memory": 3}))
    assert SignalKind.VRAM_FREE_BYTES not in emit.values()
    [report] = emit.gpus
    assert (report.unsupported, report.memory_free_bytes) == (["memory"], None)


def test_a_lost_gpu_has_its_state_as_its_only_reading_and_shows_no_values() -> None:
    """What was measured before the loss becomes stale, as it should."""
    gpu, emit = FakeGpu("GPU-a"), Recording()
    sampler, teller = NvmlSampler(load=lambda: FakeNvml(gpu)), GpuTeller((TargetBinding(),), host="node")
    teller.tell(sampler.step(5.0), emit)
    emit.clear()
    gpu.lost = True
    teller.tell(sampler.step(7.0), emit)
    assert emit.values() == {SignalKind.GPU_STATE: 0.0}
    [report] = emit.gpus
    assert (report.state, report.memory_used_bytes, report.age_s) == ("lost", None, 2.0)
    assert report.name == "Fake GPU"


def test_a_report_keeps_what_was_not_asked_this_time() -> None:
    """Power is asked once a second and shown all the time."""
    emit, sampler = Recording(), NvmlSampler(load=lambda: FakeNvml(FakeGpu("GPU-a")))
    teller = GpuTeller((TargetBinding(),), host="node")
    teller.tell(sampler.step(5.0), emit)
    teller.tell(sampler.step(5.2), emit)
    assert emit.gpus[-1].power_w == 350.5
    assert sum(reading.kind is SignalKind.GPU_POWER_W for _, reading in emit.readings) == 1


def test_a_gpu_works_for_the_targets_that_name_it_and_those_that_take_all() -> None:
    """Two engines may share a machine, and even a GPU."""
    targets = (
        TargetBinding(name="one", gpus=("GPU-a",)),
        TargetBinding(name="two", gpus=("GPU-b", "GPU-a")),
        TargetBinding(name="all"),
        TargetBinding(name="none", gpus=()),
    )
    assert bound_to("GPU-a", targets) == ["one", "two", "all"]
    assert bound_to("GPU-c", targets) == ["all"]


def test_an_unbound_gpu_is_reported_and_steers_nobody() -> None:
    """It is listed in status, so that the mistake in the configuration is seen."""
    emit, teller = Recording(), GpuTeller((TargetBinding(gpus=("GPU-z",)),), host="node")
    teller.tell(NvmlSampler(load=lambda: FakeNvml(FakeGpu("GPU-a"))).step(5.0), emit)
    assert teller.unbound == ["GPU GPU-a on node"]
    assert emit.readings == []
    assert [(report.uuid, report.target) for report in emit.gpus] == [("GPU-a", "")]


def test_nvml_that_is_absent_is_said_once() -> None:
    """One line, not five a second."""
    emit = Recording()
    library = FakeNvml(init=12)
    sampler, teller = NvmlSampler(load=lambda: library), GpuTeller((TargetBinding(),), host="node")
    for step in range(5):
        teller.tell(sampler.step(float(step)), emit)
    [report] = emit.signals
    assert (report.name, report.state) == ("nvml", "missing")
    assert "NVML is absent" in report.warning
    library.init = 0
    teller.tell(sampler.step(40.0), emit)
    assert (emit.signals[-1].state, emit.signals[-1].warning) == ("fresh", "")


def test_a_silent_gpu_is_a_warning_until_it_answers() -> None:
    """It has no UUID yet, so nothing else can be said of it."""
    gpu, emit = FakeGpu("GPU-a", lost=True), Recording()
    sampler, teller = NvmlSampler(load=lambda: FakeNvml(gpu)), GpuTeller((TargetBinding(),), host="node")
    teller.tell(sampler.step(0.0), emit)
    assert "1 GPU(s)" in emit.warnings["nvml:nameless"]
    gpu.lost = False
    teller.tell(sampler.step(5.0), emit)
    assert emit.warnings == {}


def test_reports_are_copies() -> None:
    """Who keeps one must not see it change."""
    emit, sampler = Recording(), NvmlSampler(load=lambda: FakeNvml(FakeGpu("GPU-a")))
    teller = GpuTeller((TargetBinding(),), host="node")
    teller.tell(sampler.step(5.0), emit)
    teller.tell(sampler.step(5.2), emit)
    assert emit.gpus[0] is not emit.gpus[1]
    assert teller.knows("GPU-a")
    assert not teller.knows("GPU-b")
