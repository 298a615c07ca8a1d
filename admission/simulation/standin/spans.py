"""Spans as vLLM makes them, through the OpenTelemetry SDK: one `llm_request` per sequence that ended whole.

Delay and batch sizes are the SDK's own (OTEL_BSP_SCHEDULE_DELAY and its kin); nothing is made for aborted requests.
"""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from admission.simulation.standin.driver import Stream

SCOPE = "vllm.tracing.otel"


class Spans:
    """Sends spans to an OTLP/gRPC endpoint.

    Args:
        endpoint: URL of the receiver, such as http://127.0.0.1:4317.
        model: shown as a resource attribute, since vLLM's spans carry no model name.
    """

    def __init__(self, endpoint: str, model: str) -> None:
        resource = Resource.create(
            {
                "vllm.instrumenting_module_name": "vllm.llm_engine",
                "vllm.process_id": str(os.getpid()),
                "model": model,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
        )
        self._tracer = self._provider.get_tracer(SCOPE)
        self._propagator = TraceContextTextMapPropagator()
        self.sent = 0

    def finished(self, stream: Stream) -> None:
        """Make the span of a sequence that ended whole."""
        call = stream.call
        span = self._tracer.start_span(
            "llm_request",
            context=self._propagator.extract(call.trace_headers),
            kind=SpanKind.SERVER,
            attributes=attributes(stream),
            start_time=call.began_ns,
        )
        span.end()
        self.sent += 1

    def close(self) -> None:
        """Send what is left; waits at most as long as the SDK's exporter does."""
        self._provider.shutdown()


def attributes(stream: Stream) -> dict[str, str | int | float]:
    """The attributes of vLLM's `llm_request`, seconds and tokens; an unset sampling setting is absent."""
    sequence, ask = stream.sequence, stream.call.ask
    first, end, scheduled = sequence.first_token_at, sequence.finished_at, sequence.scheduled_at
    if first is None or end is None or scheduled is None:
        raise ValueError("the sequence has not finished")
    found: dict[str, str | int | float] = {
        "gen_ai.latency.time_to_first_token": first - sequence.arrived_at,
        "gen_ai.latency.e2e": end - sequence.arrived_at,
        "gen_ai.latency.time_in_queue": scheduled - sequence.arrived_at,
        "gen_ai.latency.time_in_model_prefill": first - scheduled,
        "gen_ai.latency.time_in_model_decode": end - first,
        "gen_ai.latency.time_in_model_inference": end - scheduled,
        "gen_ai.usage.prompt_tokens": sequence.prompt_tokens,
        "gen_ai.usage.completion_tokens": sequence.output_tokens,
        "gen_ai.request.id": stream.call.id,
        "gen_ai.request.n": ask.n,
    }
    if ask.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = ask.max_tokens
    if ask.temperature:
        found["gen_ai.request.temperature"] = ask.temperature
    if ask.top_p:
        found["gen_ai.request.top_p"] = ask.top_p
    return found
