"""Samples every GPU of this machine, step by step: opens NVML, reads, notices loss, comes back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from telemetry.receivers.nvml_calls import (
    DEGRADED_BITS,
    FAST,
    SLOW,
    Call,
    Gpu,
    GpuLostError,
    LibraryGoneError,
    Memory,
    ask,
)

ABSENT_RETRY_S = 30.0
LOST_RETRY_S = 5.0


@dataclass(slots=True)
class GpuSample:
    """One GPU at one moment. None: not asked this time, or not to be had."""

    uuid: str
    name: str
    state: str = "ok"
    """`ok`, `degraded` (hot or braked) or `lost`."""
    memory: Memory | None = None
    utilization_ratio: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_reasons: int | None = None
    unsupported: dict[Call, str] = field(default_factory=dict)


@dataclass(slots=True)
class Observation:
    """What one step found. `problem` is why NVML as a whole gives nothing, else empty."""

    at: float
    gpus: list[GpuSample] = field(default_factory=list)
    problem: str = ""
    slow: bool = False
    """Whether this step asked for everything, not only for what moves fast."""
    nameless: int = 0
    """GPUs that were lost before they told their UUID."""

    def after(self, earlier: Observation | None) -> Observation:
        """This one, with what it did not ask for taken from an earlier one that nobody has read."""
        if earlier is None or self.slow or not earlier.slow:
            return self
        self.slow = True
        before = {sample.uuid: sample for sample in earlier.gpus if sample.state != "lost"}
        for sample in self.gpus:
            if sample.state != "lost" and (old := before.get(sample.uuid)):
                sample.power_w, sample.temperature_c = old.power_w, old.temperature_c
                sample.clock_reasons = old.clock_reasons
        return self


def load_pynvml() -> Any:
    """The NVML binding. Raises ImportError where the package nvidia-ml-py is not installed."""
    return importlib.import_module("pynvml")


class NvmlSampler:
    """Owns NVML in one thread: call `step` again and again, `close` at the end. The caller passes the time.

    GPUs keep their UUID over loss and return; each opening of NVML probes anew what they can answer.
    """

    def __init__(self, *, load: Callable[[], Any] = load_pynvml, slow_interval_s: float = 1.0) -> None:
        self._load = load
        self._slow_interval_s = slow_interval_s
        self._library: Any = None
        self._gpus: dict[str, Gpu] = {}
        self._names: dict[str, str] = {}
        self._degraded: set[str] = set()
        self._problem = ""
        self._nameless = 0
        self._open_at = 0.0
        self._opened_once = False
        self._slow_at = 0.0
        self._lost_retry_s = LOST_RETRY_S

    def step(self, now: float) -> Observation:
        """Samples once. `now`: monotonic seconds. Never raises for anything that NVML does."""
        if self._must_open() and now >= self._open_at:
            self._reopen(now)
        slow = now >= self._slow_at
        if slow:
            self._slow_at = now + self._slow_interval_s
        samples = self._samples(FAST + SLOW if slow else FAST, now)
        return Observation(now, samples, self._problem, slow, self._nameless)

    def close(self) -> None:
        """Gives NVML back."""
        library, self._library, self._gpus = self._library, None, {}
        if library is not None:
            with suppress(library.NVMLError):  # it may be gone already
                library.nvmlShutdown()

    def _must_open(self) -> bool:
        return self._library is None or self._nameless > 0 or len(self._gpus) < len(self._names)

    def _reopen(self, now: float) -> None:
        self.close()
        try:
            self._open()
        except (ImportError, AttributeError) as error:
            self._gone(f"the package nvidia-ml-py is not usable: {error}", now)
        except LibraryGoneError as error:
            self._gone(str(error), now)
        else:
            self._slow_at = now
            self._schedule_recovery(now)

    def _open(self) -> None:
        library = self._load()
        try:
            library.nvmlInit()
            self._library = library
            self._gpus, silent = _enumerate(library)
        except library.NVMLError as error:
            self.close()
            raise LibraryGoneError(_why_absent(error)) from None
        self._problem, self._opened_once = "", True
        self._names |= {uuid: gpu.name for uuid, gpu in self._gpus.items()}
        self._nameless = max(0, silent - (len(self._names) - len(self._gpus)))

    def _schedule_recovery(self, now: float) -> None:
        """A lost GPU needs NVML opened anew, which halts the others for a moment: less and less often."""
        if not self._must_open():
            self._lost_retry_s = LOST_RETRY_S
            return
        self._open_at = now + self._lost_retry_s
        self._lost_retry_s = min(2.0 * self._lost_retry_s, ABSENT_RETRY_S)

    def _gone(self, why: str, now: float) -> None:
        self.close()
        self._problem = why
        self._open_at = now + (LOST_RETRY_S if self._opened_once else ABSENT_RETRY_S)

    def _samples(self, calls: Iterable[Call], now: float) -> list[GpuSample]:
        found: dict[str, GpuSample] = {}
        for uuid, gpu in list(self._gpus.items()):
            try:
                found[uuid] = self._sample(gpu, calls)
            except GpuLostError:
                del self._gpus[uuid]
                self._open_at = now + LOST_RETRY_S
            except LibraryGoneError as error:
                self._gone(str(error), now)
                break
        return [found.get(uuid) or GpuSample(uuid, name, "lost") for uuid, name in self._names.items()]

    def _sample(self, gpu: Gpu, calls: Iterable[Call]) -> GpuSample:
        answers = {call: ask(self._library, gpu, call) for call in calls}
        reasons = answers.get(Call.CLOCKS)
        if reasons is not None:
            (self._degraded.add if reasons & DEGRADED_BITS else self._degraded.discard)(gpu.uuid)
        return GpuSample(
            uuid=gpu.uuid,
            name=gpu.name,
            state="degraded" if gpu.uuid in self._degraded else "ok",
            memory=answers.get(Call.MEMORY),
            utilization_ratio=answers.get(Call.UTILIZATION),
            power_w=answers.get(Call.POWER),
            temperature_c=answers.get(Call.TEMPERATURE),
            clock_reasons=reasons,
            unsupported=dict(gpu.unsupported),
        )


def _enumerate(library: Any) -> tuple[dict[str, Gpu], int]:
    """Every GPU that answers, and how many do not."""
    gpus: dict[str, Gpu] = {}
    silent = 0
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid = library.nvmlDeviceGetUUID(handle)
            gpus[uuid] = Gpu(uuid, _name(library, handle), handle)
        except library.NVMLError:
            silent += 1
    return gpus, silent


def _name(library: Any, handle: Any) -> str:
    try:
        return str(library.nvmlDeviceGetName(handle))
    except library.NVMLError:
        return ""


def _why_absent(error: Any) -> str:
    if getattr(error, "value", None) == 12:
        return "libnvidia-ml.so.1 is not on this machine: no NVIDIA driver here, or not visible in this container"
    return str(error)
