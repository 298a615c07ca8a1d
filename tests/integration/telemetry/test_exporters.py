"""The real OpenTelemetry SDK sends traces and metrics, over gRPC and HTTP, compressed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind

from admission.vocabulary import SignalKind, Source
from tests.integration.telemetry.harness import running
from tests.telemetry.golden import VLLM_V1

pytestmark = pytest.mark.integration

REQUESTS = 700
"""More than one batch of the exporter (512)."""


def grpc_exporter(grpc_port: int, http_port: int) -> SpanExporter:
    """As vLLM and SGLang have it."""
    return GrpcExporter(
        endpoint=f"http://127.0.0.1:{grpc_port}", insecure=True, compression=grpc.Compression.Gzip
    )


def http_exporter(grpc_port: int, http_port: int) -> SpanExporter:
    """With OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf."""
    return HttpExporter(endpoint=f"http://127.0.0.1:{http_port}/v1/traces", compression=HttpCompression.Gzip)


def send_requests(
    exporter: SpanExporter, requests: int = REQUESTS, more: Mapping[str, str | list[str]] | None = None
) -> None:
    """As vLLM makes its spans: after the fact, with explicit times, batched."""
    provider = TracerProvider(resource=Resource.create({"service.name": "vllm-0"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=200))
    tracer = provider.get_tracer("vllm.tracing.otel")
    for number in range(requests):
        started = time.time_ns() - round(VLLM_V1.lasted_s * 1e9)
        span = tracer.start_span("llm_request", kind=SpanKind.SERVER, start_time=started)
        span.set_attributes({**VLLM_V1.attributes, "gen_ai.request.id": f"chatcmpl-{number}", **(more or {})})
        span.end()
    provider.shutdown()


@pytest.mark.parametrize("make", [grpc_exporter, http_exporter])
async def test_every_request_of_the_sdk_exporter_arrives_once(
    make: Callable[[int, int], SpanExporter],
) -> None:
    """With gzip and in batches, as many samples as there were requests, on time."""
    async with running() as (_, sink):
        exporter = make(*await sink.ports())
        await asyncio.to_thread(send_requests, exporter)
        await sink.until(lambda: len(sink.samples) >= REQUESTS)
        await sink.until(lambda: sink.last.counters.get("spans:default:vllm:sample") == REQUESTS)
        assert {sample.request_key for sample in sink.samples} == {f"chatcmpl-{n}" for n in range(REQUESTS)}
        assert sink.last.warnings == []


async def test_a_prompt_in_a_span_leaves_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Not in a sample, not in a view, not in what either process prints: it is dropped where it arrives."""
    prompt = "the launch code is 0000"
    async with running() as (_, sink):
        exporter = grpc_exporter(*await sink.ports())
        planted: dict[str, str | list[str]] = {
            "gen_ai.prompt": prompt,
            "gen_ai.input.messages": [prompt],
            "gen_ai.request.id": "planted",
        }
        await asyncio.to_thread(send_requests, exporter, 3, planted)
        await sink.until(lambda: bool(sink.samples))
        await sink.until(lambda: bool(sink.last.emitters))
        left = repr(sink.samples) + repr(sink.views) + repr(sink.readings)
    printed = capfd.readouterr()
    assert "planted" in left
    assert prompt not in left + printed.out + printed.err


async def test_gpu_metrics_of_the_sdk_become_readings() -> None:
    """The path of a node's agent, and of a Collector in between: semantic-convention names, ratios and bytes."""
    async with running() as (_, sink):
        port, _ = await sink.ports()
        await asyncio.to_thread(send_metrics, port)
        await sink.until(lambda: any(r.kind is SignalKind.VRAM_USED_BYTES for r in sink.readings))
        reading = next(r for r in sink.readings if r.kind is SignalKind.VRAM_USED_BYTES)
        assert (reading.value, reading.member, reading.source) == (42.0, "GPU-7", Source.OTLP)
        await sink.until(lambda: [gpu.uuid for gpu in sink.last.gpus] == ["GPU-7"])


def send_metrics(port: int) -> None:
    """One export of a GPU that this machine does not have."""
    exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    resource = Resource.create({"host.name": socket.gethostname()})
    provider = MeterProvider([reader], resource=resource)
    meter = provider.get_meter("agent")
    gpu = {"hw.id": "GPU-7", "hw.type": "gpu", "hw.name": "H200"}

    for name, value in (("hw.gpu.memory.usage", 42), ("hw.gpu.memory.limit", 100)):

        def told(options: CallbackOptions, value: int = value) -> Iterator[Observation]:
            yield Observation(value, gpu)

        meter.create_observable_up_down_counter(name, [told], unit="By")
    provider.force_flush()
    provider.shutdown()
