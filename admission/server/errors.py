"""The only place that maps a refusal to a status: HTTP, gRPC, and whether another replica may help."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from admission.vocabulary import Reason

RETRY_AFTER_HEADER = "retry-after"
RETRY_AFTER_MS_HEADER = "retry-after-ms"
REASON_HEADER = "x-tidegate-reason"
SCOPE_HEADER = "x-tidegate-scope"


@dataclass(frozen=True, slots=True)
class Status:
    """How foreign protocols say it. `retry` tells whether coming back can help."""

    http: int
    grpc: grpc.StatusCode
    retry: bool
    kind: str
    """The `type` of an OpenAI error body."""


_BUSY = Status(429, grpc.StatusCode.RESOURCE_EXHAUSTED, True, "rate_limit_error")
_GONE = Status(503, grpc.StatusCode.UNAVAILABLE, True, "service_unavailable_error")
_NEVER = Status(400, grpc.StatusCode.INVALID_ARGUMENT, False, "invalid_request_error")
_FORBIDDEN = Status(403, grpc.StatusCode.PERMISSION_DENIED, False, "permission_error")
_CLOSED = Status(499, grpc.StatusCode.CANCELLED, False, "cancelled_error")
_REPLICA = Status(503, grpc.StatusCode.UNAVAILABLE, True, "rate_limit_error")

STATUS: dict[Reason, Status] = {
    Reason.QUEUE_FULL: _BUSY,
    Reason.QUEUE_TOKENS: _BUSY,
    Reason.DEADLINE: _BUSY,
    Reason.TTFT_FORECAST: _BUSY,
    Reason.QUOTA: _BUSY,
    Reason.BREAKER: _GONE,
    Reason.WATERMARK_VRAM: _BUSY,
    Reason.WATERMARK_KV: _BUSY,
    Reason.DRAINING: _GONE,
    Reason.OUTAGE: _GONE,
    Reason.DEGRADED: _BUSY,
    Reason.DISPLACED: _BUSY,
    Reason.CANCELLED: _CLOSED,
    Reason.NEVER_FITS: _NEVER,
    Reason.UNAUTHORIZED: _FORBIDDEN,
}

_ELSEWHERE = frozenset({Reason.QUOTA, Reason.CANCELLED, Reason.NEVER_FITS, Reason.UNAUTHORIZED})
"""Reasons that every replica shares."""


def status_of(reason: Reason, *, replicas: bool = False) -> Status:
    """The status of a refusal. With `replicas`, busy is a 503 where another replica may help."""
    status = STATUS[reason]
    if replicas and status is _BUSY and reason not in _ELSEWHERE:
        return _REPLICA
    return status


def scope_of(reason: Reason) -> str:
    """`replica` when another replica may help, else empty."""
    return "" if reason in _ELSEWHERE else "replica"


def refusal_headers(reason: Reason, retry_after_s: float | None, *, replicas: bool = False) -> dict[str, str]:
    """HTTP headers of a refusal; Retry-After in whole seconds, rounded up, beside the exact milliseconds."""
    headers = {REASON_HEADER: reason.name}
    if retry_after_s is not None and STATUS[reason].retry:
        milliseconds = max(1, round(retry_after_s * 1000))
        headers[RETRY_AFTER_HEADER] = str(-(-milliseconds // 1000))
        headers[RETRY_AFTER_MS_HEADER] = str(milliseconds)
    if replicas and scope_of(reason):
        headers[SCOPE_HEADER] = scope_of(reason)
    return headers
