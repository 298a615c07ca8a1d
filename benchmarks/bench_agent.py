"""What the node agent costs: share of a core over ten seconds at its default interval, beside a stub of the NVML library."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as otlp
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as otlp_grpc

from benchmarks.result import Result
from tests.nvml_stub.stub import StubFile, build, environment

SECONDS = 10.0
BAR = 0.01


class _Sink(otlp_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.got: queue.Queue[int] = queue.Queue()

    def Export(  # noqa: N802 - the name in the service
        self, request: otlp.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportMetricsServiceResponse:
        self.got.put(len(request.resource_metrics))
        return otlp.ExportMetricsServiceResponse()


def run() -> Iterator[Result]:
    """CPU time of all its threads, by the scheduler's own account."""
    sink = _Sink()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_grpc.add_MetricsServiceServicer_to_server(sink, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **environment(build(Path(folder)), StubFile(Path(folder) / "gpus").path)}
        command = [sys.executable, "-m", "admission.cli", "agent", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            sink.got.get(timeout=30)
            before_s = _cpu_s(process.pid)
            time.sleep(SECONDS)
            share = (_cpu_s(process.pid) - before_s) / SECONDS
        finally:
            process.terminate()
            process.wait(timeout=10)
    server.stop(None).wait()
    yield Result("agent: share of a core", share, "cores", f"at most {BAR}", share <= BAR)


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
