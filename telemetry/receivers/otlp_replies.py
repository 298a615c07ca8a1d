"""What OTLP senders are answered: partial successes, and errors that carry when to come back."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

from admission.wire.otlp_pb2 import PartialSuccess, TraceResponse
from admission.wire.rpc_pb2 import RetryInfo, RpcStatus
from telemetry.receivers.otlp_intake import Answer

INVALID_ARGUMENT = 3
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
UNAVAILABLE = 14
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def success(answer: Answer) -> bytes:
    """An Export*Response of either signal: empty, unless spans or data points were malformed."""
    if not answer.rejected:
        return b""
    partial = PartialSuccess(rejected=answer.rejected, error_message=answer.message)
    return TraceResponse(partial_success=partial).SerializeToString()


def retry_info(after_s: float) -> RetryInfo:
    """When to come back."""
    delay = Duration()
    delay.FromNanoseconds(int(after_s * 1e9))
    return RetryInfo(retry_delay=delay)


def status(code: int, message: str, retry_after_s: float | None = None) -> RpcStatus:
    """A google.rpc.Status, with RetryInfo where coming back can help."""
    answer = RpcStatus(code=code, message=message)
    if retry_after_s is not None:
        info = retry_info(retry_after_s).SerializeToString()
        answer.details.append(Any(type_url=RETRY_INFO, value=info))
    return answer


def retry_trailers(code: int, message: str, after_s: float) -> tuple[tuple[str, bytes], ...]:
    """RetryInfo in both forms: the Collector reads the status details, the Python SDK only the bare trailer."""
    return (
        ("google.rpc.retryinfo-bin", retry_info(after_s).SerializeToString()),
        ("grpc-status-details-bin", status(code, message, after_s).SerializeToString()),
    )
