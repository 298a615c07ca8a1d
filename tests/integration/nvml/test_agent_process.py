"""The agent as a process: GPUs of the stand-in arrive over OTLP/gRPC, loss included, at a small price."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import trustme
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as otlp
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as otlp_grpc

from admission.vocabulary import SignalKind
from telemetry.config import TargetBinding
from telemetry.receivers.hw_metrics import OtlpMetrics
from telemetry.receivers.otlp_spans import Batch
from tests.integration.nvml.conftest import ROOT
from tests.nvml_stub.stub import StubFile, environment
from tests.telemetry.receivers.recording import Recording

pytestmark = pytest.mark.integration

RUN = (
    "import sys; from telemetry.agent import AgentConfig, run; "
    "sys.exit(run(AgentConfig(endpoint=sys.argv[1], interval_s=0.2, host='node')))"
)
RUN_TLS = (
    "import sys; from telemetry.agent import AgentConfig, run; "
    "sys.exit(run(AgentConfig(endpoint=sys.argv[1], interval_s=0.2, ca=sys.argv[2])))"
)
ONCE = "import sys; from telemetry.agent import once; sys.exit(once()[0])"


class Collector(otlp_grpc.MetricsServiceServicer):
    """The real OTLP service, keeping what it gets."""

    def __init__(self) -> None:
        self.got: queue.Queue[otlp.ExportMetricsServiceRequest] = queue.Queue()

    def Export(  # noqa: N802 - the name in the service
        self, request: otlp.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportMetricsServiceResponse:
        self.got.put(request)
        return otlp.ExportMetricsServiceResponse()

    def until(self, wanted: Callable[[dict[SignalKind, float]], bool], within_s: float = 20.0) -> None:
        """Waits for a payload whose readings are wanted."""
        end = time.monotonic() + within_s
        reader = OtlpMetrics((TargetBinding(),), host="node")
        while True:
            request = self.got.get(timeout=max(0.01, end - time.monotonic()))
            emit = Recording()
            reader.take(request.SerializeToString(), Batch(emit, 0.0, time.time_ns()))
            if wanted(emit.values()):
                return


@pytest.fixture
def collector() -> Iterator[tuple[Collector, int]]:
    """A listening collector and its port."""
    service = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_grpc.add_MetricsServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, port
    server.stop(None).wait()


@pytest.fixture
def agent(library: Path, gpus: StubFile) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts an agent that samples the stand-in and sends to a port."""
    started: list[subprocess.Popen[str]] = []

    def start(port: int) -> subprocess.Popen[str]:
        env = {**environment(library, gpus.path), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", RUN, f"127.0.0.1:{port}"]
        started.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def test_gpus_arrive_move_are_lost_and_return(
    collector: tuple[Collector, int], agent: Callable[[int], object], gpus: StubFile
) -> None:
    """A node's GPUs steer a sidecar that runs elsewhere."""
    service, port = collector
    agent(port)
    service.until(
        lambda values: values.get(SignalKind.VRAM_FREE_BYTES) == (24 << 30) - (512 << 20) - (20 << 30)
    )
    gpus.set({"0.used": 23 << 30})
    service.until(lambda values: values.get(SignalKind.VRAM_FREE_BYTES) == (512 << 20))
    gpus.set({"0.lost": 1})
    service.until(lambda values: values == {SignalKind.GPU_STATE: 0.0})
    gpus.set({"0.lost": 0})
    service.until(lambda values: SignalKind.VRAM_FREE_BYTES in values)


def test_a_term_signal_ends_it_cleanly(
    collector: tuple[Collector, int], agent: Callable[[int], subprocess.Popen[str]]
) -> None:
    """An orchestrator stops it that way."""
    service, port = collector
    process = agent(port)
    service.until(bool)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0


def test_a_collector_that_is_away_is_named_and_found_when_it_comes(
    agent: Callable[[int], subprocess.Popen[str]], collector: tuple[Collector, int]
) -> None:
    """Start order must not matter."""
    process = agent(1)
    assert process.stderr is not None
    assert "cannot send to 127.0.0.1:1: UNAVAILABLE" in process.stderr.readline()
    assert process.poll() is None


def test_a_named_authority_makes_the_connection_tls(library: Path, gpus: StubFile, tmp_path: Path) -> None:
    """The only way to another machine that needs no `insecure`."""
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    service = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_grpc.add_MetricsServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    pair = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
    server.start()
    env = {**environment(library, gpus.path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN_TLS, f"localhost:{port}", str(tmp_path / "ca.pem")]
    process = subprocess.Popen(command, env=env)
    try:
        assert service.got.get(timeout=20).resource_metrics
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0
        server.stop(None).wait()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_it_stays_small(
    collector: tuple[Collector, int], agent: Callable[[int], subprocess.Popen[str]]
) -> None:
    """A DaemonSet on every node: 60 MB at most. What it costs in time is measured in the benchmarks."""
    service, port = collector
    process = agent(port)
    for _ in range(5):
        service.until(bool)
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    assert resident_kb < 60_000
