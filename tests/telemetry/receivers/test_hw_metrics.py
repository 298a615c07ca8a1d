"""OTLP metrics of GPUs and engines become the same readings as if we had measured ourselves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from admission.vocabulary import SignalKind, Source
from telemetry.config import TargetBinding
from telemetry.hw_convention import request_for
from telemetry.receivers.hw_metrics import MAX_GPUS, MAX_UNBOUND, OtlpMetrics
from telemetry.receivers.nvml_sampler import NvmlSampler
from telemetry.receivers.otlp_spans import Batch
from tests.telemetry.receivers.fake_nvml import FakeGpu, FakeNvml
from tests.telemetry.receivers.recording import Recording

NOW_NS = 1_800_000_000_000_000_000
ENGINE = {"service.instance.id": "127.0.0.1:8000", "service.name": "vllm"}


def attributes(values: dict[str, str]) -> list[KeyValue]:
    """Attributes as the real OTLP has them: a list, not a map."""
    return [KeyValue(key=key, value={"string_value": value}) for key, value in values.items()]  # type: ignore[arg-type]


def gauge(name: str, value: float, **labels: str) -> Metric:
    """A gauge with one point."""
    metric = Metric(name=name)
    point = metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_double=value)
    point.attributes.extend(attributes({key.replace("__", "."): word for key, word in labels.items()}))
    return metric


def counter(name: str, value: int, temporality: int = 2) -> Metric:
    """A sum with one point."""
    metric = Metric(name=name)
    metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]
    metric.sum.data_points.add(time_unix_nano=NOW_NS, as_int=value)
    return metric


def histogram(name: str, count: int) -> Metric:
    """A cumulative histogram with one point."""
    metric = Metric(name=name)
    metric.histogram.aggregation_temporality = 2  # type: ignore[assignment]
    metric.histogram.data_points.add(time_unix_nano=NOW_NS, count=count, bucket_counts=[count], sum=1.0)
    return metric


def payload(resource: dict[str, str], *metrics: Metric) -> bytes:
    """A request as a real exporter encodes it."""
    one = ResourceMetrics()
    one.resource.attributes.extend(attributes(resource))
    one.scope_metrics.add().metrics.extend(metrics)
    return ExportMetricsServiceRequest(resource_metrics=[one]).SerializeToString()


def take(body: bytes, *, reader: OtlpMetrics | None = None, **batch: Any) -> Recording:
    """What a payload makes the reader say."""
    emit = Recording()
    reader = reader or OtlpMetrics((TargetBinding(),), host="node")
    reader.take(body, Batch(emit, 5.0, batch.pop("wall_ns", NOW_NS), **batch))
    return emit


def agent_payload(gpu: FakeGpu, host: str = "node") -> bytes:
    """What the agent of a node sends for a GPU."""
    observation = NvmlSampler(load=lambda: FakeNvml(gpu)).step(1.0)
    return request_for(observation, host, {}, NOW_NS).SerializeToString()


def test_what_the_agent_sends_is_what_nvml_said() -> None:
    """Across the wire and back: the same bytes free, the same watts."""
    emit = take(agent_payload(FakeGpu("GPU-a")))
    assert emit.values() == {
        SignalKind.VRAM_USED_BYTES: float(1 << 30),
        SignalKind.VRAM_FREE_BYTES: float(23 << 30),
        SignalKind.VRAM_TOTAL_BYTES: float(24 << 30),
        SignalKind.GPU_UTILIZATION_RATIO: 0.5,
        SignalKind.GPU_POWER_W: 350.5,
        SignalKind.GPU_TEMPERATURE_C: 61.0,
        SignalKind.GPU_STATE: 1.0,
    }
    assert {(r.source, r.member, r.at) for _, r in emit.readings} == {(Source.OTLP, "GPU-a", 5.0)}
    [report] = emit.gpus
    assert (report.uuid, report.name, report.host, report.target) == ("GPU-a", "Fake GPU", "node", "default")


def test_the_agents_names_and_units_are_those_of_the_semantic_conventions() -> None:
    """Any other reader of the same stream must understand it too."""
    request = ExportMetricsServiceRequest.FromString(agent_payload(FakeGpu("GPU-a")))
    [metrics] = [scope.metrics for one in request.resource_metrics for scope in one.scope_metrics]
    assert {(metric.name, metric.unit, metric.WhichOneof("data")) for metric in metrics} == {
        ("hw.status", "1", "sum"),
        ("hw.gpu.memory.usage", "By", "sum"),
        ("hw.gpu.memory.limit", "By", "sum"),
        ("hw.gpu.utilization", "1", "gauge"),
        ("hw.power", "W", "gauge"),
        ("hw.temperature", "Cel", "gauge"),
    }


def test_a_gpu_lost_on_another_machine_is_lost_here() -> None:
    """Its state, and no values."""
    gpu = FakeGpu("GPU-a")
    sampler = NvmlSampler(load=lambda: FakeNvml(gpu))
    sampler.step(1.0)
    gpu.lost = True
    body = request_for(sampler.step(2.0), "node", {}, NOW_NS).SerializeToString()
    emit = take(body)
    assert emit.values() == {SignalKind.GPU_STATE: 0.0}
    assert (emit.gpus[0].state, emit.gpus[0].memory_free_bytes) == ("lost", None)


def test_a_gpu_of_another_machine_is_bound_by_its_uuid_only() -> None:
    """`all-local` does not mean everything in the cluster."""
    emit = take(agent_payload(FakeGpu("GPU-a"), host="elsewhere"))
    assert emit.readings == []
    reader = OtlpMetrics((TargetBinding(gpus=("GPU-a",)),), host="node")
    assert take(agent_payload(FakeGpu("GPU-a"), host="elsewhere"), reader=reader).readings
    assert not reader.unbound


def test_an_unbound_gpu_is_listed() -> None:
    """So that somebody can bind it."""
    reader = OtlpMetrics((TargetBinding(gpus=("GPU-z",)),), host="node")
    take(agent_payload(FakeGpu("GPU-a")), reader=reader)
    assert list(reader.unbound) == ["GPU GPU-a on node"]


def test_a_gpu_that_we_sample_ourselves_is_not_counted_twice() -> None:
    """An agent and a sidecar on one node see the same GPU."""
    reader = OtlpMetrics((TargetBinding(),), host="node", sampled=lambda uuid: uuid == "GPU-a")
    emit = take(agent_payload(FakeGpu("GPU-a")), reader=reader)
    assert (emit.readings, emit.gpus) == ([], [])
    assert take(agent_payload(FakeGpu("GPU-b")), reader=reader).readings


def test_usage_without_a_limit_is_no_free_memory() -> None:
    """Free bytes are the difference: half of it is nothing."""
    emit = take(payload({"host.name": "node"}, gauge("hw.gpu.memory.usage", 5.0, hw__id="GPU-a")))
    assert SignalKind.VRAM_FREE_BYTES not in emit.values()


def test_other_hardware_passes_unread() -> None:
    """The conventions name fans and disks the same way."""
    fan = gauge("hw.temperature", 40.0, hw__id="fan1", hw__type="fan")
    encoder = gauge("hw.gpu.utilization", 0.9, hw__id="GPU-a", hw__gpu__task="encoder")
    emit = take(payload({"host.name": "node"}, fan, encoder))
    assert (emit.readings, emit.gpus) == ([], [])


def engine_metrics() -> tuple[Metric, ...]:
    """What a Collector's prometheus receiver makes of a page of vLLM with two ranks."""
    labels = {"model_name": "m"}
    return (
        gauge("vllm:num_requests_running", 3.0, engine="0", **labels),
        gauge("vllm:num_requests_running", 4.0, engine="1", **labels),
        gauge("vllm:kv_cache_usage_perc", 0.5, engine="0", **labels),
        gauge("vllm:cache_config_info", 1.0, num_gpu_blocks="100", block_size="16"),
        counter("vllm:prompt_tokens_total", 77),
        histogram("vllm:time_to_first_token_seconds", 12),
        gauge("up", 1.0),
    )


def test_engine_load_that_a_collector_scraped_reads_like_a_scrape() -> None:
    """Where only the Collector may reach the engine."""
    emit = take(payload(ENGINE, *engine_metrics()))
    assert emit.values() == {
        SignalKind.ENGINE_UP: 1.0,
        SignalKind.RUNNING: 7.0,
        SignalKind.KV_USAGE_RATIO: 0.5,
        SignalKind.KV_CAPACITY_TOKENS: 1600.0,
        SignalKind.PROMPT_TOKENS_TOTAL: 77.0,
        SignalKind.TTFT_COUNT_TOTAL: 12.0,
    }
    assert {reading.member for _, reading in emit.readings} == {"127.0.0.1:8000"}


def test_a_collector_that_cuts_off_total_is_understood() -> None:
    """The prometheus receiver has an option that trims suffixes."""
    emit = take(payload(ENGINE, counter("vllm:prompt_tokens", 77)))
    assert emit.values()[SignalKind.PROMPT_TOKENS_TOTAL] == 77.0


def test_a_target_that_we_scrape_ourselves_is_not_counted_twice() -> None:
    """Both ways at once would double the load."""
    reader = OtlpMetrics((TargetBinding(),), host="node", scraped=lambda target: target == "default")
    assert take(payload(ENGINE, *engine_metrics()), reader=reader).readings == []


def test_an_engine_that_the_collector_finds_down_is_down_once_it_was_seen() -> None:
    """Every job of a Collector has an `up`; only that of an engine concerns us."""
    reader = OtlpMetrics((TargetBinding(),), host="node")
    down = payload(ENGINE, gauge("up", 0.0))
    assert take(down, reader=reader).readings == []
    take(payload(ENGINE, *engine_metrics()), reader=reader)
    assert take(down, reader=reader).values() == {SignalKind.ENGINE_UP: 0.0}


def test_an_engine_is_bound_by_its_place_then_by_resource_then_by_model() -> None:
    """Two pools behind one Collector."""
    targets = (
        TargetBinding(name="a", metrics_urls=("http://10.0.0.1:8000/metrics",), models=("x",)),
        TargetBinding(name="b", metrics_urls=(), models=("m",)),
        TargetBinding(name="c", metrics_urls=(), models=("y",), spans={"service.name": "third"}),
    )
    reader = OtlpMetrics(targets, host="node")
    running = gauge("vllm:num_requests_running", 1.0, model_name="m")
    for resource, target in (
        ({"service.instance.id": "10.0.0.1:8000"}, "a"),
        ({"server.address": "10.0.0.9", "server.port": "1"}, "b"),
        ({"service.name": "third"}, "c"),
    ):
        emit = take(payload(resource, running), reader=reader)
        assert {to for to, _ in emit.readings} == {target}


def test_a_sender_without_the_role_is_shown_and_never_steers() -> None:
    """Also not by halves: its memory limit must not meet another sender's usage."""
    reader = OtlpMetrics((TargetBinding(),), host="node")
    emit = take(agent_payload(FakeGpu("GPU-a", total=99 << 30)), reader=reader, steers=False)
    assert emit.readings == []
    assert [report.uuid for report in emit.gpus] == ["GPU-a"]
    assert take(payload(ENGINE, *engine_metrics()), reader=reader, steers=False).readings == []
    usage = payload({"host.name": "node"}, gauge("hw.gpu.memory.usage", 5.0, hw__id="GPU-a"))
    assert SignalKind.VRAM_FREE_BYTES not in take(usage, reader=reader).values()


def test_a_sender_without_the_role_cannot_change_what_one_with_it_said() -> None:
    """Neither the row on the dashboard nor the limit that the next usage is held against."""
    reader = OtlpMetrics((TargetBinding(),), host="node")
    take(agent_payload(FakeGpu("GPU-a")), reader=reader)
    assert take(agent_payload(FakeGpu("GPU-a", total=99 << 30)), reader=reader, steers=False).gpus == []
    usage = payload({"host.name": "node"}, gauge("hw.gpu.memory.usage", float(4 << 30), hw__id="GPU-a"))
    assert take(usage, reader=reader).values()[SignalKind.VRAM_FREE_BYTES] == 20 << 30


@pytest.mark.parametrize(
    ("metric", "counted"),
    [
        (counter("vllm:prompt_tokens_total", 5, temporality=1), "metric_points_delta"),
        (gauge("vllm:num_requests_running", float("nan")), "metric_points_without_value"),
        (gauge("hw.gpu.memory.usage", float("inf"), hw__id="GPU-a"), "metric_points_without_value"),
    ],
)
def test_points_that_say_nothing_are_counted(metric: Metric, counted: str) -> None:
    """Deltas are no totals, NaN is no number."""
    emit = take(payload(ENGINE, metric))
    assert emit.readings == []
    assert emit.counts[counted] == 1


def test_a_marker_of_staleness_is_no_value() -> None:
    """A Collector sends it, with value 0, when a series ended."""
    metric = gauge("vllm:num_requests_running", 0.0)
    metric.gauge.data_points[0].flags = 1
    assert take(payload(ENGINE, metric)).readings == []


def test_a_point_of_long_ago_is_late() -> None:
    """A Collector that was away sends what it kept; the present is not in it."""
    body = agent_payload(FakeGpu("GPU-a"))
    emit = take(body, wall_ns=NOW_NS + 60_000_000_000)
    assert emit.readings == []
    assert emit.counts["metric_points_late"] > 0


def test_what_is_not_otlp_raises_for_the_listener_to_answer() -> None:
    """Typed, so that the sender is told INVALID_ARGUMENT."""
    with pytest.raises(DecodeError):
        take(b"\xff\xff\xff garbage")


def test_invented_gpus_and_engines_fill_no_memory() -> None:
    """A flood of names is a bounded list."""
    reader = OtlpMetrics((TargetBinding(gpus=(), metrics_urls=()),), host="node")
    for number in range(MAX_GPUS + 50):
        body = payload({}, gauge("hw.power", 1.0, hw__id=f"GPU-{number}", hw__type="gpu"))
        emit = take(body, reader=reader)
    assert emit.counts["hw_metrics_too_many_gpus"] == 1
    assert len(reader.unbound) == MAX_UNBOUND


@given(st.binary(max_size=300))
def test_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing else than DecodeError may come out."""
    with suppress(DecodeError):
        take(body)
