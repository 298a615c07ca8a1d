"""GPUs are asked only for what they can answer, are lost and come back under the same UUID, and are never 0 instead."""

from __future__ import annotations

import pytest

from telemetry.receivers.nvml_calls import Call, Memory, clock_words
from telemetry.receivers.nvml_sampler import GpuSample, NvmlSampler
from tests.telemetry.receivers.fake_nvml import FakeGpu, FakeNvml


def sampler_of(library: FakeNvml) -> NvmlSampler:
    """A sampler on a fake."""
    return NvmlSampler(load=lambda: library)


def only(sampler: NvmlSampler, now: float) -> GpuSample:
    """The sample of the only GPU."""
    [sample] = sampler.step(now).gpus
    return sample


def test_the_first_step_has_everything() -> None:
    """Bytes, ratios, watts and degrees, whatever NVML's own units are."""
    sample = only(sampler_of(FakeNvml(FakeGpu("GPU-a"))), 1.0)
    assert sample.memory == Memory(1 << 30, 23 << 30, 24 << 30)
    assert (sample.utilization_ratio, sample.power_w, sample.temperature_c) == (0.5, 350.5, 61.0)
    assert (sample.state, sample.unsupported) == ("ok", {})


def test_slow_values_are_asked_once_a_second() -> None:
    """Power is the costliest of the light calls."""
    gpu = FakeGpu("GPU-a")
    sampler = sampler_of(FakeNvml(gpu))
    for step in range(10):
        sampler.step(10.0 + step * 0.2)
    assert gpu.asked.count("memory_v2") == 10
    assert gpu.asked.count("power") == 2


def test_slow_values_that_nobody_has_read_yet_are_not_lost_with_their_step() -> None:
    """When the loop is late, the next step takes the place of the one that waits; heat is asked once a second only."""
    gpu = FakeGpu("GPU-a")
    sampler = sampler_of(FakeNvml(gpu))
    unread = sampler.step(10.0)
    newest = sampler.step(10.2).after(unread)
    assert newest.slow
    assert [(sample.temperature_c, sample.power_w) for sample in newest.gpus] == [(61.0, 350.5)]
    assert sampler.step(10.4).after(None).gpus[0].temperature_c is None


def test_what_is_not_supported_is_asked_once_and_its_reason_kept() -> None:
    """A MIG parent has no utilization, a unified-memory machine no memory: for good."""
    gpu = FakeGpu("GPU-a", errors={"utilization": 3, "power": 4})
    sampler = sampler_of(FakeNvml(gpu))
    for step in range(5):
        sample = only(sampler, float(step))
    assert gpu.asked.count("utilization") == 1
    assert sample.unsupported == {Call.UTILIZATION: "Not Supported", Call.POWER: "Insufficient Permissions"}
    assert sample.utilization_ratio is None
    assert sample.memory is not None


@pytest.mark.parametrize(
    ("new", "old"),
    [("memory_v2", "memory"), ("temperature_v", "temperature"), ("events", "throttle")],
)
def test_an_old_driver_is_asked_the_old_way_from_then_on(new: str, old: str) -> None:
    """13 is what a driver without the function gives."""
    gpu = FakeGpu("GPU-a", errors={new: 13})
    sampler = sampler_of(FakeNvml(gpu))
    for step in range(3):
        sample = only(sampler, float(step))
    assert (gpu.asked.count(new), gpu.asked.count(old)) == (1, 3)
    assert sample.unsupported == {}


def test_a_passing_error_costs_one_value_only() -> None:
    """Time-outs and busy answers happen; they must not end a signal."""
    gpu = FakeGpu("GPU-a")
    sampler = sampler_of(FakeNvml(gpu))
    sampler.step(1.0)
    gpu.errors = {"memory_v2": 10}
    assert only(sampler, 1.2).memory is None
    gpu.errors = {}
    assert only(sampler, 1.4).memory is not None


def test_a_value_that_cannot_be_is_no_value() -> None:
    """Free bytes below zero would refuse everything."""
    gpu = FakeGpu("GPU-a")
    sampler = sampler_of(FakeNvml(gpu))
    sampler.step(1.0)
    gpu.used, gpu.util = gpu.total + 1, 101
    sample = only(sampler, 1.2)
    assert (sample.memory, sample.utilization_ratio) == (None, None)
    gpu.used = 0
    assert only(sampler, 1.4).memory is not None


def test_a_gpu_without_any_memory_to_report_is_not_asked_again() -> None:
    """Zero bytes in all is how some drivers say that they cannot."""
    gpu = FakeGpu("GPU-a", used=0, total=0)
    sample = only(sampler_of(FakeNvml(gpu)), 1.0)
    assert sample.memory is None
    assert "cannot be" in sample.unsupported[Call.MEMORY]


def test_a_lost_gpu_has_a_state_and_no_values_and_the_others_go_on() -> None:
    """A value that stands still would look like a healthy GPU."""
    lost, well = FakeGpu("GPU-a"), FakeGpu("GPU-b")
    sampler = sampler_of(FakeNvml(lost, well))
    sampler.step(1.0)
    lost.lost = True
    first, second = sampler.step(1.2).gpus
    assert first == GpuSample("GPU-a", "Fake GPU", "lost")
    assert second.memory is not None


def test_a_gpu_that_comes_back_keeps_its_uuid_and_is_probed_anew() -> None:
    """What it could not answer before the reset it may answer now."""
    gpu = FakeGpu("GPU-a", errors={"utilization": 3})
    library = FakeNvml(gpu)
    sampler = sampler_of(library)
    sampler.step(1.0)
    gpu.lost = True
    assert only(sampler, 1.2).state == "lost"
    gpu.lost, gpu.errors = False, {}
    assert only(sampler, 3.0).state == "lost"
    sample = only(sampler, 6.3)
    assert (sample.uuid, sample.state, sample.utilization_ratio) == ("GPU-a", "ok", 0.5)
    assert (library.opened, library.closed) == (2, 1)


def test_nvml_is_opened_less_and_less_often_for_a_gpu_that_stays_lost() -> None:
    """Each opening halts the sampling of the others for a moment."""
    lost, well = FakeGpu("GPU-a"), FakeGpu("GPU-b")
    library = FakeNvml(lost, well)
    sampler = sampler_of(library)
    sampler.step(0.0)
    lost.lost = True
    for second in range(1, 121):
        sampler.step(float(second))
    assert 4 <= library.opened <= 8


def test_a_gpu_lost_before_it_told_its_name_is_counted_and_awaited() -> None:
    """It cannot be bound to a target, but it must not be hidden."""
    gpu = FakeGpu("GPU-a", lost=True)
    sampler = sampler_of(FakeNvml(gpu))
    observation = sampler.step(0.0)
    assert (observation.gpus, observation.nameless) == ([], 1)
    gpu.lost = False
    observation = sampler.step(5.0)
    assert ([sample.uuid for sample in observation.gpus], observation.nameless) == (["GPU-a"], 0)


def test_without_a_driver_it_says_so_and_tries_each_half_minute() -> None:
    """The driver may be installed, or the container restarted, while we run."""
    library = FakeNvml(FakeGpu("GPU-a"), init=12)
    sampler = sampler_of(library)
    assert "libnvidia-ml.so.1 is not on this machine" in sampler.step(0.0).problem
    library.init = 0
    assert sampler.step(29.0).gpus == []
    observation = sampler.step(30.0)
    assert (observation.problem, len(observation.gpus)) == ("", 1)


def test_without_the_python_package_it_says_so() -> None:
    """The extra `nvml` was not installed."""

    def absent() -> FakeNvml:
        raise ImportError("No module named 'pynvml'")

    assert "nvidia-ml-py" in NvmlSampler(load=absent).step(0.0).problem


def test_a_package_of_the_same_name_that_is_not_the_binding_is_named() -> None:
    """The deprecated `pynvml` package has none of the functions."""
    assert "nvidia-ml-py" in NvmlSampler(load=object).step(0.0).problem


def test_a_driver_that_goes_away_makes_every_gpu_lost_and_is_awaited() -> None:
    """A driver upgrade under a running sidecar."""
    gpu = FakeGpu("GPU-a")
    library = FakeNvml(gpu)
    sampler = sampler_of(library)
    sampler.step(0.0)
    gpu.errors, library.init = {"memory_v2": 9}, 9
    observation = sampler.step(1.0)
    assert (observation.problem, observation.gpus[0].state) == ("Driver Not Loaded", "lost")
    gpu.errors, library.init = {}, 0
    observation = sampler.step(6.0)
    assert (observation.problem, observation.gpus[0].state) == ("", "ok")


@pytest.mark.parametrize(
    ("reasons", "state"),
    [
        (0x0, "ok"),
        (0x1, "ok"),
        (0x4, "ok"),
        (0x8, "degraded"),
        (0x20, "degraded"),
        (0x44, "degraded"),
        (0x80, "degraded"),
    ],
)
def test_heat_and_brakes_degrade_and_a_power_cap_does_not(reasons: int, state: str) -> None:
    """A busy data-centre GPU runs at its power cap all day."""
    assert only(sampler_of(FakeNvml(FakeGpu("GPU-a", reasons=reasons))), 1.0).state == state


def test_a_degraded_gpu_stays_so_between_two_slow_steps() -> None:
    """The reasons are asked once a second, the state is told five times."""
    gpu = FakeGpu("GPU-a", reasons=0x40)
    sampler = sampler_of(FakeNvml(gpu))
    assert [only(sampler, 1.0).state, only(sampler, 1.2).state] == ["degraded", "degraded"]
    gpu.reasons = 0
    assert only(sampler, 2.1).state == "ok"


def test_clock_reasons_have_words() -> None:
    """A bit that nobody knows is shown as it is."""
    assert clock_words(0x44) == "sw_power_cap,hw_thermal"
    assert clock_words(0x1001) == "idle,0x1000"
    assert clock_words(0) == ""


def test_closing_twice_is_harmless() -> None:
    """Stopping may come from two sides."""
    library = FakeNvml(FakeGpu("GPU-a"))
    sampler = sampler_of(library)
    sampler.step(0.0)
    sampler.close()
    sampler.close()
    assert library.closed == 1
