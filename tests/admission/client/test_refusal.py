"""Refusals over HTTP are the same whether the client or the sidecar words them."""

from __future__ import annotations

import json

import pytest

from admission.client.calls import Answer
from admission.client.refusal import body_of, headers_of, status_of
from admission.server.errors import STATUS
from admission.vocabulary import Reason, Verdict


@pytest.mark.parametrize("reason", Reason)
def test_client_and_sidecar_agree(reason: Reason) -> None:
    """The client may not import the sidecar, so there are two tables; a caller must not see which one spoke."""
    answer, theirs = Answer(Verdict.REJECTED, reason), STATUS[reason]
    status = status_of(answer, has_credentials=True)
    headers = dict(headers_of(answer, status))
    assert status == theirs.http
    assert (b"retry-after" in headers) is theirs.retry
    assert (headers.get(b"x-should-retry") == b"false") is not theirs.retry
    assert json.loads(body_of(answer, status, "/v1/chat/completions"))["error"]["type"] == theirs.kind


@pytest.mark.parametrize("reason", Reason)
def test_every_refusal_reads_in_both_shapes(reason: Reason) -> None:
    """Also those of a status that the shape's own error types do not name."""
    answer = Answer(Verdict.SHED, reason)
    for credentials in (True, False):
        status = status_of(answer, has_credentials=credentials)
        assert json.loads(body_of(answer, status, "/v1/messages"))["error"]["message"]


def test_without_credentials_the_status_asks_for_them() -> None:
    """401 makes clients send them; 403 says that they do not help."""
    answer = Answer(Verdict.REJECTED, Reason.UNAUTHORIZED)
    assert [status_of(answer, has_credentials=has) for has in (False, True)] == [401, 403]
