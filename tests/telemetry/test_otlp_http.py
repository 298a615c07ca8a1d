"""OTLP over HTTP, at the ASGI interface: encodings, sizes, and errors a sender can act on."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.config import TargetBinding, TelemetryConfig
from telemetry.receivers.otlp import Role
from telemetry.receivers.otlp_body import Inflate, Refused
from telemetry.receivers.otlp_http import OtlpApp
from telemetry.receivers.otlp_intake import ACCEPTED, Intake
from telemetry.receivers.otlp_spans import SpanReader
from telemetry.receivers.recorder import Recorder
from tests.telemetry.golden import VLLM_V1, encode

MAX_BYTES = 100_000
BODY = encode(VLLM_V1)


@dataclass
class Reply:
    """What came back."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> Status:
        """The body of an error."""
        return Status.FromString(self.body)


class Server:
    """The application with an intake that runs, or does not."""

    def __init__(self, *, runs: bool = True, config: TelemetryConfig | None = None) -> None:
        self.heard = Recorder()
        wall_ns = VLLM_V1.end_ns + 1_000_000_000
        self.intake = Intake(
            SpanReader((TargetBinding(),)), lambda *_: ACCEPTED, clock=lambda: 5.0, wall_ns=lambda: wall_ns
        )
        self.app = OtlpApp(self.intake, Role(config or TelemetryConfig()), MAX_BYTES)
        self.runs = runs

    async def post(
        self,
        *chunks: bytes,
        path: str = "/v1/traces",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request whose body comes in `chunks`."""
        task = asyncio.create_task(self.intake.run(self.heard)) if self.runs else None
        await asyncio.sleep(0)
        try:
            return await call(self.app, chunks, path, method, headers or {})
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))


async def call(
    app: OtlpApp, chunks: Sequence[bytes | None], path: str, method: str, headers: Mapping[str, str]
) -> Reply:
    """Through the ASGI interface; a chunk of None is a sender that leaves."""
    told = {"content-type": "application/x-protobuf", **headers}
    scope = {
        "type": "http",
        "path": path,
        "method": method,
        "headers": [(key.encode(), value.encode()) for key, value in told.items()],
    }
    left, sent = list(chunks), []

    async def receive() -> dict[str, Any]:
        chunk = left.pop(0) if left else None
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, body = sent
    found = {key.decode(): value.decode() for key, value in start["headers"]}
    return Reply(start["status"], found, body["body"])


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("", bytes), ("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)],
)
async def test_every_encoding_that_senders_use_is_read(encoding: str, pack: Any) -> None:
    """The Collector sends gzip by default, SDKs nothing."""
    server = Server()
    packed = pack(BODY)
    reply = await server.post(packed[:100], packed[100:], headers={"content-encoding": encoding})
    assert (reply.code, reply.body) == (200, b"")
    assert reply.headers["content-type"] == "application/x-protobuf"
    assert len(server.heard.samples) == 1


async def test_json_is_read_and_answered_in_json() -> None:
    """Ids are hexadecimal there, and 64-bit numbers may be text."""
    server = Server()
    reply = await server.post(JSON.encode(), headers={"content-type": "application/json; charset=utf-8"})
    assert (reply.code, reply.body, reply.headers["content-type"]) == (200, b"{}", "application/json")
    ((_, sample),) = server.heard.samples
    assert (sample.emitter, sample.prompt_tokens, sample.ttft_s) == ("vllm", 812, 0.2143)


async def test_a_partial_success_is_told_in_both_encodings() -> None:
    """A sender understands only its own."""
    reply = await Server().post(encode(VLLM_V1.but(span_id="12")))
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert (partial.rejected_spans, "16 bytes" in partial.error_message) == (1, True)
    broken = JSON.replace("1f2e3d4c5b6a7980", "zz")
    reply = await Server().post(broken.encode(), headers={"content-type": "application/json"})
    assert json.loads(reply.body)["partialSuccess"]["rejectedSpans"] == "1"


@pytest.mark.parametrize(
    ("chunks", "headers", "code"),
    [
        ((b"\xff\xff\xff",), {}, 400),
        ((b"{", b"}}"), {"content-type": "application/json"}, 400),
        ((b"[]",), {"content-type": "application/json"}, 400),
        ((b"[" * 60_000,), {"content-type": "application/json"}, 400),
        ((b'{"resourceSpans": 5}',), {"content-type": "application/json"}, 400),
        ((b"not gzip",), {"content-encoding": "gzip"}, 400),
        ((gzip.compress(BODY)[:60],), {"content-encoding": "gzip"}, 400),
        ((BODY,), {"content-encoding": "zstd"}, 415),
        ((BODY,), {"content-type": "text/plain"}, 415),
        ((BODY,), {"content-length": str(MAX_BYTES + 1)}, 413),
        ((bytes(MAX_BYTES), b"1"), {}, 413),
        ((gzip.compress(bytes(50 * MAX_BYTES)),), {"content-encoding": "gzip"}, 413),
        ((BODY, gzip.compress(b"")), {"content-encoding": "gzip"}, 400),
    ],
    ids=[
        "corrupt protobuf",
        "corrupt json",
        "json list",
        "deep json",
        "json of another shape",
        "not gzip",
        "cut gzip",
        "zstd",
        "text",
        "announced too large",
        "too large",
        "gzip bomb",
        "half gzip",
    ],
)
async def test_bad_input_gets_a_typed_answer(
    chunks: Sequence[bytes], headers: dict[str, str], code: int
) -> None:
    """An error that is not to be retried, with a google.rpc.Status; and the next request is served."""
    server = Server()
    reply = await server.post(*chunks, headers=headers)
    assert reply.code == code
    told = json.loads(reply.body) if "json" in reply.headers["content-type"] else None
    assert told["message"] if told is not None else reply.status.message
    assert "retry-after" not in reply.headers
    assert (await server.post(BODY)).code == 200


def test_a_bomb_is_unpacked_no_further_than_the_bound() -> None:
    """Refusing it after a gigabyte was unpacked would be too late."""
    inflate = Inflate("gzip", 1000)
    with pytest.raises(Refused):
        inflate.feed(gzip.compress(bytes(1_000_000)))
    assert inflate.size <= 1001


async def test_a_sender_that_leaves_midway_frees_its_bytes() -> None:
    """What is held of the budget goes back, or a day of broken senders would shut the door."""
    server = Server()
    for _ in range(5):
        reply = await call(server.app, (BODY, None), "/v1/traces", "POST", {})
        assert (reply.code, reply.status.message) == (400, "the sender left")
    assert server.app._budget.used == 0


async def test_too_much_at_once_is_429_with_retry_after() -> None:
    """The one case of push-back: bodies being received fill their budget."""
    server = Server()
    server.app._budget.used = 2 * MAX_BYTES
    reply = await server.post(BODY)
    assert (reply.code, reply.headers["retry-after"]) == (429, "1")
    assert _retry_s(reply) == 1.0


async def test_while_stopping_senders_are_told_when_to_come_back() -> None:
    """503 with Retry-After and RetryInfo: both kinds of senders understand one."""
    reply = await Server(runs=False).post(BODY)
    assert (reply.code, reply.headers["retry-after"], reply.status.code) == (503, "1", 14)
    assert _retry_s(reply) == 1.0


def _retry_s(reply: Reply) -> float:
    detail: AnyMessage = reply.status.details[0]
    info = RetryInfo()
    assert detail.Unpack(info)
    return float(info.retry_delay.ToTimedelta().total_seconds())


@pytest.mark.parametrize(
    ("path", "method", "code"), [("/v1/logs", "POST", 404), ("/", "GET", 404), ("/v1/traces", "GET", 405)]
)
async def test_other_signals_and_methods_are_refused(path: str, method: str, code: int) -> None:
    """Logs and profiles have no reader here."""
    assert (await Server().post(BODY, path=path, method=method)).code == code


async def test_metrics_have_their_own_path() -> None:
    """To the same intake."""
    server = Server()
    assert (await server.post(b"", path="/v1/metrics")).code == 200
    assert server.heard.counters["otlp_metrics_payloads"] == 1


@pytest.mark.parametrize(
    ("authorization", "samples"),
    [("Bearer s3cret", 1), ("bearer s3cret", 1), ("Bearer wrong", 0), ("s3cret", 0), ("", 0)],
)
async def test_only_a_token_of_the_role_steers(authorization: str, samples: int) -> None:
    """With tokens configured, what comes without one is taken and shown."""
    server = Server(config=TelemetryConfig(tokens=("other", "s3cret")))
    reply = await server.post(BODY, headers={"authorization": authorization})
    assert reply.code == 200
    assert len(server.heard.samples) == samples


def test_a_certificate_of_the_role_steers() -> None:
    """By any of its names."""
    role = Role(TelemetryConfig(tokens=("t",)))
    role._names = frozenset({"collector.example"})
    assert role.of("", ["other", "collector.example"])
    assert not role.of("", ["other"])


JSON = """
{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]},
  "unknownField": {"a": 1},
  "scopeSpans": [{"scope": {"name": "vllm.tracing.otel"}, "spans": [{
   "traceId": "7c1d0e4b9a2f4c5d8e6f708192a3b4c5", "spanId": "1f2e3d4c5b6a7980", "parentSpanId": "a0b1c2d3e4f50617",
   "name": "llm_request", "kind": 2,
   "startTimeUnixNano": "1796022000000000000", "endTimeUnixNano": 1796022003461000000,
   "attributes": [
    {"key": "gen_ai.latency.time_to_first_token", "value": {"doubleValue": 0.2143}},
    {"key": "gen_ai.latency.e2e", "value": {"doubleValue": 3.4597}},
    {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "812"}},
    {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": 190}},
    {"key": "blob", "value": {"bytesValue": "AAEC"}},
    {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}}],
   "events": [{"name": "e", "timeUnixNano": "1796022000000000000"}],
   "links": [{"traceId": "7c1d0e4b9a2f4c5d8e6f708192a3b4c5", "spanId": "1f2e3d4c5b6a7980"}],
   "status": {}}]}]}]}
"""
