"""Spans of decisions, `tidegate.admission`, that join the caller's trace; off unless an endpoint is configured."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from admission.core.model import Admitted, Event, Queued, Rejected, Shed, TicketId
from telemetry.exporters.settings import ExportConfig
from telemetry.exporters.trace_context import parsed

SPAN_NAME = "tidegate.admission"

Final = Admitted | Rejected | Shed


class CountedExporter(SpanExporter):
    """Passes spans on, and knows how many got there and whether the last ones did."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.sent = 0
        self.lost = 0
        self.failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called by the SDK's own thread."""
        result = self._inner.export(spans)
        self.failing = result is not SpanExportResult.SUCCESS
        if self.failing:
            self.lost += len(spans)
        else:
            self.sent += len(spans)
        return result

    def shutdown(self) -> None:
        """Closes the connection."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return self._inner.force_flush(timeout_millis)


class DecisionTracer:
    """Keeps final decisions as they come and turns them into spans when `flush` is called, off the hot path."""

    def __init__(
        self,
        config: ExportConfig,
        traceparent_of: Callable[[TicketId], str],
        *,
        exporter: SpanExporter | None = None,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._traceparent_of = traceparent_of
        self._wall_clock = wall_clock
        self._clock = clock
        self._pending: deque[tuple[str, Final, float, str]] = deque()
        self._most = config.queue_spans
        self._endpoint = config.otlp_endpoint
        self.dropped = 0
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "tidegate"}),
            sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
            shutdown_on_exit=False,
        )
        self._exporter = CountedExporter(exporter or _otlp(config))
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter, max_queue_size=self._most, max_export_batch_size=min(512, self._most)
            )
        )
        self._tracer = self._provider.get_tracer("tidegate")

    @property
    def problem(self) -> str:
        """Why spans do not arrive, for people; empty while they do."""
        if self._exporter.failing:
            return f"spans of decisions cannot be sent to {self._endpoint}: {self._exporter.lost} lost"
        return ""

    def on_event(self, target: str, event: Event, now: float) -> None:
        """Remembers a final decision."""
        if not isinstance(event, Admitted | Rejected | Shed):
            return
        if len(self._pending) >= self._most:
            self.dropped += 1
            return
        self._pending.append((target, event, now, self._traceparent_of(event.ticket.id)))

    def flush(self, most: int = 500) -> int:
        """Makes spans of up to `most` decisions; gives how many."""
        made = min(most, len(self._pending))
        offset_s = self._wall_clock() - self._clock()
        for _ in range(made):
            self._make_span(*self._pending.popleft(), offset_s)
        return made

    def stop(self) -> None:
        """Sends what is left, for a few seconds at most."""
        while self.flush():
            pass
        self._provider.shutdown()

    def _make_span(self, target: str, event: Final, at: float, traceparent: str, offset_s: float) -> None:
        waited_s = event.waited_s if isinstance(event, Admitted | Shed) else 0.0
        span = self._tracer.start_span(
            SPAN_NAME,
            context=parent_of(traceparent),
            attributes=attributes_of(target, event),
            start_time=int((at - waited_s + offset_s) * 1e9),
        )
        span.end(int((at + offset_s) * 1e9))


def _otlp(config: ExportConfig) -> SpanExporter:
    plain = config.otlp_endpoint.startswith("http://")
    return OTLPSpanExporter(endpoint=config.otlp_endpoint, insecure=plain, timeout=2)


def parent_of(traceparent: str) -> Context | None:
    """The caller's context, to be the parent of our span; None when there is none."""
    found = parsed(traceparent)
    if found is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if found.sampled else TraceFlags.DEFAULT)
    context = SpanContext(int(found.trace_id, 16), int(found.span_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(context), Context())


def attributes_of(target: str, event: Final) -> dict[str, str | int | float | bool]:
    """The decision in the glossary's words; no prompt, no key, no tenant's name."""
    ticket = event.ticket
    found: dict[str, str | int | float | bool] = {
        "tidegate.target": target,
        "tidegate.class": ticket.priority.label,
        "tidegate.prompt_tokens": ticket.prompt_tokens,
        "gen_ai.request.model": ticket.flow.model,
    }
    if isinstance(event, Admitted):
        found |= {
            "tidegate.verdict": "admitted",
            "tidegate.cost_tokens": event.cost,
            "tidegate.waited_s": event.waited_s,
        }
        return found | shadow_of(event.shadow) if event.shadow is not None else found
    return found | refusal_of(event)


def refusal_of(event: Rejected | Shed) -> dict[str, str | int | float | bool]:
    """Why not, with the measured value and what it was held against."""
    found: dict[str, str | int | float | bool] = {
        "tidegate.verdict": "rejected" if isinstance(event, Rejected) else "shed",
        "tidegate.reason": event.reason.name,
        "tidegate.detail": event.why.detail,
        "tidegate.measured": event.why.measured,
        "tidegate.threshold": event.why.threshold,
    }
    if event.retry_after_s is not None:
        found["tidegate.retry_after_s"] = event.retry_after_s
    return found


def shadow_of(said: Queued | Rejected | Shed) -> dict[str, str | int | float | bool]:
    """What enforce would have said."""
    verdict = type(said).__name__.lower()
    reason = {} if isinstance(said, Queued) else {"tidegate.shadow_reason": said.reason.name}
    return {"tidegate.shadow_verdict": verdict, **reason}
