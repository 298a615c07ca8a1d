"""Spans of decisions: what they say, whose trace they join, and that they cost the hot path nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from admission.core.model import Queued
from telemetry.exporters.settings import ExportConfig
from telemetry.exporters.trace_context import parsed, trace_id_of
from telemetry.exporters.traces import CountedExporter, DecisionTracer
from tests.telemetry.exporters.events import admitted, finished, rejected, shed, ticket

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
WALL_S = 1_800_000_000.0


class Bench:
    """A tracer with an exporter in memory and clocks that stand still."""

    def __init__(self, traceparent: str = SAMPLED, config: ExportConfig | None = None) -> None:
        self.memory = InMemorySpanExporter()
        self.tracer = DecisionTracer(
            config or ExportConfig(),
            lambda _: traceparent,
            exporter=self.memory,
            wall_clock=lambda: WALL_S,
            clock=lambda: 100.0,
        )

    def spans(self) -> list[ReadableSpan]:
        """What was exported, in order."""
        self.tracer.stop()
        return list(self.memory.get_finished_spans())


def test_a_decision_joins_the_trace_of_its_caller() -> None:
    """A span of its own trace would answer no question about the request."""
    bench = Bench()
    bench.tracer.on_event("a", rejected(), 90.0)
    (span,) = bench.spans()

    assert span.name == "tidegate.admission"
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT


def test_a_refusal_says_why_with_measure_and_threshold() -> None:
    """The trace is where a developer asks why the model said no."""
    bench = Bench()
    bench.tracer.on_event("a", rejected(), 90.0)
    (span,) = bench.spans()
    found = dict(span.attributes or {})

    assert found["tidegate.verdict"] == "rejected"
    assert found["tidegate.reason"] == "WATERMARK_KV"
    assert (found["tidegate.measured"], found["tidegate.threshold"]) == (0.98, 0.97)
    assert found["tidegate.retry_after_s"] == 5.0
    assert (found["tidegate.target"], found["tidegate.class"]) == ("a", "interactive")


def test_a_span_lasts_as_long_as_the_wait() -> None:
    """The time spent here must be seen beside the engine's."""
    bench = Bench()
    bench.tracer.on_event("a", shed(), 90.0)
    bench.tracer.on_event("a", admitted(waited_s=0.25), 95.0)
    waited, run = bench.spans()

    assert (waited.end_time, waited.start_time) == (int((WALL_S - 10) * 1e9), int((WALL_S - 11.5) * 1e9))
    assert run.end_time is not None
    assert run.start_time is not None
    assert run.end_time - run.start_time == pytest.approx(0.25e9, abs=1e3)


def test_shadow_says_what_enforce_would_have_said() -> None:
    """Shadow exists to be read."""
    bench = Bench()
    bench.tracer.on_event("a", admitted(shadow=rejected()), 90.0)
    bench.tracer.on_event("a", admitted(shadow=Queued(ticket(), 1, 0.1)), 90.0)
    refused, queued = (dict(span.attributes or {}) for span in bench.spans())

    assert (refused["tidegate.verdict"], refused["tidegate.shadow_verdict"]) == ("admitted", "rejected")
    assert refused["tidegate.shadow_reason"] == "WATERMARK_KV"
    assert queued["tidegate.shadow_verdict"] == "queued"


def test_no_tenant_and_no_text_leaves_in_a_span() -> None:
    """Traces travel far; who asked is nobody's business there."""
    bench = Bench()
    bench.tracer.on_event("a", rejected(), 90.0)
    (span,) = bench.spans()

    assert "acme" not in repr(span.attributes)


def test_only_final_decisions_become_spans() -> None:
    """One request, one span: a queued ticket gets its span when the wait has ended."""
    bench = Bench()
    for event in (Queued(ticket(), 1, 0.1), finished()):
        bench.tracer.on_event("a", event, 90.0)

    assert bench.spans() == []


def test_a_caller_that_is_not_sampled_gets_no_span() -> None:
    """Sampling is decided once, where the trace begins."""
    bench = Bench(f"00-{TRACE}-{PARENT}-00")
    bench.tracer.on_event("a", rejected(), 90.0)

    assert bench.spans() == []


@pytest.mark.parametrize(("ratio", "count"), [(1.0, 1), (0.0, 0)])
def test_without_a_caller_the_ratio_decides(ratio: float, count: int) -> None:
    """Traces that begin here follow our own configuration."""
    bench = Bench("", ExportConfig(sample_ratio=ratio))
    bench.tracer.on_event("a", rejected(), 90.0)

    assert len(bench.spans()) == count


def test_nothing_is_made_before_the_flush_and_what_waits_is_bounded() -> None:
    """On the hot path a decision is remembered, no more; a flood is dropped and counted, never kept."""
    bench = Bench(config=ExportConfig(queue_spans=3))
    for no in range(5):
        bench.tracer.on_event("a", rejected(no), 90.0)

    assert bench.memory.get_finished_spans() == ()
    assert bench.tracer.dropped == 2
    assert bench.tracer.flush(2) == 2
    assert len(bench.spans()) == 3


class Deaf(SpanExporter):
    """A receiver that is away, until told otherwise."""

    away = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Takes or fails."""
        return SpanExportResult.FAILURE if self.away else SpanExportResult.SUCCESS


def test_spans_that_do_not_arrive_are_counted_and_said_once() -> None:
    """A Collector that is away must be seen in status, not in a log line each second."""
    deaf = Deaf()
    counted = CountedExporter(deaf)
    span = Bench().tracer._tracer.start_span("x")
    counted.export([cast("ReadableSpan", span)] * 3)
    lost, failing = counted.lost, counted.failing
    deaf.away = False
    counted.export([cast("ReadableSpan", span)] * 2)

    assert (lost, failing) == (3, True)
    assert (counted.sent, counted.lost, counted.failing) == (2, 3, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        SAMPLED[:-1],
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    """Headers come from strangers."""
    assert parsed(text) is None
    assert trace_id_of(text) == ""


def test_a_traceparent_of_a_later_version_is_read() -> None:
    """W3C: a newer version may append fields, and keeps the first four."""
    assert trace_id_of(f"01-{TRACE}-{PARENT}-01-more") == TRACE


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"otlp_endpoint": "127.0.0.1:4317"}, "otlp_endpoint"),
        ({"sample_ratio": 2.0}, "sample_ratio"),
        ({"queue_spans": 0}, "queue_spans"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, object], word: str) -> None:
    """Configuration checks itself where it is declared."""
    with pytest.raises(ValueError, match=f"^{word}: "):
        ExportConfig(**settings)  # type: ignore[arg-type]
