"""Reads golden spans the way the pipeline does, without sockets or clocks."""

from __future__ import annotations

from collections.abc import Sequence

from admission.core.model import Sample
from admission.wire.otlp_pb2 import TraceRequest
from telemetry.config import TargetBinding
from telemetry.receivers.otlp_spans import Batch, SpanReader
from telemetry.receivers.recorder import Recorder
from tests.telemetry.golden import Told, encode


class Reader:
    """A SpanReader with its recorder; spans arrive `late_s` after the end of the first."""

    def __init__(self, targets: Sequence[TargetBinding] = (TargetBinding(),)) -> None:
        self.spans = SpanReader(targets)
        self.heard = Recorder()

    def read(self, *told: Told, at: float = 100.0, late_s: float = 1.0, steers: bool = True) -> Batch:
        """One payload through the reader."""
        wall_ns = (told[0].end_ns if told else 0) + round(late_s * 1e9)
        batch = Batch(self.heard, at, wall_ns, steers)
        for _ in self.spans.read(TraceRequest.FromString(encode(*told)), batch):
            pass
        return batch

    @property
    def samples(self) -> list[Sample]:
        """Every sample so far."""
        return [sample for _, sample in self.heard.samples]

    def results(self) -> dict[str, int]:
        """How many requests' spans had which fate."""
        found: dict[str, int] = {}
        for name, count in self.heard.counters.items():
            if name.startswith("spans:"):
                result = name.rpartition(":")[2]
                found[result] = found.get(result, 0) + count
        return found


def sample_of(*told: Told) -> Sample:
    """The only sample of a payload."""
    reader = Reader()
    reader.read(*told)
    (sample,) = reader.samples
    return sample
