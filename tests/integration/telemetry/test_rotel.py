"""A real relay between exporter and sidecar: the way of every site that has an OpenTelemetry Collector."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.telemetry.harness import running
from tests.integration.telemetry.test_exporters import REQUESTS, grpc_exporter, send_requests

ROTEL = os.environ.get("TIDEGATE_ROTEL", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.real,
    pytest.mark.skipif(not ROTEL, reason="TIDEGATE_ROTEL does not name a rotel-agent binary"),
]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def relay(endpoint: str, protocol: str) -> AsyncIterator[int]:
    """Rotel, forwarding compressed to `endpoint`; its own OTLP port for gRPC."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        ROTEL,
        "start",
        f"--otlp-grpc-endpoint=127.0.0.1:{port}",
        f"--otlp-http-endpoint=127.0.0.1:{free_port()}",
        "--exporter=otlp",
        f"--otlp-exporter-endpoint={endpoint}",
        f"--otlp-exporter-protocol={protocol}",
        "--otlp-exporter-compression=gzip",
        "--batch-timeout=200ms",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listens(port)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> None:
    async with asyncio.timeout(15):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_every_request_arrives_once_through_a_relay(protocol: str) -> None:
    """Batched anew, compressed, by another implementation: the spans are the same and on time."""
    async with running() as (_, sink):
        grpc_port, http_port = await sink.ports()
        endpoint = f"http://127.0.0.1:{grpc_port if protocol == 'grpc' else http_port}"
        async with relay(endpoint, protocol) as port:
            await asyncio.to_thread(send_requests, grpc_exporter(port, 0))
            await sink.until(lambda: len(sink.samples) >= REQUESTS)
        await sink.until(lambda: sink.last.counters.get("spans:default:vllm:sample") == REQUESTS)
    assert {sample.request_key for sample in sink.samples} == {f"chatcmpl-{n}" for n in range(REQUESTS)}
