"""Who holds permits, and what becomes of them when a holder breaks, leaves or comes back."""

from __future__ import annotations

from typing import Any

from admission.core.leases import LeaseConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import (
    Admitted,
    Finished,
    Held,
    LeaseExpired,
    Queued,
    Shed,
)
from admission.vocabulary import Outcome, Reason
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

SMALL: dict[str, Any] = {"prompt_tokens": 100, "max_tokens": 100}


def test_leases_end_unless_renewed() -> None:
    """A client that died must not hold capacity."""
    bench = Bench(limit=FULL_AT_100K)
    ticket = bench.fill()
    bench.now += 20.0
    bench.core.renew("s", bench.now)
    assert some(LeaseExpired, bench.wait(29.0)) == []
    waiting = bench.ticket(owner="t", **SMALL)
    bench.submit(waiting)
    events = bench.wait(1.2)
    assert only(LeaseExpired, events).id == ticket.id
    assert only(Admitted, events).ticket is waiting
    assert only(Finished, events).completion.outcome is Outcome.LOST


def test_a_broken_stream_cancels_waiters_and_keeps_permits_for_the_grace() -> None:
    """Whoever comes back in time has lost nothing but its place."""
    bench = Bench(limit=FULL_AT_100K, lease=LeaseConfig(grace_s=5.0))
    bench.fill()
    bench.submit(**SMALL)
    assert only(Shed, bench.core.detach("s", bench.now)).reason is Reason.CANCELLED
    assert some(LeaseExpired, bench.wait(4.0)) == []
    bench.core.attach("s", bench.now)
    assert some(LeaseExpired, bench.wait(20.0)) == []
    bench.core.detach("s", bench.now)
    assert len(some(LeaseExpired, bench.wait(5.0))) == 1


def test_saying_goodbye_frees_everything_at_once() -> None:
    """Half-close."""
    bench = Bench()
    bench.admit()
    bench.admit(prompt_tokens=50)
    assert len(some(Finished, bench.core.leave("s", bench.now))) == 2
    assert bench.core.held_by("s") == []


def test_a_session_that_does_not_read_gets_no_grants() -> None:
    """Others are not held up by it."""
    bench = Bench(limit=FULL_AT_100K)
    full = bench.fill()
    bench.core.stalled("deaf", True, bench.now)
    bench.submit(owner="deaf", **SMALL)
    other = bench.ticket(owner="other", **SMALL)
    bench.submit(other)
    assert only(Admitted, bench.finish(full)).ticket is other
    only(Admitted, bench.core.stalled("deaf", False, bench.now))


def test_announced_permits_are_in_flight_again_whatever_the_limit() -> None:
    """They run on the engine already."""
    bench = Bench(limit=FixedConfig(limit_tokens=1))
    tickets = [bench.ticket(), bench.ticket(), bench.ticket()]
    held = [Held(tickets[0], 5.0), Held(tickets[1], 5.0, True, 40), Held(tickets[2], 5.0, local=True)]
    bench.core.reinstate(held, bench.now)
    bench.core.reinstate(held, bench.now)
    view = bench.core.view(bench.now)
    assert (view.in_flight, view.pending_prompt_tokens) == (3, 200)
    only(Queued, bench.submit())
    done = only(Finished, bench.finish(tickets[1], output_tokens=50))
    assert done.ttft_s is None
