"""Our subset of OTLP reads the same bytes as the real messages, and the real ones are what is installed."""

from __future__ import annotations

import pytest
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as RealSpan

from admission.wire.otlp_pb2 import Span, TraceRequest
from telemetry.receivers.otlp_intake import Answer
from telemetry.receivers.otlp_modules import NEEDED, OtlpModulesError, check_otlp_modules
from telemetry.receivers.otlp_replies import retry_trailers, status, success
from tests.telemetry.golden import REQUESTS, Told, encode

VALUES = st.one_of(
    st.text(max_size=10).map(lambda v: AnyValue(string_value=v)),
    st.booleans().map(lambda v: AnyValue(bool_value=v)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: AnyValue(int_value=v)),
    st.floats(allow_nan=False).map(lambda v: AnyValue(double_value=v)),
)


@given(
    st.dictionaries(st.text(max_size=10), VALUES, max_size=8),
    st.binary(max_size=20),
    st.text(max_size=10),
    st.integers(0, 5),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2),
)
def test_a_span_reads_the_same_from_the_same_bytes(
    attributes: dict[str, AnyValue], trace_id: bytes, name: str, kind: int, start: int, code: int
) -> None:
    """A map of attributes has the bytes of a list of pairs: nothing may be lost or changed by reading it so."""
    pairs = [KeyValue(key=key, value=value) for key, value in attributes.items()]
    real = RealSpan(trace_id=trace_id, name=name, kind=kind, start_time_unix_nano=start, attributes=pairs)  # type: ignore[arg-type]
    real.status.code = code  # type: ignore[assignment]
    ours = Span.FromString(real.SerializeToString())
    assert (ours.trace_id, ours.name, ours.kind, ours.start_time_unix_nano, ours.status.code) == (
        trace_id,
        name,
        kind,
        start,
        code,
    )
    assert {key: value.SerializeToString() for key, value in ours.attributes.items()} == {
        key: value.SerializeToString() for key, value in attributes.items()
    }


@pytest.mark.parametrize(("name", "told"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_of_ours_is_one_of_theirs(name: str, told: Told) -> None:
    """What we would send on is what came."""
    body = encode(told)
    again = TraceRequest.FromString(body).SerializeToString()
    assert len(again) == len(body)
    assert TraceRequest.FromString(again) == TraceRequest.FromString(body)


def test_answers_are_read_by_real_senders() -> None:
    """A full success leaves partial_success unset: its presence alone makes the Collector log a warning."""
    assert not ExportTraceServiceResponse.FromString(success(Answer())).HasField("partial_success")
    told = success(Answer(rejected=3, message="why"))
    assert ExportTraceServiceResponse.FromString(told).partial_success.rejected_spans == 3
    assert ExportMetricsServiceResponse.FromString(told).partial_success.rejected_data_points == 3
    assert ExportMetricsServiceResponse.FromString(told).partial_success.error_message == "why"


def test_retry_info_goes_out_in_both_forms() -> None:
    """The Python SDK reads only the bare trailer, the Collector only the status details."""
    trailers = dict(retry_trailers(14, "later", 1.5))
    bare = RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    rich = Status.FromString(trailers["grpc-status-details-bin"])
    detail = RetryInfo()
    assert rich.details[0].Unpack(detail)
    assert bare == detail
    assert bare.retry_delay.ToMilliseconds() == 1500
    assert (rich.code, rich.message) == (14, "later")
    assert not status(3, "never").details


def test_the_real_otlp_modules_pass() -> None:
    """The environment of the tests is sound."""
    check_otlp_modules()


def test_an_ancient_copy_is_named_with_its_remedy() -> None:
    """The package xds-protos installs messages without these fields over the real ones: say so, and what to do."""
    module = next(iter(NEEDED))
    with pytest.raises(OtlpModulesError, match="xds-protos"):
        check_otlp_modules({module: ("ExportMetricsServiceResponse", "no_such_field")})


def test_missing_modules_are_named_with_their_remedy() -> None:
    """Uninstalling xds-protos deletes the modules it overwrote."""
    with pytest.raises(OtlpModulesError, match="force-reinstall opentelemetry-proto"):
        check_otlp_modules({"opentelemetry.proto.gone.v1.gone_pb2": ("Gone", "field")})
    with pytest.raises(OtlpModulesError, match="xds-protos"):
        check_otlp_modules({next(iter(NEEDED)): ("Gone", "field")})
