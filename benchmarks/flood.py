"""Acquire at five times what the sidecar can decide, from a native generator (h2load): it must refuse first.

Run `python -m benchmarks.flood`. There is room for all tickets, so that each call ends with its decision. How long decisions take is seen by four callers beside the flood: what is cut off inside gRPC is quick
and would flatter the figure.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from admission.runtime.settings import OverloadConfig
from benchmarks import protocol
from benchmarks.result import Result

PATH = "/admission.v1.AdmissionService/Acquire"
FACTOR = 5
P99_BOUND_MS = 250.0
CONNECTIONS = 8
STREAMS = 200
CALLERS = 4


def run(seconds_s: float = 5.0) -> Iterator[Result]:
    """What one closed-loop client gets, then five times that."""
    if shutil.which("h2load") is None:
        print("flood: h2load is not installed, nothing measured", file=sys.stderr)
        return
    # A pair is two calls.
    calm = 2 * protocol.measure("roomy", "unary", 64, seconds_s).pairs_per_s
    answered, beside = flood(FACTOR * calm, seconds_s)
    yield Result("flood: calls that the sidecar can decide", calm, "calls/s")
    yield Result("flood: calls asked", FACTOR * calm, "calls/s")
    yield Result("flood: calls answered or cut off", answered / seconds_s, "calls/s")
    yield Result("flood: decisions beside it", 2 * beside.pairs_per_s, "calls/s")
    met = beside.p99_ms < P99_BOUND_MS
    yield Result("flood: p99 of decisions", beside.p99_ms, "ms", f"under {P99_BOUND_MS:.0f}", met)


def flood(rate: float, seconds_s: float) -> tuple[int, protocol.Load]:
    """How many calls of the flood ended, and what callers beside it saw."""
    with tempfile.TemporaryDirectory() as folder, protocol.serving("roomy") as address:
        body, log = Path(folder) / "body", Path(folder) / "log"
        message = protocol.wire.AcquireRequest(ticket=protocol.ticket(0)).SerializeToString()
        body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
        # In its first moments the sidecar refuses nobody.
        time.sleep(OverloadConfig().grace_s + 0.5)
        generator = subprocess.Popen(
            [
                "h2load",
                f"--duration={seconds_s:g}",
                f"--clients={CONNECTIONS}",
                f"--max-concurrent-streams={STREAMS}",
                f"--rps={rate / CONNECTIONS:.0f}",
                f"--data={body}",
                f"--log-file={log}",
                "--header=content-type: application/grpc",
                "--header=te: trailers",
                f"http://{address}{PATH}",
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            beside = _beside(address, seconds_s)
        finally:
            generator.wait(seconds_s + 30)
        return log.read_text().count("\n"), beside


def _beside(address: str, seconds_s: float) -> protocol.Load:
    command = [sys.executable, protocol.__file__, "load-unary", address, str(CALLERS), str(seconds_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return protocol.Load(**json.loads(done.stdout))


if __name__ == "__main__":
    for result in run():
        print(f"{result.name:42} {result.value:10,.1f} {result.unit:8} {result.bar} {result.met}")
