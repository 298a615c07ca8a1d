"""Every reason has one status, and says whether coming back can help."""

from __future__ import annotations

import grpc
import pytest

from admission.server.errors import refusal_headers, status_of
from admission.vocabulary import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_status(reason: Reason) -> None:
    """A new reason without one would be a 500."""
    status = status_of(reason)

    assert 400 <= status.http < 600
    assert isinstance(status.grpc, grpc.StatusCode)


@pytest.mark.parametrize(
    ("reason", "http", "code"),
    [
        (Reason.QUEUE_FULL, 429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (Reason.WATERMARK_KV, 429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (Reason.OUTAGE, 503, grpc.StatusCode.UNAVAILABLE),
        (Reason.DRAINING, 503, grpc.StatusCode.UNAVAILABLE),
        (Reason.NEVER_FITS, 400, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_busy_unavailable_and_impossible_differ(reason: Reason, http: int, code: grpc.StatusCode) -> None:
    """Clients and proxies treat them differently."""
    status = status_of(reason)

    assert (status.http, status.grpc) == (http, code)


def test_what_can_never_fit_has_no_retry_after() -> None:
    """Even if a time is known."""
    assert "retry-after" not in refusal_headers(Reason.NEVER_FITS, 5.0)


def test_retry_after_is_rounded_up_and_exact_beside() -> None:
    """Rounded down, everyone would come too early."""
    headers = refusal_headers(Reason.QUEUE_FULL, 1.2)

    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1200")
    assert headers["x-tidegate-reason"] == "QUEUE_FULL"


def test_with_replicas_busy_is_503_where_another_may_help() -> None:
    """Gateways retry a 503 elsewhere; a quota is the same everywhere."""
    assert status_of(Reason.QUEUE_FULL, replicas=True).http == 503
    assert refusal_headers(Reason.QUEUE_FULL, 1.0, replicas=True)["x-tidegate-scope"] == "replica"
    assert status_of(Reason.QUOTA, replicas=True).http == 429
    assert "x-tidegate-scope" not in refusal_headers(Reason.QUOTA, 1.0, replicas=True)
