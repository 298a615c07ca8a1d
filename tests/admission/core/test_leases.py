"""Permits live as long as their session gives signs of life."""

from __future__ import annotations

import pytest

from admission.core.leases import LeaseConfig, Leases
from admission.core.model import TicketId

A1, A2, B1 = TicketId("a", 1), TicketId("a", 2), TicketId("b", 1)


def test_an_owner_that_falls_silent_loses_all_it_holds() -> None:
    """A client that died must not hold capacity for ever."""
    leases = Leases(LeaseConfig())
    leases.grant(A1, 0.0)
    leases.grant(A2, 10.0)
    leases.grant(B1, 20.0)

    assert leases.expired(39.9) == []
    assert leases.expired(40.0) == [A1, A2]


def test_one_sign_of_life_renews_everything() -> None:
    """Renewing costs one message, however many permits are held."""
    leases = Leases(LeaseConfig())
    leases.grant(A1, 0.0)
    leases.renew("a", 29.0)

    assert leases.expired(58.0) == []
    assert leases.next_at() == 59.0
    assert leases.expired(59.0) == [A1]


def test_a_broken_stream_has_the_grace() -> None:
    """Five seconds to come back; whoever comes back has the whole time again."""
    leases = Leases(LeaseConfig())
    leases.grant(A1, 0.0)
    leases.detach("a", 1.0)
    leases.grant(A2, 2.0)
    assert leases.expired(6.0) == [A1, A2]

    leases.renew("a", 6.0)
    assert leases.expired(7.0) == []


def test_coming_and_going_keeps_one_entry() -> None:
    """A session that takes and gives back a permit ten thousand times must not grow the heap."""
    leases = Leases(LeaseConfig())
    for no in range(10_000):
        leases.grant(TicketId("a", no), no * 1e-4)
        leases.end(TicketId("a", no))

    assert len(leases._heap) == 1
    assert leases.expired(31.0) == []
    assert leases.next_at() is None


def test_ends_of_unknown_owners_are_ignored() -> None:
    """Networks repeat themselves."""
    leases = Leases(LeaseConfig())
    leases.end(A1)
    leases.renew("a", 0.0)
    leases.detach("a", 0.0)
    assert leases.held_by("a") == []


def test_grace_may_not_exceed_the_ttl() -> None:
    """A broken session must not live longer than a whole one."""
    with pytest.raises(ValueError, match="grace_s"):
        LeaseConfig(ttl_s=1.0, grace_s=2.0)
