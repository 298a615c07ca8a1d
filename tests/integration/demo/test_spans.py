"""The stand-in's spans through the real SDK and exporter, received by a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from admission.simulation.exchange import Ending, Request, exchange
from admission.simulation.load import LoadConfig, body
from tests.integration.demo.conftest import Starter

pytestmark = pytest.mark.integration

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.scopes: set[str] = set()
        self.spans: list[Span] = []
        self.came = asyncio.Event()

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Take one batch."""
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.scopes.add(scope.scope.name)
                self.spans.extend(scope.spans)
        self.came.set()
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """An OTLP/gRPC receiver."""
    server = grpc.aio.server()
    found = Receiver()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    found.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield found
    await server.stop(None)


async def test_one_span_per_whole_answer_and_none_for_aborted(
    start_standin: Starter, receiver: Receiver
) -> None:
    """Attributes, scope, kind and parent are vLLM's; a caller that left makes no span; 200 ms batching is honoured."""
    port = await start_standin(
        "--engine",
        "h100-llama3-8b",
        "--otlp-traces-endpoint",
        f"http://127.0.0.1:{receiver.port}",
        OTEL_BSP_SCHEDULE_DELAY="200",
    )
    raw = body(LoadConfig(), 1000, 512)

    async def ask(output: int, leave: int = 0) -> Ending:
        headers = (
            ("x-standin-output-tokens", str(output)),
            ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),
        )
        request = Request("/v1/completions", raw, headers, leave_after_chunks=leave)
        return (await exchange("127.0.0.1", port, request)).ending

    endings = list(await asyncio.gather(ask(20), ask(30), ask(400, leave=3)))
    assert endings == [Ending.SERVED, Ending.SERVED, Ending.LEFT]
    async with asyncio.timeout(1.5):
        while len(receiver.spans) < 2:
            await receiver.came.wait()
            receiver.came.clear()
    await asyncio.sleep(0.5)
    assert len(receiver.spans) == 2
    assert receiver.scopes == {"vllm.tracing.otel"}
    for span in receiver.spans:
        check_like_vllm(span)
    tokens = sorted(attributes(span)["gen_ai.usage.completion_tokens"] for span in receiver.spans)
    assert tokens == [20, 30]


def attributes(span: Span) -> dict[str, Any]:
    """Plain values by name."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "") for a in span.attributes}


def check_like_vllm(span: Span) -> None:
    """Names and sums of telemetry's description of vLLM."""
    assert (span.name, span.kind) == ("llm_request", Span.SPAN_KIND_SERVER)
    assert span.trace_id.hex() == TRACE
    found = attributes(span)
    latency = {k.removeprefix("gen_ai.latency."): v for k, v in found.items() if "latency" in k}
    assert latency["time_to_first_token"] == pytest.approx(
        latency["time_in_queue"] + latency["time_in_model_prefill"]
    )
    assert latency["e2e"] == pytest.approx(latency["time_to_first_token"] + latency["time_in_model_decode"])
    assert latency["time_in_model_inference"] == pytest.approx(latency["e2e"] - latency["time_in_queue"])
    assert found["gen_ai.usage.prompt_tokens"] == 1000
    assert found["gen_ai.request.max_tokens"] == 512
    assert "gen_ai.request.temperature" not in found
    assert "gen_ai.response.model" not in found
