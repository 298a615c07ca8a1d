"""How a refusal reads over HTTP: status, headers and body in the caller's own error shape."""

from __future__ import annotations

import json
import math

from admission.client.calls import Answer
from admission.vocabulary import Reason, Verdict

_STATUS = {
    Reason.BREAKER: 503,
    Reason.DRAINING: 503,
    Reason.OUTAGE: 503,
    Reason.CANCELLED: 499,
    Reason.NEVER_FITS: 400,
    Reason.UNAUTHORIZED: 403,
}
"""All others are 429. The sidecar's own table (server/errors.py) says the same: a test holds them together."""
_PERMANENT = frozenset({Reason.NEVER_FITS, Reason.UNAUTHORIZED, Reason.CANCELLED})
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    499: "cancelled_error",
    503: "service_unavailable_error",
}
_WORDS = {
    Reason.QUEUE_FULL: "The queue in front of the model is full",
    Reason.QUEUE_TOKENS: "Too many prompt tokens wait in front of the model",
    Reason.DEADLINE: "The model was not free within the time this request may wait",
    Reason.TTFT_FORECAST: "The first token would come later than promised",
    Reason.QUOTA: "The quota is used up",
    Reason.BREAKER: "The model server has failed too often and gets a pause",
    Reason.WATERMARK_VRAM: "The model server is short of GPU memory",
    Reason.WATERMARK_KV: "The model server is short of KV cache",
    Reason.DRAINING: "This replica is being taken out of service",
    Reason.OUTAGE: "The model server is not available",
    Reason.DEGRADED: "The service is degraded and does not take this kind of request now",
    Reason.DISPLACED: "More urgent requests took this request's place",
    Reason.CANCELLED: "The request was taken back",
    Reason.NEVER_FITS: "The request is larger than the model server can ever hold",
    Reason.UNAUTHORIZED: "The caller is not allowed to do this",
}


def status_of(answer: Answer, *, has_credentials: bool) -> int:
    """The HTTP status of a refusal."""
    if answer.reason is Reason.UNAUTHORIZED and not has_credentials:
        return 401
    return _STATUS.get(answer.reason, 429) if answer.reason is not None else 429


def headers_of(answer: Answer, status: int) -> list[tuple[bytes, bytes]]:
    """Retry-After (whole seconds, at least 1), retry-after-ms, and the x-tidegate- headers."""
    headers = [("content-type", "application/json")]
    if answer.reason is not None:
        headers.append(("x-tidegate-reason", answer.reason.name))
    if answer.reason in _PERMANENT:
        headers.append(("x-should-retry", "false"))
    else:
        headers.append(("retry-after", str(retry_after_s(answer))))
        headers.append(("retry-after-ms", str(retry_after_ms(answer))))
    if status == 503:
        headers.append(("x-tidegate-scope", "replica"))
    if answer.position:
        headers.append(("x-tidegate-position", str(answer.position)))
    if answer.expected_wait_s > 0:
        headers.append(("x-tidegate-expected-wait-ms", str(math.ceil(answer.expected_wait_s * 1000))))
    return [(name.encode(), value.encode()) for name, value in headers]


def body_of(answer: Answer, status: int, path: str) -> bytes:
    """The error in OpenAI's shape, or in Anthropic's on its route."""
    if "/v1/messages" in path:
        kind = "overloaded_error" if status == 503 else _OPENAI_TYPES[status]
        return json.dumps({"type": "error", "error": {"type": kind, "message": message_of(answer)}}).encode()
    code = answer.reason.name.lower() if answer.reason is not None else "admission_rejected"
    error = {"message": message_of(answer), "type": _OPENAI_TYPES[status], "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def message_of(answer: Answer) -> str:
    """One or two sentences for a person: what, measured against what, and when to come back."""
    words = _WORDS.get(answer.reason, "Not admitted now") if answer.reason is not None else "Not admitted now"
    why = answer.detail
    if not why and answer.threshold:
        why = f"{answer.measured:g} against {answer.threshold:g} {answer.unit}".rstrip()
    if answer.verdict is Verdict.SHED and answer.waited_s > 0:
        why = f"{why}; waited {answer.waited_s:.1f} s" if why else f"waited {answer.waited_s:.1f} s"
    text = f"{words} ({why})." if why else f"{words}."
    return text if answer.reason in _PERMANENT else f"{text} Please retry in {retry_after_s(answer)} s."


def retry_after_s(answer: Answer) -> int:
    """Whole seconds until coming back makes sense, at least 1."""
    return max(1, math.ceil(answer.retry_after_s))


def retry_after_ms(answer: Answer) -> int:
    """The same in milliseconds; 1,000 when the sidecar did not say."""
    return max(1, math.ceil(answer.retry_after_s * 1000)) if answer.retry_after_s > 0 else 1000
