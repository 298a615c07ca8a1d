"""Sessions over real sockets: breaks, goodbyes, replaced streams, garbage, dead clients."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from admission.core.leases import LeaseConfig
from admission.runtime.replay import replay
from admission.runtime.settings import ListenerConfig, ServerConfig, SessionConfig
from admission.vocabulary import Verdict
from tests.admission.server.desk import SLOTS, config, ticket, wire, words
from tests.integration.server.sidecar import (
    ANY_PORT,
    AdmissionServiceStub,
    asking,
    channel,
    eventually,
    hello,
    running,
)

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]


async def test_acquires_are_answered_and_permits_come_back(tmp_path: Path) -> None:
    """The round of every request."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        stream = await hello(stub)
        await stream.write(wire.SessionRequest(acquires=[ticket(no) for no in range(1, SLOTS + 2)], seen=1))
        answer = await stream.read()
        assert [each.verdict for each in answer.decisions] == [Verdict.ADMITTED] * SLOTS + [Verdict.QUEUED]

        await stream.write(
            wire.SessionRequest(
                finishes=[words.Finish(no=1, outcome=1)], seen=answer.seq, held_count=SLOTS - 1
            )
        )
        granted = await stream.read()

        assert [(each.no, each.verdict) for each in granted.decisions] == [(SLOTS + 1, Verdict.ADMITTED)]
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        await eventually(lambda: sidecar.in_flight == 0)


async def test_what_a_server_decided_replays(tmp_path: Path) -> None:
    """End to end: sockets, sessions, breaks, then the journal."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        stream = await hello(stub)
        await stream.write(wire.SessionRequest(acquires=[ticket(no) for no in range(1, 9)], seen=1))
        await stream.read()
        stream.cancel()
        await eventually(lambda: sidecar.queued == 0)
    report = replay(tmp_path / "journal")

    assert report.same
    assert report.inputs >= 10


async def test_a_half_close_frees_at_once(tmp_path: Path) -> None:
    """No grace for a client that said goodbye."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        stream = await hello(stub)
        await stream.write(wire.SessionRequest(acquires=[ticket(1)], seen=1))
        await stream.read()

        await stream.done_writing()

        await eventually(lambda: sidecar.in_flight == 0, 1.0)


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_break_keeps_permits_and_drops_waiters(tmp_path: Path, how: str) -> None:
    """It looks like a goodbye to gRPC's reader at first: the two must not be mixed up."""
    async with running(tmp_path) as sidecar:
        opened = channel(sidecar.address)

        stream = await hello(AdmissionServiceStub(opened))
        await stream.write(wire.SessionRequest(acquires=[ticket(no) for no in range(1, SLOTS + 3)], seen=1))
        await stream.read()
        if how == "cancel":
            stream.cancel()
        await opened.close()

        await eventually(lambda: sidecar.queued == 0)
        assert sidecar.in_flight == SLOTS
        assert sidecar.server.sessions.counters["streams_broken"] == 1


HOLD_100 = """
import asyncio, os, sys, grpc
from admission.v1 import admission_service_pb2 as wire, types_pb2 as words
from admission.v1.admission_service_pb2_grpc import AdmissionServiceStub

async def main():
    stream = AdmissionServiceStub(grpc.aio.insecure_channel(sys.argv[1])).Session()
    await stream.write(wire.SessionRequest(hello=wire.Hello(session=os.urandom(16), attach=1)))
    await stream.read()
    tickets = [words.Ticket(no=no, priority_class="batch", prompt_tokens=1, max_tokens=1) for no in range(1, 101)]
    await stream.write(wire.SessionRequest(acquires=tickets, seen=1))
    answer = await stream.read()
    print(len(answer.decisions), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_client_killed_with_100_permits_gives_them_back_after_the_grace(tmp_path: Path) -> None:
    """Nobody releases for a dead process."""
    core = config(lease=LeaseConfig(ttl_s=30.0, grace_s=0.5))
    async with running(tmp_path, core=core) as sidecar:
        child = subprocess.Popen(  # noqa: ASYNC220 - it must be killed at once
            [sys.executable, "-c", HOLD_100, sidecar.address],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            assert child.stdout is not None
            await asyncio.to_thread(child.stdout.readline)
            assert sidecar.in_flight == 100
            child.send_signal(signal.SIGKILL)
            await eventually(lambda: sidecar.server.sessions.counters["streams_broken"] == 1)
            assert sidecar.in_flight == 100

            await eventually(lambda: sidecar.in_flight == 0, 3.0)
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


async def test_a_newer_stream_replaces_the_older(tmp_path: Path) -> None:
    """The client reconnects before we see the break."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        identity = os.urandom(16)
        old = await hello(stub, identity, 1)
        await old.write(wire.SessionRequest(acquires=[ticket(1)], seen=1))
        await old.read()

        new = await hello(stub, identity, 2, held_count=0)

        assert await old.code() is grpc.StatusCode.ABORTED
        assert sidecar.in_flight == 1
        new.cancel()


async def test_an_older_attach_is_aborted(tmp_path: Path) -> None:
    """It was slow in the network: its successor serves already."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        identity = os.urandom(16)
        new = await hello(stub, identity, 5)
        late = stub.Session()
        await late.write(wire.SessionRequest(hello=wire.Hello(session=identity, attach=4)))

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await late.read()

        assert refused.value.code() is grpc.StatusCode.ABORTED
        await new.write(wire.SessionRequest(acquires=[ticket(1)], seen=1))
        assert (await new.read()).decisions[0].verdict == Verdict.ADMITTED
        new.cancel()


async def test_a_hello_of_all_that_a_session_may_hold_is_taken(tmp_path: Path) -> None:
    """Over 4 MiB, some 19,000 permits, a client could never attach again: it tried for ever."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        held = [wire.Held(no=no, ticket=ticket(no, tenant="x" * 2**20)) for no in range(1, 13)]
        stream = stub.Session()
        said = wire.Hello(session=os.urandom(16), attach=1, held=held)
        await stream.write(wire.SessionRequest(hello=said, held_count=12))

        assert (await stream.read()).HasField("welcome")
        assert sidecar.in_flight == 12
        stream.cancel()


async def test_garbage_ends_its_own_stream_only(tmp_path: Path) -> None:
    """Corrupt protobuf is the sender's mistake."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub, channel(sidecar.address) as raw:
        good = await hello(stub)
        for first in (b"\xff\xff\xff", None):
            bad: Any = raw.stream_stream("/admission.v1.AdmissionService/Session")()
            if first is None:
                said = wire.SessionRequest(hello=wire.Hello(session=os.urandom(16), attach=1))
                await bad.write(said.SerializeToString())
                await bad.read()
            await bad.write(b"\xff\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await bad.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        await good.write(wire.SessionRequest(acquires=[ticket(1)], seen=1))
        assert (await good.read()).decisions[0].verdict == Verdict.ADMITTED
        good.cancel()


@pytest.mark.parametrize(
    "first", [wire.SessionRequest(), wire.SessionRequest(hello=wire.Hello(session=b"short", attach=1))]
)
async def test_a_stream_without_a_proper_hello_is_refused(tmp_path: Path, first: Any) -> None:
    """Nobody would own its permits."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        stream = stub.Session()
        await stream.write(first)

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()

        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_that_does_not_read_gets_no_grants_and_harms_nobody(tmp_path: Path) -> None:
    """Its answers gather up to a bound; others are served."""
    session = SessionConfig(unseen_s=0.3, write_blocked_s=0.3, max_outbox=100)
    async with (
        running(tmp_path, ServerConfig(listeners=ANY_PORT, session=session)) as sidecar,
        asking(sidecar.address) as stub,
        asking(sidecar.address) as other,
    ):
        deaf = await hello(stub)
        await deaf.write(wire.SessionRequest(acquires=[ticket(1)]))
        await eventually(lambda: sidecar.server.sessions.counters["stalls"] == 1)

        await deaf.write(wire.SessionRequest(acquires=[ticket(2)], held_count=0))
        await asyncio.sleep(0.1)
        assert sidecar.in_flight == 1
        good = await hello(other)
        await good.write(wire.SessionRequest(acquires=[ticket(1)], seen=1))
        assert (await good.read()).decisions[0].verdict == Verdict.ADMITTED
        deaf.cancel()
        good.cancel()


async def test_a_unix_socket_serves_clients_with_its_permissions(tmp_path: Path) -> None:
    """The local hop needs no port."""
    address = f"unix:{tmp_path}/clients.sock"
    listeners = (ListenerConfig(address=address, socket_mode=0o660),)
    async with running(tmp_path, ServerConfig(listeners=listeners)) as sidecar:
        assert (tmp_path / "clients.sock").stat().st_mode & 0o777 == 0o660
        async with asking(sidecar.address) as stub:
            stream = await hello(stub)
            stream.cancel()
    assert not (tmp_path / "clients.sock").exists()
