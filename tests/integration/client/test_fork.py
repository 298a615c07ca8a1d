"""A process that was forked after its parent had asked: gRPC cannot work there, and the client says so."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from tests.integration.client.sidecar import Stage

pytestmark = pytest.mark.integration

_SYNC = """
import json, os, sys
from admission.client.settings import ClientSettings
from admission.client.sync import SyncClient
from admission.v1.types_pb2 import Ticket

client = SyncClient(ClientSettings(address=sys.argv[1], decision_timeout_ms=5000))
def ask():
    permit = client.acquire(Ticket(), 20.0)
    permit.finish()
    return permit.answer.local
def tell(who, local):
    os.write(1, (json.dumps([who, local, client.stats()]) + chr(10)).encode())
tell("parent", [ask()])
child = os.fork()
if child == 0:
    before = client.stats()
    tell("child", [before, ask(), ask()])
    client.close()
    os._exit(0)
os.waitpid(child, 0)
tell("parent", [ask()])
client.close()
"""
_ASYNC = """
import asyncio, json, os, sys
from admission.client.aio import AsyncClient
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket

client = AsyncClient(ClientSettings(address=sys.argv[1], decision_timeout_ms=5000))
async def ask():
    permit = await client.acquire(Ticket())
    permit.finish()
    return permit.answer.local
async def one(who, before):
    os.write(1, (json.dumps([who, [*before, await ask()], client.stats()]) + chr(10)).encode())
    await client.close()
async def open_one():
    await ask()
    os.write(1, (json.dumps(["parent", [False], client.stats()]) + chr(10)).encode())
parent = asyncio.new_event_loop()
parent.run_until_complete(open_one())
child = os.fork()
if child == 0:
    asyncio.run(one("child", [client.stats()]))
    os._exit(0)
os.waitpid(child, 0)
parent.run_until_complete(one("parent", []))
"""


async def _run(code: str, address: str) -> tuple[list[Any], str]:
    """What it told, and its log. gRPC's own fork handlers, if they are on, crash one in four such children."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return [json.loads(line) for line in out.decode().splitlines()], err.decode()


@pytest.mark.parametrize("code", [_SYNC, _ASYNC], ids=["threads", "asyncio"])
async def test_a_child_of_a_process_that_asked_goes_by_the_fail_policy_and_says_so(
    code: str, stage: Stage
) -> None:
    """It once tried to attach for ever, and each question cost the whole timeout."""
    sidecar = await stage.sidecar()
    told, err = await _run(code, sidecar.address)
    assert [(who, local[-1]) for who, local, _ in told] == [
        ("parent", False),
        ("child", True),
        ("parent", False),
    ]
    _, (before, *_), stats = told[1]
    assert before == {}, "the parent's counts are not the child's"
    assert stats["forked"] >= 1
    assert stats.get("missed", 0) == 0, "no question waited for an answer that cannot come"
    assert stats["link"] == "down"
    assert "forked" not in told[2][2]
    assert err.count("gRPC had started before this process was forked and cannot work in it") == 2
    assert err.count("The fail policy decides everything here") == 1


async def test_a_child_forked_before_the_first_question_asks(stage: Stage) -> None:
    """What servers do: load once, fork workers, then serve."""
    sidecar = await stage.sidecar()
    told, _ = await _run(_SYNC.replace('tell("parent", [ask()])\n', ""), sidecar.address)
    assert [(who, local[-1]) for who, local, _ in told] == [("child", False)]
