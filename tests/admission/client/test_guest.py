"""The client as a guest: what it imports, starts and opens in its host's process."""

from __future__ import annotations

import subprocess
import sys

_IMPORTS = """
import sys
before = set(sys.modules)
import admission.client.asgi, admission.client.sync, admission.client.backoff
import threading
roots = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
ours = {name for name in sys.modules if name.startswith(("admission", "telemetry", "dashboard"))}
print(sorted(roots))
print(sorted(name for name in ours if not name.startswith(("admission.client", "admission.v1"))))
print(threading.active_count())
"""

_FORK = """
import asyncio, os, sys
from admission.client.aio import AsyncClient
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket

client = AsyncClient(ClientSettings(address="127.0.0.1:9"))
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        async def one():
            permit = await client.acquire(Ticket())
            permit.finish()
            await client.close()
            return permit.admitted
        os._exit(0 if asyncio.run(one()) else 1)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def _run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_only_grpc_protobuf_and_the_standard_library_are_imported() -> None:
    """Whatever else we needed would have to agree with the host's versions."""
    roots, ours, threads = _run(_IMPORTS)
    by_grpc_itself = {"grpc_health", "grpc_reflection", "typing_extensions", "cython_runtime"}
    allowed = {"admission", "google", "grpc", *by_grpc_itself}
    extra = {name for name in eval(roots) if name not in allowed and not name.startswith("_cython")}  # noqa: S307
    assert extra == set()
    assert eval(ours) == ["admission", "admission.vocabulary"]  # noqa: S307
    assert threads == "1", "no thread at import"


def test_a_client_built_before_a_fork_works_in_each_child() -> None:
    """Servers load the application once and fork workers: the channel must open after it."""
    assert _run(_FORK) == ["[0, 0]"]
