"""Served share by size: who pays for goodput."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.simulation.sizes import Sizes


def test_quarters_hold_equally_many_requests_the_smallest_first() -> None:
    """A budget that serves only short requests shows it here."""
    sizes = Sizes()
    for no in range(400):
        sizes.add(100 * 2 ** (no // 100), served=no < 200, good=no < 100)
    shares = sizes.shares()
    assert shares.served == (1.0, 1.0, 0.0, 0.0)
    assert shares.good == (1.0, 0.0, 0.0, 0.0)


def test_equal_sizes_share_alike() -> None:
    """Sizes of one bucket cannot be told apart, so no quarter may look favoured."""
    sizes = Sizes()
    for no in range(10):
        sizes.add(500, served=no < 3, good=False)
    assert sizes.shares().served == pytest.approx((0.3,) * 4)


@given(st.lists(st.tuples(st.integers(1, 200_000), st.booleans()), min_size=1))
def test_the_mean_of_the_quarters_is_the_share_of_all(requests: list[tuple[int, bool]]) -> None:
    """Nobody is lost or counted twice at a border."""
    sizes = Sizes()
    for tokens, served in requests:
        sizes.add(tokens, served=served, good=False)
    quarters = [share for share in sizes.shares().served if share is not None]
    assert sum(quarters) / 4 == pytest.approx(sum(served for _, served in requests) / len(requests))
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in quarters)


def test_nothing_offered_has_no_share() -> None:
    """Zero would be a claim."""
    assert Sizes().shares().served == (None,) * 4
