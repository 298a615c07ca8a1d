"""What a scrape of the sidecar says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import prometheus_client
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from admission.core.model import LeaseExpired, LimitChanged, Queued, ShadowDecided, TicketId, Why
from admission.vocabulary import Mode, Reason, Source, Verdict
from telemetry.exporters.prometheus import PrometheusExporter
from telemetry.exporters.series import Counts, Histograms
from telemetry.link import GpuReport, SignalReport, TelemetryView
from tests.telemetry.exporters.events import State, admitted, finished, rejected, shed, ticket, view

TRACE = "0af7651916cd43dd8448eb211c80319c"


def exporter(state: State | None = None, trace_id: str = "") -> PrometheusExporter:
    """An exporter whose tickets all belong to one trace."""
    return PrometheusExporter(state or State(), "1.2.3", lambda _: trace_id)


def samples(exporter: PrometheusExporter) -> Iterator[Sample]:
    """The page, parsed by Prometheus' own parser."""
    page, _ = exporter.gather().encoded("text/plain")
    for family in text_string_to_metric_families(page.decode()):
        yield from family.samples


def value(exporter: PrometheusExporter, name: str, /, **labels: str) -> float | None:
    """One sample's value; None: absent."""
    found = [sample for sample in samples(exporter) if sample.name == name and sample.labels == labels]
    assert len(found) < 2
    return found[0].value if found else None


def test_each_decision_is_counted_by_class_verdict_and_reason() -> None:
    """Refusals without a reason are what pages people for nothing."""
    metrics = exporter()
    for event in (admitted(1), rejected(2), rejected(3), shed(4), Queued(ticket(5), 1, 0.5)):
        metrics.on_event("a", event, 1.0)

    def count(verdict: str, reason: str) -> float | None:
        labels = {"target": "a", "class": "interactive", "verdict": verdict, "reason": reason}
        return value(metrics, "tidegate_decisions_total", **labels)

    assert count("admitted", "") == 1
    assert count("rejected", "WATERMARK_KV") == 2
    assert count("shed", "DEADLINE") == 1
    assert count("queued", "") == 1


def test_in_shadow_what_enforce_would_have_said_is_counted_apart() -> None:
    """Trust in enforce comes from reading these numbers first; they must not look like refusals."""
    metrics = exporter()
    metrics.on_event("a", admitted(1, shadow=rejected(1)), 1.0)
    metrics.on_event("a", ShadowDecided(ticket(2), Verdict.SHED, Reason.DEADLINE, 1.0), 1.0)
    labels = {"target": "a", "class": "interactive"}

    shadow = "tidegate_shadow_decisions_total"
    assert value(metrics, shadow, **labels, verdict="rejected", reason="WATERMARK_KV") == 1
    assert value(metrics, shadow, **labels, verdict="shed", reason="DEADLINE") == 1
    assert value(metrics, "tidegate_decisions_total", **labels, verdict="admitted", reason="") == 1


def test_a_finished_request_feeds_its_latencies_and_its_goodness() -> None:
    """Goodput against finished is the number that the limiter is for."""
    metrics = exporter()
    for no, good in enumerate((True, False, None)):
        metrics.on_event("a", finished(no, good=good), 1.0)
    labels = {"target": "a", "class": "interactive"}

    assert value(metrics, "tidegate_good_total", **labels) == 1
    assert value(metrics, "tidegate_finished_total", **labels, outcome="ok") == 3
    assert value(metrics, "tidegate_e2e_seconds_sum", **labels) == pytest.approx(6.0)
    assert value(metrics, "tidegate_ttft_seconds_bucket", **labels, le="0.5") == 0
    assert value(metrics, "tidegate_ttft_seconds_bucket", **labels, le="1.0") == 3
    assert value(metrics, "tidegate_tpot_seconds_count", **labels) == 3


def test_limit_changes_are_counted_by_the_signal_behind_them() -> None:
    """A limit that moves by one source only, while others are stale, is the first thing to ask about."""
    metrics = exporter()
    metrics.on_event("a", LimitChanged(10, 5, Why(source=Source.SCRAPE)), 1.0)
    metrics.on_event("a", LeaseExpired(TicketId("o", 1), 5, 30.0), 1.0)

    assert value(metrics, "tidegate_limit_changes_total", target="a", source="scrape") == 1
    assert value(metrics, "tidegate_lease_expired_total", target="a") == 1


def test_gauges_are_the_state_at_the_scrape() -> None:
    """A gauge that is pushed can be old without looking old."""
    state = State({"a": view()})
    metrics = exporter(state)
    state.views()["a"].limit = 99

    assert value(metrics, "tidegate_limit_tokens", target="a") == 99
    assert value(metrics, "tidegate_in_flight", target="a", **{"class": "interactive"}) == 3
    assert value(metrics, "tidegate_gate_state", target="a", gate="kv", state="hot") == 1
    assert value(metrics, "tidegate_sessions") == 2
    assert value(metrics, "tidegate_protocol_total", way="unary", name="ignored_releases") == 3
    assert value(metrics, "tidegate_build_info", version="1.2.3") == 1


@pytest.mark.parametrize("mode", list(Mode))
def test_exactly_one_mode_is_in_force(mode: Mode) -> None:
    """An alert on shadow in production needs a series that turns to 0, not one that vanishes."""
    metrics = exporter(State({"a": view(mode)}))

    found = {each: value(metrics, "tidegate_mode", target="a", mode=each.name.lower()) for each in Mode}
    assert found == {each: float(each is mode) for each in Mode}


def test_an_slo_that_nobody_chose_is_labelled_so() -> None:
    """Alert rules divide by it; whoever reads them must see that the number is nobody's promise."""
    metrics = exporter()
    labels = {"target": "a", "class": "interactive"}

    assert value(metrics, "tidegate_slo_seconds", **labels, measure="ttft", source="configured") == 1.5
    assert value(metrics, "tidegate_slo_seconds", **labels, measure="tpot", source="default") == 0.08


def test_the_unknown_is_absent_and_never_zero() -> None:
    """KV usage 0 because nobody said it would hide an engine that is full."""
    gpu = GpuReport("GPU-1", memory_total_bytes=10)
    metrics = exporter(State({"a": view(kv=None)}, TelemetryView(gpus=[gpu])))

    assert value(metrics, "tidegate_kv_usage_ratio", target="a") is None
    assert value(metrics, "tidegate_gpu_memory_free_bytes", gpu="GPU-1") is None
    assert value(metrics, "tidegate_gpu_memory_total_bytes", gpu="GPU-1") == 10


def test_signals_and_spans_of_telemetry_are_shown() -> None:
    """Whoever alerts on a stale signal must not need the dashboard."""
    signal = SignalReport("a", "kv_usage_ratio", "scrape", "stale", age_s=12.0)
    counters = {"spans:a:vllm:ok": 7, "spans::http:duplicate": 1, "scrapes": 3}
    metrics = exporter(State({}, TelemetryView(signals=[signal], counters=counters)))
    labels = {"target": "a", "signal": "kv_usage_ratio", "source": "scrape"}

    assert value(metrics, "tidegate_signal_age_seconds", **labels) == 12.0
    assert value(metrics, "tidegate_signal_state", **labels, state="stale") == 1
    assert value(metrics, "tidegate_spans_total", target="a", emitter="vllm", result="ok") == 7
    assert value(metrics, "tidegate_spans_total", target="", emitter="http", result="duplicate") == 1
    assert value(metrics, "tidegate_telemetry_total", name="scrapes") == 3


def test_openmetrics_carries_the_trace_as_exemplar() -> None:
    """From a bad bucket to the very request: that is what exemplars are for."""
    metrics = exporter(trace_id=TRACE)
    metrics.on_event("a", finished(), 1.0)
    metrics.on_event("a", rejected(), 1.0)
    page, content_type = metrics.gather().encoded("application/openmetrics-text; version=1.0.0")

    families = {family.name: family for family in parse_openmetrics(page.decode())}  # type: ignore[no-untyped-call]
    buckets = [sample for sample in families["tidegate_ttft_seconds"].samples if sample.exemplar]
    assert content_type.startswith("application/openmetrics-text")
    assert [bucket.exemplar.labels for bucket in buckets if bucket.exemplar] == [{"trace_id": TRACE}]
    assert any(sample.exemplar for sample in families["tidegate_decisions"].samples)


def test_of_usual_requests_few_are_asked_for_their_trace_and_of_bad_ones_all() -> None:
    """Looking up a trace costs more than counting; who looks for one looks for a request that missed its SLO."""
    asked: list[int] = []
    metrics = PrometheusExporter(State(), "1.2.3", lambda which: asked.append(which.no) or TRACE)  # type: ignore[func-returns-value]
    for no in range(160):
        metrics.on_event("a", replace(finished(no), good=True), 1.0)
    usual = len(asked)
    for no in range(200, 220):
        metrics.on_event("a", replace(finished(no), good=False), 1.0)

    assert usual == 10
    assert asked[usual:] == list(range(200, 220))


def test_a_page_is_of_one_instant() -> None:
    """It is written out by another thread while decisions go on: what happens then must not show in half of it."""
    metrics = exporter()
    metrics.on_event("a", admitted(), 1.0)
    gathered = metrics.gather()
    before = gathered.encoded("")
    for no in range(100):
        metrics.on_event(f"t{no}", admitted(no), 1.0)
        metrics.on_event("a", finished(no), 1.0)

    assert gathered.encoded("") == before


def test_the_global_registry_stays_untouched() -> None:
    """Embedded beside other people's metrics, ours must not collide with theirs: two exporters live in one process."""
    before = list(prometheus_client.REGISTRY.collect())
    for metrics in (exporter(), exporter()):
        metrics.on_event("a", admitted(), 1.0)
        assert b"tidegate_decisions_total" in metrics.gather().encoded("")[0]

    names = {family.name for family in prometheus_client.REGISTRY.collect()}
    assert names == {family.name for family in before}


def test_labels_are_bounded_and_the_rest_is_other() -> None:
    """Ten thousand invented names must not become ten thousand series, and no count may be lost."""
    counts = Counts("c", "text", ("name",), most=2)
    histograms = Histograms("h", "text", ("name",), (1.0,), most=2)
    for no in range(10):
        counts.add((str(no),))
        histograms.observe((str(no),), 0.5)

    (counted,) = counts.collect()
    (observed,) = histograms.collect()
    assert {sample.labels["name"]: sample.value for sample in counted.samples} == {"0": 1, "1": 1, "other": 8}
    totals = {s.labels["name"]: s.value for s in observed.samples if s.name == "h_count"}
    assert totals == {"0": 1, "1": 1, "other": 8}


def test_many_targets_and_signals_stay_bounded() -> None:
    """One page must stay readable by Prometheus whatever telemetry reports."""
    signals = [SignalReport("a", f"s{no}", "scrape", "fresh", age_s=1.0) for no in range(5000)]
    gpus = [GpuReport(f"GPU-{no}", memory_free_bytes=1) for no in range(2000)]
    metrics = exporter(
        State({f"t{no}": view() for no in range(300)}, TelemetryView(gpus=gpus, signals=signals))
    )
    found = list(samples(metrics))

    assert sum(sample.name == "tidegate_limit_tokens" for sample in found) == 256
    assert sum(sample.name == "tidegate_signal_age_seconds" for sample in found) == 4096
    assert sum(sample.name == "tidegate_gpu_memory_free_bytes" for sample in found) == 1024


def test_decision_times_are_a_histogram() -> None:
    """The sidecar's own share of TTFT must be visible."""
    metrics = exporter()
    metrics.on_decision_time(0.0004)

    assert value(metrics, "tidegate_decision_seconds_bucket", le="0.0005") == 1
    assert value(metrics, "tidegate_decision_seconds_bucket", le="0.00025") == 0
