"""Spans as each emitter really sends them, encoded by the real opentelemetry-proto, and broken ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

START_NS = 1_796_022_000_000_000_000
INTERNAL, SERVER, CLIENT = 1, 2, 3

Value = str | bool | int | float | list[str]


@dataclass(frozen=True, kw_only=True)
class Told:
    """One span with its scope and resource, before it is encoded."""

    name: str
    kind: int
    scope: str
    attributes: Mapping[str, Value]
    lasted_s: float
    trace_id: str = "7c1d0e4b9a2f4c5d8e6f708192a3b4c5"
    span_id: str = "1f2e3d4c5b6a7980"
    parent_id: str = ""
    start_ns: int = START_NS
    resource: Mapping[str, Value] = field(default_factory=dict)
    status: int = 0

    @property
    def end_ns(self) -> int:
        """The end by the emitter's wall clock."""
        return self.start_ns + round(self.lasted_s * 1e9)

    def but(self, *, more: Mapping[str, Value] | None = None, **changes: object) -> Told:
        """A copy with other fields, and with `more` attributes."""
        changes.setdefault("attributes", {**self.attributes, **(more or {})})
        return replace(self, **changes)  # type: ignore[arg-type]

    def without(self, *keys: str) -> Told:
        """A copy without some attributes."""
        return replace(self, attributes={k: v for k, v in self.attributes.items() if k not in keys})


def encode(*told: Told) -> bytes:
    """One request, each span with its own resource and scope."""
    return ExportTraceServiceRequest(
        resource_spans=[_resource_spans(span) for span in told]
    ).SerializeToString()


def _resource_spans(told: Told) -> ResourceSpans:
    span = Span(
        trace_id=bytes.fromhex(told.trace_id),
        span_id=bytes.fromhex(told.span_id),
        parent_span_id=bytes.fromhex(told.parent_id),
        name=told.name,
        kind=told.kind,  # type: ignore[arg-type]
        start_time_unix_nano=told.start_ns,
        end_time_unix_nano=told.end_ns,
        attributes=_pairs(told.attributes),
        status=Status(code=told.status),  # type: ignore[arg-type]
    )
    scope_spans = ScopeSpans(scope=InstrumentationScope(name=told.scope), spans=[span])
    return ResourceSpans(resource=Resource(attributes=_pairs(told.resource)), scope_spans=[scope_spans])


def _pairs(attributes: Mapping[str, Value]) -> Sequence[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in attributes.items()]


def _any(value: Value) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[_any(item) for item in value]))


VLLM_V1 = Told(
    name="llm_request",
    kind=SERVER,
    scope="vllm.tracing.otel",
    lasted_s=3.461,
    parent_id="a0b1c2d3e4f50617",
    resource={
        "service.name": "vllm-llama8b-0",
        "vllm.instrumenting_module_name": "vllm.llm_engine",
        "vllm.process_id": "4711",
    },
    attributes={
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
    },
)
VLLM_V1_BEFORE_017 = VLLM_V1.but(
    scope="vllm.llm_engine", resource={"service.name": "vllm"}, more={"gen_ai.request.id": "cmpl-77-0"}
)
VLLM_V0 = VLLM_V1.but(
    scope="vllm.llm_engine",
    resource={"service.name": "vllm"},
    more={
        "gen_ai.response.model": "facebook/opt-125m",
        "gen_ai.usage.num_sequences": 1,
        "gen_ai.latency.time_in_scheduler": 0.017,
    },
).without("gen_ai.latency.time_in_model_prefill", "gen_ai.latency.time_in_model_decode")
SGLANG = Told(
    name=" Req 9f31c2ab",
    kind=INTERNAL,
    scope="sglang server",
    lasted_s=1.902,
    trace_id="0000000000000000d1b54a32c9e80f17",
    span_id="5e0c11aa90b7d3f2",
    resource={"service.name": "sglang"},
    attributes={
        "rid": "9f31c2ab7d5e4c01",
        "module": "sglang::request",
        "gen_ai.usage.completion_tokens": 96,
        "gen_ai.usage.prompt_tokens": 1204,
        "gen_ai.usage.cached_tokens": 1024,
        "gen_ai.request.id": "9f31c2ab7d5e4c01",
        "gen_ai.request.max_tokens": 128,
        "gen_ai.response.model": "qwen3-8b",
        "gen_ai.response.finish_reasons": '["stop"]',
        "gen_ai.latency.time_to_first_token": 0.118,
        "gen_ai.latency.e2e": 1.901,
        "gen_ai.latency.time_in_model_prefill": 0.109,
        "gen_ai.latency.time_in_model_decode": 1.783,
        "gen_ai.latency.time_in_model_inference": 1.892,
    },
)
SGLANG_WAITING = SGLANG.but(
    name="prefill_waiting", lasted_s=0.029, span_id="5e0c11aa90b7d3f3", parent_id=SGLANG.span_id
).without(*SGLANG.attributes)
SGLANG_FORWARD = SGLANG_WAITING.but(name="prefill_forward", lasted_s=0.111, span_id="5e0c11aa90b7d3f4")
SGLANG_ABORT = SGLANG.but(lasted_s=0.7).without(
    "gen_ai.usage.completion_tokens",
    "gen_ai.usage.prompt_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.response.finish_reasons",
)
SGLANG_056 = SGLANG.but(attributes={"rid": "9f31c2ab7d5e4c01", "module": "sglang::request"})
GENAI = Told(
    name="chat gpt-oss-20b",
    kind=CLIENT,
    scope="litellm",
    lasted_s=2.0,
    trace_id="aa0e1f2d3c4b5a69788796a5b4c3d2e1",
    span_id="1234567890abcdef",
    attributes={
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-oss-20b",
        "gen_ai.usage.input_tokens": 412,
        "gen_ai.usage.output_tokens": 120,
        "gen_ai.response.time_to_first_chunk": 0.31,
        "gen_ai.response.finish_reasons": ["stop"],
    },
)
OPENLLMETRY = GENAI.but(name="openai.chat", scope="opentelemetry.instrumentation.openai.v1").without(
    "gen_ai.response.time_to_first_chunk"
)
HTTP_OLD = Told(
    name="POST /v1/chat/completions",
    kind=SERVER,
    scope="opentelemetry.instrumentation.fastapi",
    lasted_s=3.5,
    trace_id="5b8efff798038103d269b633813fc60c",
    span_id="eee19b7ec3c1b174",
    attributes={"http.method": "POST", "http.route": "/v1/chat/completions", "http.status_code": 200},
)
HTTP_NEW = HTTP_OLD.but(
    scope="fastapi",
    attributes={
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    },
)
HTTP_SEND = HTTP_OLD.but(
    name="POST /v1/chat/completions http send",
    kind=INTERNAL,
    lasted_s=0.0001,
    attributes={"asgi.event.type": "http.response.body"},
)

REQUESTS = {
    "vllm v1": ("vllm", VLLM_V1),
    "vllm v1 before 0.17": ("vllm", VLLM_V1_BEFORE_017),
    "vllm v0": ("vllm", VLLM_V0),
    "sglang": ("sglang", SGLANG),
    "sglang 0.5.6": ("sglang", SGLANG_056),
    "litellm": ("genai", GENAI),
    "openllmetry": ("genai", OPENLLMETRY),
    "http, old names": ("http", HTTP_OLD),
    "http, new names": ("http", HTTP_NEW),
}
"""A request that went well, by emitter and version, with the emitter that must read it."""
