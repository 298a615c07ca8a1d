"""GPUs whose state changes: a lost one is a change of its target, to be found beside the limit's."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from admission.core.model import GateChanged, Why
from admission.vocabulary import Source
from telemetry.link import GpuReport

_MAX_GPUS = 1024


class GpuStates:
    """Remembers how each GPU was last seen."""

    def __init__(self, targets: Collection[str]) -> None:
        self._targets = targets
        self._states: dict[str, str] = {}

    def changes(self, gpus: Collection[GpuReport]) -> Iterator[tuple[str, GateChanged]]:
        """What became of GPUs that belong to a target, since the last call."""
        for gpu in gpus:
            before = self._states.get(gpu.uuid)
            if before is None and len(self._states) >= _MAX_GPUS:
                continue
            self._states[gpu.uuid] = gpu.state
            # One that is lost before it was ever seen is news as well.
            before = before or "ok"
            if gpu.state != before and gpu.target in self._targets:
                yield gpu.target, GateChanged(f"gpu {gpu.uuid[:12]}", before, gpu.state, _why(gpu))


def _why(gpu: GpuReport) -> Why:
    name = f"{gpu.name or 'GPU'} {gpu.uuid}" + (f" on {gpu.host}" if gpu.host else "")
    said = {"lost": f"{name} does not answer", "ok": f"{name} answers again"}
    return Why(said.get(gpu.state, f"{name} is {gpu.state}"), source=Source.NVML)
