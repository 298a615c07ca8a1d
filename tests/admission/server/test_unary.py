"""Unary calls: a decision always, one permit per request id, a handle that cannot leak."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from admission.runtime.processor import Usage
from admission.runtime.settings import UnaryConfig
from admission.vocabulary import Reason, Verdict
from tests.admission.server.desk import SLOTS, Context, Desk, ticket, wire, words

ADMITTED, QUEUED, SHED = Verdict.ADMITTED, Verdict.QUEUED, Verdict.SHED
HERE = Context()


async def acquire(desk: Desk, request_id: str = "", context: Context = HERE) -> Any:
    """One call."""
    asked = wire.AcquireRequest(ticket=ticket(request_id=request_id))
    return (await desk.leases.acquire(asked, context)).decision


async def fill(desk: Desk) -> list[Any]:
    """Takes all room."""
    return [await acquire(desk) for _ in range(SLOTS)]


async def release(desk: Desk, context: Context = HERE, **named: object) -> bool:
    """One call."""
    return (await desk.leases.release(wire.ReleaseRequest(**named), context)).known


def quick() -> Desk:
    """Acquire gives up holding at once."""
    return Desk(unary=UnaryConfig(max_hold_s=0.001))


async def until(desk: Desk, queued: int) -> None:
    """Let tasks run until that many tickets wait."""
    for _ in range(100):
        if desk.queued == queued:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{desk.queued} wait, not {queued}")


async def test_an_admission_carries_a_lease() -> None:
    """The lease is the permit's name for callers without a session."""
    desk = Desk()

    decision = await acquire(desk)

    assert decision.verdict == ADMITTED
    assert len(decision.lease) == 16
    assert decision.lease_ttl.seconds == 30
    assert desk.in_flight == 1


async def test_the_same_request_id_gets_the_same_permit() -> None:
    """A retry of the call is not a second request."""
    desk = Desk()

    first, again = await acquire(desk, "a"), await acquire(desk, "a")

    assert again.lease == first.lease
    assert desk.in_flight == 1


async def test_request_ids_are_scoped_by_peer() -> None:
    """Another caller's ids must not give away its permit."""
    desk = Desk()

    ours = await acquire(desk, "a")
    theirs = await acquire(desk, "a", Context("ipv4:10.0.0.9:1"))

    assert ours.lease != theirs.lease


async def test_a_new_connection_of_the_same_peer_is_the_same_peer() -> None:
    """The port changes with every connection; a caller that reconnects must find its place."""
    desk = Desk()

    first = await acquire(desk, "a", Context("ipv4:10.0.0.9:1"))
    again = await acquire(desk, "a", Context("ipv4:10.0.0.9:2"))

    assert again.lease == first.lease


async def test_a_release_is_idempotent_by_lease_and_by_request_id() -> None:
    """Whoever is not sure says it twice."""
    desk = Desk()
    decision = await acquire(desk, "a")

    assert await release(desk, lease=decision.lease)
    assert not await release(desk, lease=decision.lease)
    assert not await release(desk, request_id="a")
    assert not await release(desk, lease=b"never held")
    assert desk.in_flight == 0
    assert desk.leases.counters["ignored_releases"] == 3


async def test_a_full_target_answers_queued_after_max_hold() -> None:
    """A proxy in front has a timeout of its own: it must hear something before that."""
    desk = quick()
    await fill(desk)

    decision = await acquire(desk, "late")

    assert decision.verdict == QUEUED
    assert decision.position == 1
    assert not decision.lease


async def test_a_sidecar_short_of_time_holds_answers_back_for_half_as_long() -> None:
    """Calls wait inside gRPC by then: both together must stay below what callers wait."""
    desk = Desk(unary=UnaryConfig(max_hold_s=0.2))
    at_ease = desk.leases.hold_s
    desk.lag.note(1.0, 0.06, Usage(0.0, 0.0))
    late = desk.leases.hold_s
    desk.lag.note(1.1, 0.0, Usage(0.0, 0.0))
    desk.lag.busy = True

    assert (at_ease, late, desk.leases.hold_s) == (0.2, 0.1, 0.1)


async def test_the_same_request_id_rejoins_its_place() -> None:
    """Polling must not cost a place."""
    desk = quick()
    held = await fill(desk)
    await acquire(desk, "first")
    await acquire(desk, "second")
    await acquire(desk, "first")

    await release(desk, lease=held[0].lease)

    assert (await acquire(desk, "first")).verdict == ADMITTED
    assert (await acquire(desk, "second")).verdict == QUEUED


async def test_a_waiting_call_returns_as_soon_as_there_is_room() -> None:
    """Held calls are answered by the event, not by the end of the hold."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    held = await fill(desk)
    waiting = asyncio.create_task(acquire(desk, "late"))
    await until(desk, 1)

    await release(desk, lease=held[0].lease)

    assert (await waiting).verdict == ADMITTED


async def test_a_call_cancelled_while_it_waits_leaves_the_queue() -> None:
    """The caller is gone: its place is somebody else's."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    await fill(desk)
    waiting = asyncio.create_task(acquire(desk, "late"))
    await until(desk, 1)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert desk.queued == 0
    assert desk.leases.counters["abandoned"] == 1


async def test_a_grant_that_races_a_cancel_goes_back() -> None:
    """Admitted and cancelled in one turn of the loop: nobody will ever release it."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    held = await fill(desk)
    waiting = asyncio.create_task(acquire(desk, "late"))
    await until(desk, 1)

    await release(desk, lease=held[0].lease)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert desk.in_flight == SLOTS - 1


async def test_a_call_cancelled_beside_another_with_the_same_id_keeps_the_place() -> None:
    """A hedged call: one of the two gives up, the other still waits."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    held = await fill(desk)
    one, two = (asyncio.create_task(acquire(desk, "late")) for _ in range(2))
    await until(desk, 1)
    await asyncio.sleep(0)

    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    await release(desk, lease=held[0].lease)

    assert (await two).verdict == ADMITTED


async def test_a_caller_that_comes_back_keeps_its_place() -> None:
    """A caller with a deadline shorter than the queue polls with short calls; each is cancelled."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    held = await fill(desk)
    first = asyncio.create_task(acquire(desk, "first"))
    await until(desk, 1)
    desk.now += 1.0
    second = asyncio.create_task(acquire(desk, "second"))
    await until(desk, 2)
    first.cancel()
    await until(desk, 1)
    again = asyncio.create_task(acquire(desk, "first"))
    await until(desk, 2)

    await release(desk, lease=held[0].lease)

    assert (await again).verdict == ADMITTED
    assert not second.done()
    second.cancel()


async def test_a_waiter_nobody_asks_about_is_cancelled() -> None:
    """Queued and never polled again: its grant would hold room for a lease's time."""
    desk = quick()
    await fill(desk)
    await acquire(desk, "gone")

    desk.tick(2.1)

    assert desk.queued == 0


async def test_a_grant_nobody_comes_for_is_taken_back() -> None:
    """As above, when the queue moved in the meantime."""
    desk = quick()
    held = await fill(desk)
    await acquire(desk, "gone")
    await release(desk, lease=held[0].lease)
    assert desk.in_flight == SLOTS

    desk.tick(2.1)

    assert desk.in_flight == SLOTS - 1


async def test_a_report_renews_and_names_lost_leases() -> None:
    """The only sign of life of a unary caller."""
    desk = Desk()
    kept, left = await acquire(desk), await acquire(desk)
    desk.tick(20.0)
    await desk.leases.report(wire.ReportRequest(leases=[kept.lease]), HERE)
    desk.tick(20.0)

    answer = await desk.leases.report(wire.ReportRequest(leases=[kept.lease, left.lease, b"x"]), HERE)

    assert list(answer.lost) == [left.lease, b"x"]
    assert desk.in_flight == 1


async def test_a_report_tells_first_tokens_and_progress_by_index() -> None:
    """`no` is the place in the list of leases; one that is out of it is ignored."""
    desk = Desk()
    decision = await acquire(desk)

    await desk.leases.report(
        wire.ReportRequest(
            leases=[decision.lease],
            first_tokens=words.FirstTokens(no=[0, 9], ttft_ms=[10, 10]),
            progress=words.Progress(no=[0, 9], chunks=[4, 4], age_ms=[0, 0]),
        ),
        HERE,
    )

    assert desk.host.view("default").pending_prompt_tokens == 0


async def test_a_drain_answers_those_who_wait() -> None:
    """They would wait for a process that is about to end."""
    desk = Desk(unary=UnaryConfig(max_hold_s=60.0))
    await fill(desk)
    waiting = asyncio.create_task(acquire(desk, "late"))
    await until(desk, 1)

    desk.host.set_drain("default", True)

    decision = await waiting
    assert (decision.verdict, decision.reason) == (SHED, Reason.DRAINING)


async def test_memory_of_ended_calls_is_bounded() -> None:
    """Request ids of the whole day must not gather."""
    desk = Desk(unary=UnaryConfig(memo_entries=10))
    for number in range(50):
        decision = await acquire(desk, str(number))
        await release(desk, lease=decision.lease)

    assert len(desk.leases._leases) == 10
    assert len(desk.leases._by_key) == 10
    assert len(desk.leases) == 0


async def test_an_overloaded_sidecar_refuses_first() -> None:
    """As on a session."""
    desk = Desk()
    desk.lag.behind = True

    decision = await acquire(desk)

    assert (decision.verdict, decision.reason) == (Verdict.REJECTED, Reason.DEGRADED)
    assert desk.in_flight == 0


async def test_decision_times_are_noted() -> None:
    """The sidecar must know how long it takes itself."""
    desk = Desk()

    await acquire(desk)

    assert desk.waits == [0.0]
