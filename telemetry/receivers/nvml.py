"""Samples the GPUs of this machine through NVML, in a thread of its own: an NVML call may block for long."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from admission.core.model import Reading
from admission.vocabulary import SignalKind, Source
from telemetry.config import TargetBinding
from telemetry.link import GpuReport, SignalReport
from telemetry.receivers import Emit
from telemetry.receivers.nvml_calls import clock_words
from telemetry.receivers.nvml_sampler import GpuSample, NvmlSampler, Observation, load_pynvml

_HUNG_S = 5.0


class GpuTeller:
    """Turns samples of GPUs into readings of the targets they are bound to, and into reports for people."""

    def __init__(self, targets: Sequence[TargetBinding], *, host: str) -> None:
        self._targets = targets
        self._host = host
        self._reports: dict[str, GpuReport] = {}
        self._good_at: dict[str, float] = {}
        self._told_problem: str | None = None

    def knows(self, uuid: str) -> bool:
        """Whether this GPU was ever seen on this machine."""
        return uuid in self._reports

    @property
    def unbound(self) -> list[str]:
        """GPUs that belong to no target, by name."""
        return [f"GPU {uuid} on {self._host}" for uuid, report in self._reports.items() if not report.target]

    def tell(self, observation: Observation, emit: Emit) -> None:
        """Emits what one step found. A lost GPU has a state and no other readings."""
        self._tell_problem(observation.problem, emit)
        for sample in observation.gpus:
            self._tell_readings(sample, observation, emit)
            emit.gpu(self._report(sample, observation.at))
        if observation.slow:
            lost = observation.nameless
            emit.warn("nvml:nameless", f"{lost} GPU(s) of this machine do not answer" if lost else "")

    def _tell_problem(self, problem: str, emit: Emit) -> None:
        if problem == self._told_problem:
            return
        self._told_problem = problem
        state = "missing" if problem else "fresh"
        warning = f"NVML is absent: {problem}" if problem else ""
        emit.signal(SignalReport(target="", name="nvml", source=Source.NVML, state=state, warning=warning))

    def _tell_readings(self, sample: GpuSample, observation: Observation, emit: Emit) -> None:
        values = readings_of(sample, slow=observation.slow)
        for target in bound_to(sample.uuid, self._targets):
            for kind, value in values.items():
                emit.reading(target, Reading(kind, value, observation.at, Source.NVML, sample.uuid))

    def _report(self, sample: GpuSample, now: float) -> GpuReport:
        """What was not asked this time stays as it was; a lost GPU shows no values at all."""
        report = self._reports.get(sample.uuid)
        if report is None or sample.state == "lost":
            targets = bound_to(sample.uuid, self._targets)
            report = GpuReport(sample.uuid, sample.name, self._host, targets[0] if targets else "")
            self._reports[sample.uuid] = report
        report.state = sample.state
        if sample.state != "lost":
            self._good_at[sample.uuid] = now
            _fill(report, sample)
        report.age_s = now - self._good_at.get(sample.uuid, now)
        return replace(report)


def bound_to(uuid: str, targets: Sequence[TargetBinding]) -> list[str]:
    """The targets that this GPU of this machine works for."""
    return [target.name for target in targets if uuid in target.gpus or "all-local" in target.gpus]


def readings_of(sample: GpuSample, *, slow: bool) -> dict[SignalKind, float]:
    """The values that a sample has; the state comes with every loss and with every slow step."""
    if sample.state == "lost":
        return {SignalKind.GPU_STATE: 0.0}
    values: dict[SignalKind, float | None] = {
        SignalKind.GPU_UTILIZATION_RATIO: sample.utilization_ratio,
        SignalKind.GPU_POWER_W: sample.power_w,
        SignalKind.GPU_TEMPERATURE_C: sample.temperature_c,
        SignalKind.GPU_CLOCK_REASONS: sample.clock_reasons,
    }
    if sample.memory is not None:
        values[SignalKind.VRAM_USED_BYTES] = sample.memory.used
        values[SignalKind.VRAM_FREE_BYTES] = sample.memory.free
        values[SignalKind.VRAM_TOTAL_BYTES] = sample.memory.total
    if slow:
        values[SignalKind.GPU_STATE] = 1.0
    return {kind: float(value) for kind, value in values.items() if value is not None}


def _fill(report: GpuReport, sample: GpuSample) -> None:
    report.unsupported = sorted(str(call) for call in sample.unsupported)
    if sample.memory is not None:
        report.memory_used_bytes, report.memory_free_bytes, report.memory_total_bytes = sample.memory
    if sample.utilization_ratio is not None:
        report.utilization_ratio = sample.utilization_ratio
    if sample.power_w is not None:
        report.power_w = sample.power_w
    if sample.temperature_c is not None:
        report.temperature_c = sample.temperature_c
    if sample.clock_reasons is not None:
        report.clock_reasons = clock_words(sample.clock_reasons)


class NvmlReceiver:
    """Memory and utilization each `interval_s`, the rest once a second; works without NVML by saying so."""

    name = "nvml"

    def __init__(
        self,
        targets: Sequence[TargetBinding],
        *,
        interval_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[], Any] = load_pynvml,
        host: str = "",
    ) -> None:
        self._teller = GpuTeller(targets, host=host or socket.gethostname())
        self._load = load
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: Observation | None = None
        self._stepped_at = 0.0

    def knows(self, uuid: str) -> bool:
        """Whether this GPU is one of this machine."""
        return self._teller.knows(uuid)

    @property
    def unbound(self) -> list[str]:
        """GPUs of this machine that belong to no target, by name."""
        return self._teller.unbound

    async def run(self, emit: Emit) -> None:
        """Samples until cancelled; a call that hangs is reported and its thread left behind."""
        stop = threading.Event()
        self._stepped_at = self._clock()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._sample, args=(stop, loop, emit), name="nvml", daemon=True)
        thread.start()
        try:
            await self._watch(emit)
        finally:
            stop.set()

    async def _watch(self, emit: Emit) -> None:
        while True:
            await asyncio.sleep(1.0)
            silent_s = self._clock() - self._stepped_at
            hung = silent_s > _HUNG_S + self._interval_s
            emit.warn("nvml:hung", f"an NVML call has not returned for {silent_s:.0f} s" if hung else "")

    def _sample(self, stop: threading.Event, loop: asyncio.AbstractEventLoop, emit: Emit) -> None:
        """The thread. One observation at most waits for the loop: when the loop is late, the newest values count."""
        sampler = NvmlSampler(load=self._load)
        while not stop.is_set():
            observation = sampler.step(self._clock())
            self._stepped_at = self._clock()
            with self._lock:
                idle, self._waiting = self._waiting is None, observation.after(self._waiting)
            if idle:
                try:
                    loop.call_soon_threadsafe(self._deliver, emit)
                except RuntimeError:
                    break  # the loop is closed
            stop.wait(self._interval_s)
        sampler.close()

    def _deliver(self, emit: Emit) -> None:
        with self._lock:
            observation, self._waiting = self._waiting, None
        if observation is not None:
            emit.count("nvml_samples", len(observation.gpus))
            self._teller.tell(observation, emit)
