"""Floods an OTLP port, as a process of its own: `python -m tests.integration.telemetry.flood PORT SECONDS`."""

from __future__ import annotations

import asyncio
import sys
import time

import grpc.aio

from tests.telemetry.golden import VLLM_V1, encode

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SENDERS = 16
SPANS = 512


MARK = bytes.fromhex("f0cacc1a")


def batch() -> bytes:
    """Half a megabyte of spans that ended just now, whose ids begin with MARK."""
    start_ns = time.time_ns() - round(VLLM_V1.lasted_s * 1e9)
    spans = (VLLM_V1.but(span_id=MARK.hex() + f"{n + 1:08x}", start_ns=start_ns) for n in range(SPANS))
    return b"".join(encode(span) for span in spans)


async def flood(channel: grpc.aio.Channel, body: bytes, sender: int, until: float) -> int:
    """As fast as answers come, with spans that nobody saw before; each answer must be a success."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TRACES)
    sent = 0
    while time.monotonic() < until:
        fresh = body.replace(MARK, (sender << 20 | sent).to_bytes(4, "big"))
        if await call(fresh, timeout=15) != b"":
            raise SystemExit("a flood is answered with success")
        sent += 1
    return sent


async def main(port: int, seconds: float) -> None:
    """Prints how many batches were taken."""
    body = batch()
    until = time.monotonic() + seconds
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        sent = await asyncio.gather(*(flood(channel, body, sender, until) for sender in range(SENDERS)))
    print(sum(sent))  # noqa: T201 - the answer


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
