"""What a span costs in processor time: from the bytes of an OTLP request to a record on the link, beside opentelemetry-proto alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from admission.core.model import Sample
from admission.wire.otlp_pb2 import TraceRequest
from benchmarks.result import Result
from telemetry.config import TargetBinding
from telemetry.frames import Decoder, Encoder
from telemetry.receivers.otlp_spans import Batch, SpanReader
from telemetry.receivers.recorder import Recorder

SPANS = 512
ROUNDS = 31
NUMBERS: dict[str, float | int | str] = {
    "gen_ai.latency.time_to_first_token": 0.2143,
    "gen_ai.latency.e2e": 3.4597,
    "gen_ai.latency.time_in_queue": 0.0312,
    "gen_ai.latency.time_in_model_prefill": 0.1688,
    "gen_ai.latency.time_in_model_decode": 3.2401,
    "gen_ai.latency.time_in_model_inference": 3.4089,
    "gen_ai.usage.prompt_tokens": 812,
    "gen_ai.usage.completion_tokens": 190,
    "gen_ai.request.id": "chatcmpl-3d0f6a",
    "gen_ai.request.top_p": 0.95,
    "gen_ai.request.max_tokens": 512,
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.n": 1,
}


def run() -> Iterator[Result]:
    """Medians of alternating rounds over batches of 512 vLLM spans."""
    figures = {name: statistics.median(times) for name, times in _measure().items()}
    for name, seconds in figures.items():
        yield Result(f"otlp: {name}", SPANS / seconds, "spans/s")
    walked = figures["records"] / figures["opentelemetry-proto, attributes walked"]
    yield Result("otlp: records over opentelemetry-proto walked", 1 / walked, "x as fast")
    yield Result(
        "otlp: records over opentelemetry-proto parsed only",
        figures["records"] / figures["opentelemetry-proto, parsed only"],
        "x the time",
    )


def _measure() -> dict[str, list[float]]:
    ours, others = _Ours(), _request(ids=False)
    chunks = _request(ids=False, name="POST /v1/chat/completions http send", kind=1)
    steps: dict[str, Callable[[int], object]] = {
        "opentelemetry-proto, parsed only": lambda _: ExportTraceServiceRequest.FromString(others),
        "opentelemetry-proto, attributes walked": lambda _: _walk(others),
        "records": ours.records,
        "records, spans of other things": lambda _: ours.records_of(chunks),
        "records, read on the admission side": ours.read_records,
    }
    figures: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS):
        ours.prepare(number)
        for name, step in steps.items():
            started = time.process_time()
            step(number)
            figures[name].append(time.process_time() - started)
    return figures


class _Ours:
    """Bytes to samples to frames, and frames to samples."""

    def __init__(self) -> None:
        self._reader = SpanReader((TargetBinding(),))
        self._emit = _Encoding()
        self._body = b""
        self._decoder = Decoder(_Sink())

    def prepare(self, number: int) -> None:
        """A batch of spans that were not seen before."""
        self._body = _request(ids=True, number=number)
        self._emit.frames.clear()

    def records(self, _: int) -> None:
        """From the batch to frames."""
        self.records_of(self._body)

    def records_of(self, body: bytes) -> None:
        """From any batch to frames."""
        batch = Batch(self._emit, time.monotonic(), time.time_ns())
        for _ in self._reader.read(TraceRequest.FromString(body), batch):
            pass

    def read_records(self, _: int) -> None:
        """What the admission loop does with the frames of a batch."""
        if self._decoder.feed(b"".join(self._emit.frames)) != SPANS:
            raise SystemExit("not every span became a record")


class _Encoding(Recorder):
    """Encodes samples as the telemetry process does."""

    def __init__(self) -> None:
        super().__init__()
        self._encoder = Encoder()
        self.frames: list[bytes] = []

    def sample(self, target: str, sample: Sample) -> None:
        """One record."""
        self.frames.append(self._encoder.sample(target, sample))


class _Sink:
    """Takes and forgets."""

    def reading(self, target: str, reading: object) -> None:
        """Nothing."""

    def sample(self, target: str, sample: object) -> None:
        """Nothing."""

    def view(self, view: object) -> None:
        """Nothing."""


def _request(*, ids: bool, number: int = 0, name: str = "llm_request", kind: int = 2) -> bytes:
    end_ns = time.time_ns()
    attributes = [KeyValue(key=key, value=_any(value)) for key, value in NUMBERS.items()]
    spans = [
        Span(
            trace_id=(number << 32 | n + 1).to_bytes(16, "big") if ids else bytes(15) + b"1",
            span_id=(n + 1).to_bytes(8, "big"),
            name=name,
            kind=kind,  # type: ignore[arg-type]
            start_time_unix_nano=end_ns - 3_461_000_000,
            end_time_unix_nano=end_ns,
            attributes=attributes,
        )
        for n in range(SPANS)
    ]
    scope_spans = ScopeSpans(scope=InstrumentationScope(name="vllm.tracing.otel"), spans=spans)
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="vllm"))])
    resource_spans = ResourceSpans(resource=resource, scope_spans=[scope_spans])
    return ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString()


def _any(value: float | str) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)


def _walk(body: bytes) -> None:
    """What a receiver must do with the real messages to find attributes by key."""
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                {
                    pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "")
                    for pair in span.attributes
                }
