"""A binding to GPUs that are not there: the part of `pynvml` that is used, with its errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

WORDS = {3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded", 12: "Library Not Found"}


class NVMLError(Exception):
    """An error by its number in nvml.h."""

    def __init__(self, value: int) -> None:
        super().__init__(WORDS.get(value, f"error {value}"))
        self.value = value


@dataclass(slots=True)
class FakeGpu:
    """One GPU; `errors` by call: memory_v2, memory, utilization, power, temperature_v, temperature, events, throttle."""

    uuid: str
    used: int = 1 << 30
    total: int = 24 << 30
    util: int = 50
    reasons: int = 0
    lost: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def ask(self, call: str) -> None:
        """Raises what the test ordered."""
        self.asked.append(call)
        if self.lost:
            raise NVMLError(15)
        if call in self.errors:
            raise NVMLError(self.errors[call])


class FakeNvml:
    """Any attribute that is not here must not be asked for."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 33554472  # noqa: N815 - the binding's name
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: FakeGpu, init: int = 0) -> None:
        self.gpus = list(gpus)
        self.init = init
        self.opened = 0
        self.closed = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init:
            raise NVMLError(self.init)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        self.gpus[index].ask("handle")
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        gpu.ask("name")
        return "Fake GPU"

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int = 0) -> SimpleNamespace:  # noqa: N802
        gpu.ask("memory_v2" if version else "memory")
        return SimpleNamespace(used=gpu.used, total=gpu.total, free=gpu.total - gpu.used)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        gpu.ask("utilization")
        return SimpleNamespace(gpu=gpu.util, memory=0)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # noqa: N802
        gpu.ask("power")
        return 350_500

    def nvmlDeviceGetTemperatureV(self, gpu: FakeGpu, _sensor: int) -> int:  # noqa: N802
        gpu.ask("temperature_v")
        return 61

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, _sensor: int) -> int:  # noqa: N802
        gpu.ask("temperature")
        return 60

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:  # noqa: N802
        gpu.ask("events")
        return gpu.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:  # noqa: N802
        gpu.ask("throttle")
        return gpu.reasons
