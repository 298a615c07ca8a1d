"""Stand-ins as processes of their own, taken down with the test."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

from admission.simulation.demo.stage import Stage

Starter = Callable[..., Awaitable[int]]


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest_asyncio.fixture
async def start_standin(tmp_path: Path) -> AsyncIterator[Starter]:
    """Start a stand-in with more options; returns its port."""
    stage = Stage(tmp_path)

    async def start(*options: str, **environment: str) -> int:
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "admission.simulation.standin",
            "--port",
            str(port),
            "--noise-ratio",
            "0",
        ]
        stage.start(f"standin-{port}", [*command, *options], environment)
        await stage.wait_for_port(f"standin-{port}", port)
        return port

    yield start
    await stage.stop()


async def get(port: int, path: str) -> bytes:
    """The body of a GET."""

    def fetch() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            body: bytes = answer.read()
            return body

    return await asyncio.to_thread(fetch)


async def post(port: int, path: str, document: Any) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a POST."""

    def send() -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(document).encode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    return await asyncio.to_thread(send)


async def state(port: int) -> dict[str, Any]:
    """The stand-in's own account."""
    found: dict[str, Any] = json.loads(await get(port, "/standin"))
    return found
