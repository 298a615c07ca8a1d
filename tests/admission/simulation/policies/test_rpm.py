"""Requests per minute and client."""

from __future__ import annotations

import pytest

from admission.core.model import Admitted, Flow, Rejected, Ticket, TicketId
from admission.simulation.policies import Policy, PolicySpec, build
from admission.simulation.policies.rpm import RpmConfig
from admission.vocabulary import Reason


def ask(policy: Policy, no: int, client: str, now: float) -> bool:
    """Was it let in? Who was not hears when to come back."""
    (event,) = policy.submit(Ticket(TicketId("s", no), flow=Flow(client), prompt_tokens=10), now)
    if isinstance(event, Rejected):
        assert event.reason is Reason.QUOTA
        assert event.retry_after_s is not None
        assert 0 <= event.retry_after_s <= 60
        return False
    return isinstance(event, Admitted)


def test_each_client_has_so_many_in_any_minute() -> None:
    """A sliding minute, in which refused ones do not count, and one client does not use up another's."""
    policy = build(PolicySpec("rpm", RpmConfig(per_minute=2)), seed=0, now=0.0)
    asked = [
        (0.0, True),
        (30.0, True),
        (31.0, False),
        (60.0, False),
        (60.1, True),
        (89.0, False),
        (90.5, True),
    ]
    assert [ask(policy, no, "a", at) for no, (at, _) in enumerate(asked)] == [let_in for _, let_in in asked]
    assert ask(policy, 99, "b", 91.0)


def test_a_limit_of_nothing_is_refused() -> None:
    """One clear line."""
    with pytest.raises(ValueError, match="per_minute must be at least 1"):
        RpmConfig(per_minute=0)
