"""The shell for threads, over real gRPC on loopback."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from admission.client.calls import Usage
from admission.client.errors import Refused
from admission.client.settings import ClientSettings
from admission.client.sync import SyncClient
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome, Reason
from tests.admission.client.sidecar import queue, refuse
from tests.integration.client.sidecar import Stage, until

pytestmark = pytest.mark.integration


async def test_threads_share_one_session(stage: Stage) -> None:
    """Forty permits from eight threads, and nothing stays held."""
    sidecar = await stage.sidecar()
    client = SyncClient(ClientSettings(address=sidecar.address, decision_timeout_ms=5000))

    def work(_: int) -> None:
        with client.permit(Ticket(model="m")) as permit:
            permit.first_token()
            permit.chunks(2)

    with ThreadPoolExecutor(8) as threads:
        await asyncio.get_running_loop().run_in_executor(None, lambda: list(threads.map(work, range(40))))
    await until(lambda: len(sidecar.books.finishes) == 40)
    assert sidecar.books.held == set()
    assert len(sidecar.books.hellos) == 1
    await asyncio.to_thread(client.close)


async def test_a_block_that_raises_is_an_error(stage: Stage) -> None:
    """The law must hear of failures."""
    sidecar = await stage.sidecar()
    client = SyncClient(ClientSettings(address=sidecar.address))

    def work() -> None:
        with client.permit(Ticket()):
            raise RuntimeError("engine died")

    with pytest.raises(RuntimeError, match="engine died"):
        await asyncio.to_thread(work)
    await until(lambda: sidecar.books.finishes)
    assert sidecar.books.finishes[0].outcome == int(Outcome.ERROR)
    await asyncio.to_thread(client.close)


async def test_refusal_and_timeout(stage: Stage) -> None:
    """Both leave nothing behind."""
    sidecar = await stage.sidecar(refuse(Reason.QUOTA))
    client = SyncClient(ClientSettings(address=sidecar.address))

    def refused() -> None:
        with client.permit(Ticket()):
            raise AssertionError("not reached")

    with pytest.raises(Refused, match="QUOTA"):
        await asyncio.to_thread(refused)
    sidecar.books.policy = queue
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(client.acquire, Ticket(), 0.1)
    await until(lambda: not sidecar.books.waiting)
    assert client.stats()["held"] == 0
    await asyncio.to_thread(client.close)


def test_no_sidecar_fails_open_and_closed_clients_stay_quiet() -> None:
    """A permit that is given back after the client was closed is no fault."""
    client = SyncClient(ClientSettings(address="127.0.0.1:9"))
    permit = client.acquire(Ticket())
    assert permit.admitted
    assert permit.answer.local
    client.close()
    permit.finish(Outcome.OK, Usage(1, 0, 1))
    assert client.stats() == {}
