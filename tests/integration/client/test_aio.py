"""The asyncio shell over real gRPC on loopback: absent, hung, restarted, secured."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest
import trustme

from admission.client.aio import AsyncClient
from admission.client.errors import Refused
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome, Reason
from tests.admission.client.sidecar import MemoryCarrier, MemorySidecar, queue, refuse
from tests.integration.client.sidecar import ScriptedSidecar, Stage, until

pytestmark = pytest.mark.integration


async def test_permits_come_and_go_over_one_stream(stage: Stage) -> None:
    """Two hundred at once, coalesced into few messages."""
    sidecar = await stage.sidecar()
    client = stage.client(sidecar.address)

    async def one() -> None:
        permit = await client.permit(Ticket(model="m"))
        permit.first_token()
        permit.chunks(3)
        permit.finish()

    await asyncio.gather(*[one() for _ in range(200)])
    await until(lambda: len(sidecar.books.finishes) == 200)
    assert sidecar.books.held == set()
    assert client.stats()["admitted.sidecar"] == 200
    assert len(sidecar.books.hellos) == 1


async def test_a_unix_socket_serves_as_well(stage: Stage, tmp_path: Path) -> None:
    """The local hop without TCP."""
    path = f"unix:{tmp_path}/s.sock"
    await stage.sidecar(address=path)
    client = stage.client(path)
    permit = await client.permit(Ticket())
    assert not permit.answer.local
    permit.finish()


async def test_refusals_raise_with_the_answer(stage: Stage) -> None:
    """For callers that prefer exceptions."""
    sidecar = await stage.sidecar(refuse(Reason.QUOTA, detail="10 requests/s"))
    client = stage.client(sidecar.address)
    with pytest.raises(Refused, match="QUOTA, 10 requests/s"):
        await client.permit(Ticket())


async def test_no_sidecar_costs_a_refused_connection_once(stage: Stage) -> None:
    """Requests run at once, within the local limit."""
    client = stage.client("127.0.0.1:9", local_limit=2)
    permits = [await client.acquire(Ticket()) for _ in range(3)]
    assert [permit.admitted for permit in permits] == [True, True, False]
    began = time.perf_counter()
    for _ in range(100):
        (await client.acquire(Ticket())).finish()
    # Far under one decision timeout each: nobody waits for a sidecar that is not there.
    assert time.perf_counter() - began < 100 * 0.25 / 5


async def test_a_hung_sidecar_costs_the_timeout_and_then_nothing(stage: Stage) -> None:
    """250 ms by default; after three the client stops asking."""
    sidecar = await stage.sidecar()
    client = stage.client(sidecar.address, decision_timeout_ms=100)
    (await client.permit(Ticket())).finish()
    sidecar.hang = True
    waits = []
    for _ in range(5):
        began = time.perf_counter()
        permit = await client.acquire(Ticket())
        waits.append(time.perf_counter() - began)
        assert permit.admitted
        permit.finish()
    assert min(waits[:3]) > 0.09
    assert max(waits[3:]) < min(waits[:3])


async def test_a_loop_that_stood_still_reads_before_it_judges() -> None:
    """Nothing was missed: the answer lies unread, or the question unwritten, because we were stopped ourselves."""
    carrier = MemoryCarrier(MemorySidecar())
    client = AsyncClient(ClientSettings(), carrier=carrier)
    (await client.acquire(Ticket())).finish()
    permit = client.ask(Ticket())
    time.sleep(0.5)  # noqa: ASYNC251 - the loop shall stand still

    answer = await permit.decided()

    assert not answer.local
    assert "missed" not in client.stats()
    permit.finish()
    await client.close()


async def test_a_restarted_sidecar_learns_what_is_held(stage: Stage) -> None:
    """Streams go on while it restarts; their permits are announced to the new one."""
    sidecar = await stage.sidecar()
    client = stage.client(sidecar.address)
    permits = [await client.permit(Ticket(model="m")) for _ in range(3)]
    await sidecar.stop()
    await until(lambda: client.stats()["link"] != "attached")
    permits[0].finish()
    alone = await client.acquire(Ticket())
    assert alone.answer.local
    successor = await stage.sidecar(address=sidecar.address, boot=b"boot-2")
    await until(lambda: client.stats()["link"] == "attached")
    assert len(successor.books.held) == 3
    assert sorted(each.local for each in successor.books.hellos[0].held) == [False, False, False, True]
    for permit in [*permits, alone]:
        permit.finish()
    await until(lambda: not successor.books.held)
    assert client.stats()["restarts_seen"] == 1


async def test_waiters_survive_a_restart_of_the_sidecar(stage: Stage) -> None:
    """They are asked for again at the new one, or decided alone: none hangs."""
    sidecar = await stage.sidecar(queue)
    client = stage.client(sidecar.address, decision_timeout_ms=2000)
    waiting = [asyncio.create_task(client.acquire(Ticket())) for _ in range(5)]
    await until(lambda: len(sidecar.books.waiting) == 5)
    await sidecar.stop()
    successor = await stage.sidecar(address=sidecar.address)
    permits = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert all(permit.admitted for permit in permits)
    for permit in permits:
        permit.finish()
    await until(lambda: not successor.books.held)


async def test_heartbeats_keep_long_streams_alive(stage: Stage) -> None:
    """Each carries the count, so the sidecar renews without a word from the host."""
    sidecar = await stage.sidecar()
    client = stage.client(sidecar.address)
    permit = await client.permit(Ticket())
    before = sidecar.books.applied
    await asyncio.sleep(1.3)
    assert 2 <= sidecar.books.applied - before <= 5
    assert sidecar.books.mismatches == 0
    permit.finish()


async def test_the_off_file_frees_waiters_within_a_second(stage: Stage, tmp_path: Path) -> None:
    """Also those that the sidecar has queued."""
    sidecar = await stage.sidecar(queue)
    file = tmp_path / "off"
    client = stage.client(sidecar.address, off_file=str(file))
    waiting = asyncio.create_task(client.acquire(Ticket()))
    await until(lambda: sidecar.books.waiting)
    file.touch()
    permit = await asyncio.wait_for(waiting, 1.0)
    assert permit.admitted
    assert client.passing_all
    await until(lambda: not sidecar.books.waiting)


async def test_cancelling_a_waiter_frees_its_place(stage: Stage) -> None:
    """At once, not when its deadline comes."""
    sidecar = await stage.sidecar(queue)
    client = stage.client(sidecar.address)
    waiting = [asyncio.create_task(client.acquire(Ticket())) for _ in range(20)]
    await until(lambda: len(sidecar.books.waiting) == 20)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await until(lambda: not sidecar.books.waiting)
    assert client.stats()["held"] == 0


async def test_tls_and_token_are_used(stage: Stage, tmp_path: Path) -> None:
    """A sidecar beyond loopback wants both sides' certificates and a role's token."""
    authority = trustme.CA()
    server, client_certificate = authority.issue_cert("127.0.0.1"), authority.issue_cert("client")
    paths = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    client_certificate.cert_chain_pems[0].write_to_path(paths["cert"])
    client_certificate.private_key_pem.write_to_path(paths["key"])
    credentials = grpc.ssl_server_credentials(
        [(server.private_key_pem.bytes(), server.cert_chain_pems[0].bytes())],
        authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    sidecar = await stage.sidecar(credentials=credentials)
    client = stage.client(
        sidecar.address, tls_ca=paths["ca"], tls_cert=paths["cert"], tls_key=paths["key"], token="secret"
    )
    permit = await client.permit(Ticket())
    assert not permit.answer.local
    assert sidecar.metadata[0]["authorization"] == "Bearer secret"
    permit.finish()


async def test_a_client_without_the_right_certificate_fails_open(stage: Stage) -> None:
    """And says so: the fault is the operator's, the request is not refused."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials(
        [(server.private_key_pem.bytes(), server.cert_chain_pems[0].bytes())]
    )
    sidecar = await stage.sidecar(credentials=credentials)
    client = stage.client(sidecar.address)
    permit = await client.acquire(Ticket())
    assert permit.answer.local
    permit.finish(Outcome.OK)


def test_a_client_built_before_several_loops_serves_each() -> None:
    """Test clients and reloaders run one application on many loops, forks run it in many processes."""

    async def one() -> None:
        sidecar = await ScriptedSidecar().start(f"127.0.0.1:{ports[-1] if ports else 0}")
        ports.append(sidecar.port)
        if not clients:
            clients.append(AsyncClient(ClientSettings(address=sidecar.address)))
        permit = await clients[0].permit(Ticket())
        assert not permit.answer.local
        permit.finish()
        await until(lambda: sidecar.books.finishes)
        await clients[0].close()
        await sidecar.stop()

    ports: list[int] = []
    clients: list[AsyncClient] = []
    asyncio.run(one())
    asyncio.run(one())
