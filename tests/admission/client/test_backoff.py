"""Callers that come back as asked, spread out, and not too often."""

from __future__ import annotations

import pytest

from admission.client.backoff import Backoff, RetryBudget, asked_delay_s


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "2300", "retry-after": "3"}, 2.3),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_finer_header_wins(headers: dict[str, str], expected: float | None) -> None:
    """Bad values are as if absent."""
    assert asked_delay_s(headers) == pytest.approx(expected)


def test_nobody_comes_earlier_than_asked() -> None:
    """And not all at the same moment."""
    backoff = Backoff()
    dice = iter((0.0, 0.5, 1.0))
    delays = {backoff.delay_s(1, 429, {"retry-after": "2"}, dice.__next__) for _ in range(3)}
    assert min(delays) == 2.0  # type: ignore[type-var]
    assert len(delays) == 3


def test_without_a_header_the_bound_grows() -> None:
    """Doubling, up to the longest."""
    backoff = Backoff(first_s=1.0, longest_s=5.0, attempts=10)
    delays = [backoff.delay_s(attempt, 503, {}, lambda: 1.0) for attempt in range(1, 6)]
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("attempt", "status", "headers"),
    [
        (5, 429, {}),
        (1, 400, {}),
        (1, 200, {}),
        (1, 429, {"x-should-retry": "false"}),
        (1, 429, {"retry-after": "3000"}),
    ],
)
def test_some_do_not_come_back(attempt: int, status: int, headers: dict[str, str]) -> None:
    """Out of tries, not retryable, told not to, or asked for too long."""
    assert Backoff().delay_s(attempt, status, headers) is None


def test_retries_are_a_share_of_requests() -> None:
    """In a storm of refusals the load grows by the ratio, not by the number of tries."""
    budget = RetryBudget(ratio=0.2, reserve=10)
    retries = 0
    for _ in range(1000):
        budget.request()
        while budget.take():
            retries += 1
    assert 200 <= retries <= 210


def test_settings_check_themselves() -> None:
    """At construction, not at the first refusal."""
    with pytest.raises(ValueError, match="first_s"):
        Backoff(first_s=0)
    with pytest.raises(ValueError, match="ratio"):
        RetryBudget(ratio=-1)
