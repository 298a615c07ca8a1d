"""Frames: what goes in comes out, however the stream is cut; what no encoder writes is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.model import Reading, Sample
from admission.vocabulary import Outcome, SignalKind, Source
from telemetry.frames import KEY_BYTES, MAX_NAMES, NAME, READING, Decoder, Encoder, FrameError
from telemetry.link import GpuReport, SignalReport, TelemetryView

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SECONDS = st.none() | st.floats(0, 1e6)
TOKENS = st.none() | st.integers(0, 2**31 - 1)
READINGS = st.builds(
    Reading,
    st.sampled_from(SignalKind),
    st.floats(allow_nan=False),
    st.floats(0, 1e9),
    st.sampled_from(Source),
    NAMES,
)
SAMPLES = st.builds(
    Sample,
    at=st.floats(0, 1e9),
    outcome=st.sampled_from(Outcome),
    source=st.sampled_from(Source),
    emitter=NAMES,
    request_key=NAMES.filter(lambda key: len(key.encode()) <= KEY_BYTES),
    model=NAMES,
    e2e_s=SECONDS,
    ttft_s=SECONDS,
    queue_s=SECONDS,
    prefill_s=SECONDS,
    decode_s=SECONDS,
    prompt_tokens=TOKENS,
    output_tokens=TOKENS,
    cached_tokens=TOKENS,
)
VIEW = TelemetryView(
    gpus=[GpuReport("GPU-1", unsupported=["power"], memory_free_bytes=1 << 36)],
    signals=[SignalReport("t", "kv", "scrape", "stale", age_s=9.0)],
    unbound=["svc"],
    emitters={"t": "vllm"},
    counters={"samples": 3},
    ports={"otlp_grpc": 4317},
    warnings=["it is late"],
)


class Heard:
    """A sink that keeps everything in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def reading(self, target: str, reading: Reading) -> None:
        """Keeps it."""
        self.all.append((target, reading))

    def sample(self, target: str, sample: Sample) -> None:
        """Keeps it."""
        self.all.append((target, sample))

    def view(self, view: TelemetryView) -> None:
        """Keeps it."""
        self.all.append(view)


Record = TelemetryView | tuple[str, Reading | Sample]


def encode(encoder: Encoder, record: Record) -> bytes:
    """Any record's frames."""
    if isinstance(record, TelemetryView):
        return encoder.view(record)
    target, value = record
    return encoder.reading(target, value) if isinstance(value, Reading) else encoder.sample(target, value)


@given(
    st.lists(st.tuples(NAMES, READINGS | SAMPLES) | st.just(VIEW), max_size=20),
    st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
def test_records_cross_unchanged_however_the_stream_is_cut(records: list[Record], cuts: list[int]) -> None:
    """A socket gives any number of bytes: no cut may lose, change or reorder a record."""
    encoder, heard = Encoder(), Heard()
    stream = b"".join(encode(encoder, record) for record in records)
    decoder, turn = Decoder(heard), 0
    while stream:
        size = cuts[turn % len(cuts)]
        decoder.feed(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert heard.all == records


def test_a_name_is_sent_once() -> None:
    """The second record of the same names is of fixed size."""
    encoder = Encoder()
    reading = Reading(SignalKind.RUNNING, 1.0, 2.0, Source.SCRAPE, "127.0.0.1:8000")
    first, second = encoder.reading("default", reading), encoder.reading("default", reading)
    assert len(second) == 24
    assert len(first) > len(second)
    assert encoder.reading("default", reading) == second


def test_more_names_than_numbers_still_cross() -> None:
    """Models come from spans and may be any number; the table of names stays bounded on both sides."""
    encoder, heard = Encoder(), Heard()
    decoder = Decoder(heard)
    for number in range(MAX_NAMES + 500):
        sample = Sample(0.0, Outcome.OK, model=f"m{number}", emitter="vllm")
        decoder.feed(encoder.sample("default", sample))
        assert heard.all.pop() == ("default", sample)
    assert len(encoder._names) <= MAX_NAMES
    assert len(decoder._names) <= MAX_NAMES


def test_a_long_key_is_cut_and_the_record_keeps_its_size() -> None:
    """Cut inside a character, what is left is still text."""
    heard = Heard()
    Decoder(heard).feed(Encoder().sample("t", Sample(0.0, Outcome.OK, request_key="x" + "ä" * 200)))
    ((_, sample),) = heard.all
    assert sample.request_key == "x" + "ä" * 31


def test_a_view_too_large_says_so() -> None:
    """A view that cannot be sent must not break the link."""
    heard = Heard()
    Decoder(heard).feed(Encoder().view(TelemetryView(warnings=["x" * (9 << 20)], ports={"otlp_http": 1})))
    (view,) = heard.all
    assert isinstance(view, TelemetryView)
    assert view.ports == {"otlp_http": 1}
    assert "too large" in view.warnings[0]


@pytest.mark.parametrize(
    "junk",
    [
        b"\x09\0\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes([READING, 99]) + bytes(30),
        bytes([READING, SignalKind.RUNNING, 0, 0, 7, 0, 7, 0]) + bytes(16),
        bytes([4, 0, 0, 0]) + (2**31).to_bytes(4, "little"),
        bytes([4, 0, 0, 0]) + (3).to_bytes(4, "little") + b"[1]",
        bytes([4, 0, 0, 0]) + (3).to_bytes(4, "little") + b"{x}",
    ],
    ids=[
        "unknown type",
        "http",
        "unknown kind",
        "unknown name",
        "huge view",
        "view of a list",
        "view of junk",
    ],
)
def test_what_no_encoder_writes_is_refused(junk: bytes) -> None:
    """A damaged stream ends the link; it never becomes a reading."""
    heard = Heard()
    with pytest.raises(FrameError):
        Decoder(heard).feed(junk)
    assert heard.all == []


def test_a_missing_number_is_none_and_never_zero() -> None:
    """The records have no room for None but NaN and -1."""
    heard = Heard()
    Decoder(heard).feed(Encoder().sample("t", Sample(0.0, Outcome.OK, e2e_s=0.0, prompt_tokens=0)))
    ((_, sample),) = heard.all
    assert (sample.e2e_s, sample.ttft_s) == (0.0, None)
    assert (sample.prompt_tokens, sample.output_tokens) == (0, None)
    assert not math.isnan(sample.e2e_s)


def test_name_frames_are_no_records() -> None:
    """Only records count against a slice of the loop."""
    assert Decoder(Heard()).feed(bytes([NAME, 0, 0, 0, 1, 0]) + b"x") == 0
