"""What a page draws: a snapshot with its age, the last ten minutes, and the latest refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from admission.v1 import monitor_service_pb2 as monitor


@dataclass(frozen=True, slots=True)
class Line:
    """One series of the past: times in unix seconds, ascending, and values. A gap is an absent point."""

    unix_s: Sequence[float] = ()
    value: Sequence[float] = ()
    unit: str = ""

    def last(self, since: float) -> float | None:
        """The newest value, None when it is from before `since`."""
        return self.value[-1] if self.unix_s and self.unix_s[-1] >= since else None


@dataclass(frozen=True, slots=True)
class History:
    """The last ten minutes of a target by series name. `error` says why there is nothing newer than `at`, in unix seconds."""

    lines: Mapping[str, Line] = field(default_factory=dict)
    error: str = ""
    at: float = 0.0

    def line(self, name: str) -> Line:
        """The series of that name; an empty one when the sidecar has none."""
        return self.lines.get(name, Line())

    def starting(self, prefix: str) -> dict[str, Line]:
        """The series whose name starts so, by the rest of the name."""
        return {
            name.removeprefix(prefix): line for name, line in self.lines.items() if name.startswith(prefix)
        }


@dataclass(frozen=True, slots=True)
class Decisions:
    """Recent decisions of a target, newest first. `error` says why there are none."""

    recent: Sequence[monitor.RecordedDecision] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """The last snapshot, its age, and why there is no newer one (`away`; empty: it is current)."""

    snapshot: monitor.Snapshot | None
    age_s: float
    away: str
    address: str

    @property
    def unix_now(self) -> float:
        """The sidecar's clock now, in unix seconds: its last reading plus what passed since."""
        if self.snapshot is None:
            return 0.0
        return self.snapshot.at.seconds + self.snapshot.at.nanos / 1e9 + self.age_s

    def target(self, name: str | None) -> monitor.TargetSnapshot | None:
        """The target of that name, else the first one."""
        targets = self.snapshot.targets if self.snapshot is not None else ()
        return next((target for target in targets if target.name == name), next(iter(targets), None))

    def gpus(self, target: str) -> list[monitor.GpuSnapshot]:
        """The GPUs of a target."""
        gpus = self.snapshot.gpus if self.snapshot is not None else ()
        return [gpu for gpu in gpus if gpu.target in {target, ""}]

    def signals(self, target: str) -> list[monitor.SignalSnapshot]:
        """The inputs of a target's law."""
        signals = self.snapshot.signals if self.snapshot is not None else ()
        return [signal for signal in signals if signal.target in {target, ""}]
