"""Permits of no target have no controller to end them: each of these once stayed for ever."""

from __future__ import annotations

from typing import Any

from admission.runtime.host import TargetSpec
from admission.runtime.settings import SessionConfig
from admission.vocabulary import Reason, Verdict
from tests.admission.server.desk import Context, Desk, config, ticket, wire

HERE = Context()


def one_target(**more: Any) -> Desk:
    """A desk whose only target serves `llama`."""
    return Desk(targets=(TargetSpec(name="llama", models=("llama*",), config=config()),), **more)


async def acquire(desk: Desk, request_id: str = "", model: str = "other") -> wire.Decision:
    """One unary call."""
    asked = wire.AcquireRequest(ticket=ticket(request_id=request_id, model=model))
    return (await desk.leases.acquire(asked, HERE)).decision


def test_untracked_permits_end_a_grace_after_the_stream_broke() -> None:
    """A client that died holding one kept its session in memory for ever."""
    desk = one_target()
    client = desk.client()
    client.ask(1, 2, model="other")
    desk.sessions.detach(client.session)

    desk.tick(4.0)
    early = client.session.held
    desk.tick(2.0)

    assert (early, client.session.held) == (2, 0)
    assert desk.sessions.counters["untracked_expired"] == 2
    desk.tick(70.0)
    assert list(desk.sessions) == []


def test_untracked_permits_end_a_ttl_after_the_last_sign_of_life() -> None:
    """A stream that stays open and says nothing is as dead."""
    desk = one_target()
    client = desk.client()
    client.ask(1, model="other")

    desk.tick(29.0)
    client.send()
    desk.tick(29.0)
    kept = client.session.held
    desk.tick(2.0)

    assert (kept, client.session.held) == (1, 0)


def test_a_client_that_is_back_has_its_untracked_permits_again() -> None:
    """Forgetting them must not end requests that run: nothing says `unknown` about them."""
    desk = one_target()
    client = desk.client()
    client.ask(1, model="other")
    desk.sessions.detach(client.session)
    desk.tick(6.0)

    session = client.hello((wire.Held(no=1, ticket=ticket(1, model="other")),))

    assert (session.held, session.untracked) == (1, 1)
    assert list(client.welcome.welcome.unknown) == []
    client.finish(1)
    assert (session.held, session.untracked) == (0, 0)


def test_dead_clients_with_untracked_permits_lock_nobody_out() -> None:
    """Every place for a session was taken by clients that no longer exist."""
    desk = one_target(session=SessionConfig(max_sessions=2))
    for name in (1, 2):
        client = desk.client(name)
        client.ask(1, model="other")
        desk.sessions.detach(client.session)

    assert desk.client(3).session.attached


async def test_unary_untracked_leases_end_a_ttl_after_the_last_report() -> None:
    """They gathered for as long as the sidecar ran."""
    desk = one_target()
    kept, left = await acquire(desk), await acquire(desk)
    desk.tick(20.0)
    await desk.leases.report(wire.ReportRequest(leases=[kept.lease]), HERE)
    desk.tick(20.0)

    answer = await desk.leases.report(wire.ReportRequest(leases=[kept.lease, left.lease]), HERE)

    assert list(answer.lost) == [left.lease]
    assert len(desk.leases) == 1
    assert desk.leases.counters["untracked_expired"] == 1


async def test_a_drain_waits_for_what_is_counted_only() -> None:
    """It never ended while one untracked permit was out."""
    desk = one_target()
    desk.client().ask(1, model="other")
    await acquire(desk)

    assert (desk.sessions.tracked, desk.leases.tracked) == (0, 0)
    desk.client(2).ask(1, model="llama")
    await acquire(desk, model="llama")
    assert (desk.sessions.tracked, desk.leases.tracked) == (1, 1)


async def test_a_released_request_id_asks_afresh() -> None:
    """A constant request_id was admitted for ever after, without a permit and past every limit."""
    desk = one_target()
    first = await acquire(desk, "constant", "llama")
    again = await acquire(desk, "constant", "llama")
    await desk.leases.release(wire.ReleaseRequest(request_id="constant"), HERE)
    second = await acquire(desk, "constant", "llama")

    assert again.lease == first.lease != second.lease
    assert desk.in_flight == 1
    await desk.leases.release(wire.ReleaseRequest(lease=second.lease), HERE)
    desk.host.set_drain("llama", True)
    refused = await acquire(desk, "constant", "llama")
    assert (refused.verdict, refused.reason) == (Verdict.REJECTED, Reason.DRAINING)


async def test_an_expired_request_id_asks_afresh() -> None:
    """The permit is gone, however it went."""
    desk = one_target()
    await acquire(desk, "constant", "llama")
    desk.tick(31.0)

    assert desk.in_flight == 0
    assert (await acquire(desk, "constant", "llama")).verdict == Verdict.ADMITTED
    assert desk.in_flight == 1


async def test_a_permit_given_back_before_its_caller_heard_of_it_is_not_answered() -> None:
    """A hedged call: one released by request_id what the other was about to be told."""
    desk = one_target()
    await acquire(desk, "hedged", "llama")
    lease = desk.leases._by_key["ipv4:127.0.0.1", "hedged"]
    await desk.leases.release(wire.ReleaseRequest(request_id="hedged"), HERE)

    decision = wire.AcquireResponse().decision
    desk.leases._answer(lease, decision)

    assert (decision.verdict, decision.reason, decision.lease) == (Verdict.SHED, Reason.CANCELLED, b"")
