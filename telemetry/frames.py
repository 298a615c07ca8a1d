"""How readings, samples and views cross from the telemetry process: fixed-size records, names sent once."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from admission.core.model import Reading, Sample
from admission.vocabulary import Outcome, SignalKind, Source
from telemetry.link import GpuReport, SignalReport, TelemetrySink, TelemetryView

NAME, READING, SAMPLE, VIEW = 1, 2, 3, 4

_NAME = struct.Struct("<BxHH")
_READING = struct.Struct("<BBBxHHdd")
_SAMPLE = struct.Struct("<BBBxHHHdddddd3i64s")
_VIEW = struct.Struct("<BxxxI")

MAX_NAMES = 4096
MAX_NAME_BYTES = 512
MAX_VIEW_BYTES = 8 << 20
KEY_BYTES = 64
_SOURCES = tuple(Source)
_SOURCE_NUMBERS = {source: number for number, source in enumerate(_SOURCES)}


class FrameError(ValueError):
    """The other side sent what no encoder of ours writes."""


class Encoder:
    """Records to bytes. A name's frame precedes its first use; beyond 4,096 names numbers are given anew."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def reading(self, target: str, reading: Reading) -> bytes:
        """One reading, with the frames of names not sent before."""
        names, (target_id, member_id) = self._number(target, reading.member)
        source = _SOURCE_NUMBERS[reading.source]
        return names + _READING.pack(
            READING, reading.kind, source, target_id, member_id, reading.value, reading.at
        )

    def sample(self, target: str, sample: Sample) -> bytes:
        """One sample, with the frames of names not sent before. A key is cut to 64 bytes."""
        names, ids = self._number(target, sample.emitter, sample.model)
        seconds = (sample.e2e_s, sample.ttft_s, sample.queue_s, sample.prefill_s, sample.decode_s)
        counts = (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens)
        return names + _SAMPLE.pack(
            SAMPLE,
            sample.outcome,
            _SOURCE_NUMBERS[sample.source],
            *ids,
            sample.at,
            *[math.nan if value is None else value for value in seconds],
            *[-1 if value is None else value for value in counts],
            sample.request_key.encode(errors="replace")[:KEY_BYTES],
        )

    def view(self, view: TelemetryView) -> bytes:
        """One view as JSON; one too large is cut to its warnings and ports."""
        body = json.dumps(asdict(view), separators=(",", ":")).encode()
        if len(body) > MAX_VIEW_BYTES:
            short = TelemetryView(ports=view.ports, warnings=["the view is too large to be shown"])
            body = json.dumps(asdict(short)).encode()
        return _VIEW.pack(VIEW, len(body)) + body

    def _number(self, *names: str) -> tuple[bytes, list[int]]:
        if len(self._names) + len(names) > MAX_NAMES:
            self._names.clear()
        frames = b""
        for name in names:
            if name not in self._names:
                number = self._names[name] = len(self._names)
                text = name.encode(errors="replace")[:MAX_NAME_BYTES]
                frames += _NAME.pack(NAME, number, len(text)) + text
        return frames, [self._names[name] for name in names]


class Decoder:
    """Bytes, cut anywhere, to calls of a sink. Raises FrameError for what no encoder writes."""

    def __init__(self, sink: TelemetrySink) -> None:
        self._sink = sink
        self._names: dict[int, str] = {}
        self._rest = b""

    def feed(self, data: bytes) -> int:
        """Delivers every record that is whole now; returns how many."""
        buffer = self._rest + data
        at = delivered = 0
        try:
            for start, end in _whole_frames(buffer):
                delivered += self._deliver(buffer, start)
                at = end
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise FrameError(f"not a frame of ours: {error!r}") from error
        self._rest = buffer[at:]
        return delivered

    def _deliver(self, buffer: bytes, at: int) -> int:
        kind = buffer[at]
        if kind == NAME:
            _, number, length = _NAME.unpack_from(buffer, at)
            start = at + _NAME.size
            self._names[number] = buffer[start : start + length].decode(errors="replace")
            return 0
        if kind == READING:
            self._sink.reading(*self._reading(buffer, at))
        elif kind == SAMPLE:
            self._sink.sample(*self._sample(buffer, at))
        else:
            _, length = _VIEW.unpack_from(buffer, at)
            start = at + _VIEW.size
            self._sink.view(_view(json.loads(buffer[start : start + length])))
        return 1

    def _reading(self, buffer: bytes, at: int) -> tuple[str, Reading]:
        _, kind, source, target, member, value, when = _READING.unpack_from(buffer, at)
        names = self._names
        return names[target], Reading(SignalKind(kind), value, when, _SOURCES[source], names[member])

    def _sample(self, buffer: bytes, at: int) -> tuple[str, Sample]:
        _, outcome, source, target, emitter, model, when, *rest = _SAMPLE.unpack_from(buffer, at)
        seconds = [None if math.isnan(value) else value for value in rest[:5]]
        counts = [None if value < 0 else value for value in rest[5:8]]
        key = rest[8].rstrip(b"\0").decode(errors="ignore")
        names = self._names
        return names[target], Sample(
            when, Outcome(outcome), _SOURCES[source], names[emitter], key, names[model], *seconds, *counts
        )


def _whole_frames(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each complete frame."""
    start = 0
    while start < len(buffer):
        end = start + _size(buffer, start)
        if end > len(buffer):
            return
        yield start, end
        start = end


def _size(buffer: bytes, at: int) -> int:
    """The size of the frame there; as much as its head while that is not whole."""
    kind, have = buffer[at], len(buffer) - at
    if kind == READING:
        return _READING.size
    if kind == SAMPLE:
        return _SAMPLE.size
    head = {NAME: _NAME, VIEW: _VIEW}[kind]
    if have < head.size:
        return head.size
    length = int(head.unpack_from(buffer, at)[-1])
    if length > MAX_VIEW_BYTES:
        raise FrameError(f"a frame of {length} bytes")
    return head.size + length


def _view(told: dict[str, Any]) -> TelemetryView:
    gpus = [GpuReport(**report) for report in told.pop("gpus")]
    signals = [SignalReport(**report) for report in told.pop("signals")]
    return TelemetryView(gpus=gpus, signals=signals, **told)
