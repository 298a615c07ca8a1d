"""A real vLLM on the CPU and a sidecar as processes, and what both say about themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
from prometheus_client.parser import text_string_to_metric_families

from admission.v1.monitor_service_pb2 import GetSnapshotRequest, Snapshot
from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub

if TYPE_CHECKING:
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceAsyncStub

ROOT = Path(__file__).resolve().parents[2]
MODEL = "tiny"
KV_BLOCKS, BLOCK_TOKENS = 24, 128
KV_TOKENS = KV_BLOCKS * BLOCK_TOKENS
VARIABLE = "TIDEGATE_VLLM_PYTHON"
CLIENT_METRICS = "/tidegate/metrics"
ENGINE_START_S, SIDECAR_START_S = 300.0, 60.0
SNAPSHOT_ATTEMPTS = 4


def engine_python() -> Path:
    """The python of the environment that has vLLM; it may not exist."""
    return Path(os.environ.get(VARIABLE) or ROOT / ".cache/venv-vllm/bin/python")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Where everything of one rig listens, on 127.0.0.1."""

    engine: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)
    otlp: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)


class Counters:
    """One reading of a /metrics page."""

    def __init__(self, text: str) -> None:
        self._samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of that name that carry these labels; 0 when there is none."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


async def counters(port: int, path: str = "/metrics") -> Counters:
    """What the server on that port counts."""
    return Counters(await asyncio.to_thread(get, f"http://127.0.0.1:{port}{path}"))


def get(url: str) -> str:
    """The body of a GET; empty when nobody answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return ""


class Process:
    """A child in a process group of its own, with its log; `stop` leaves nothing of the group behind."""

    def __init__(self, command: list[str], environ: dict[str, str], log: Path, cwd: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                command, stdout=out, stderr=out, env=environ, cwd=cwd, start_new_session=True
            )

    async def ready(self, url: str, within_s: float) -> None:
        """Until the URL answers."""
        until = time.monotonic() + within_s
        while not await asyncio.to_thread(_answers, url):
            if self._child.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{url} did not come up:\n{self.tail()}")
            await asyncio.sleep(0.2)

    def tail(self) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-4000:]

    async def stop(self, within_s: float = 20.0) -> None:
        """SIGTERM, and SIGKILL for the group when that did not do."""
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._child.wait, within_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await asyncio.to_thread(self._child.wait)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@dataclass(slots=True)
class Rig:
    """One engine for the whole session, and one sidecar after the other at the same ports."""

    folder: Path
    ports: Ports = field(default_factory=Ports)
    engine: Process | None = None
    sidecar: Process | None = None
    state_dir: str = "none"
    """Where the next sidecar keeps its state and its journal; `none`: nowhere."""
    _channel: grpc.aio.Channel | None = None
    _started: int = 0

    # ---- engine

    async def start_engine(self) -> None:
        """Write the model and bring vLLM up; takes 40 to 90 s."""
        python = engine_python()
        model = self.folder / "model"
        maker = await asyncio.create_subprocess_exec(python, ROOT / "scripts/make_tiny_model.py", model)
        if await maker.wait():
            raise RuntimeError("the tiny model could not be written")
        command = [
            *(
                str(python.parent / "vllm"),
                "serve",
                str(model),
                "--load-format",
                "dummy",
                "--dtype",
                "float32",
            ),
            *("--host", "127.0.0.1", "--port", str(self.ports.engine), "--served-model-name", MODEL),
            *(
                "--max-model-len",
                "2048",
                "--max-num-seqs",
                "64",
                "--enforce-eager",
                "--no-enable-prefix-caching",
            ),
            *("--num-gpu-blocks-override", str(KV_BLOCKS), "--block-size", str(BLOCK_TOKENS)),
            *("--otlp-traces-endpoint", f"http://127.0.0.1:{self.ports.otlp}"),
            *("--middleware", "admission.client.asgi.AdmissionMiddleware", "--uvicorn-log-level", "warning"),
        ]
        self.engine = Process(command, self._engine_environ(), self.folder / "vllm.log", self.folder)
        await self.engine.ready(f"http://127.0.0.1:{self.ports.engine}/health", ENGINE_START_S)

    def _engine_environ(self) -> dict[str, str]:
        ours = {
            "PYTHONPATH": str(ROOT),
            "TIDEGATE_ADDRESS": f"127.0.0.1:{self.ports.grpc}",
            "TIDEGATE_METRICS_PATH": CLIENT_METRICS,
            "OTEL_SERVICE_NAME": "vllm-tiny",
            "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }
        return {**os.environ, **ours}

    async def engine_counters(self) -> Counters:
        """What vLLM counts."""
        return await counters(self.ports.engine)

    async def client_counters(self) -> Counters:
        """What the middleware inside vLLM counts."""
        return await counters(self.ports.engine, CLIENT_METRICS)

    # ---- sidecar

    async def start_sidecar(self, target: dict[str, object]) -> None:
        """A fresh `tidegate serve` that remembers nothing unless it has a `state_dir`, with these settings of its one target."""
        await self.stop_sidecar()
        config = self.folder / "tidegate.yaml"
        config.write_text(json.dumps(self._document(target), indent=1))
        self._started += 1
        self.sidecar = Process(
            [sys.executable, "-m", "admission.cli", "serve", "--config", str(config)],
            {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(self.folder)},
            self.folder / f"sidecar-{self._started}.log",
            self.folder,
        )
        await self.sidecar.ready(f"http://127.0.0.1:{self.ports.http}/readyz", SIDECAR_START_S)
        self._channel = grpc.aio.insecure_channel(self._control)

    @property
    def _control(self) -> str:
        return f"unix:{self.folder}/control.sock"

    def _document(self, target: dict[str, object]) -> dict[str, object]:
        ports = self.ports
        binding = {"name": MODEL, "metrics_urls": [f"http://127.0.0.1:{ports.engine}/metrics"]}
        return {
            "listen": {
                "grpc": [f"127.0.0.1:{ports.grpc}"],
                "control": self._control,
                "http": f"127.0.0.1:{ports.http}",
            },
            "telemetry": {"otlp_grpc": f"127.0.0.1:{ports.otlp}", "otlp_http": "", "nvml": False},
            "state_dir": self.state_dir,
            "targets": [{**binding, **target}],
        }

    async def snapshot(self) -> Snapshot:
        """What the sidecar sees now; asked again, a few times and said aloud, when the whole machine stood still meanwhile."""
        assert self._channel is not None
        stub = cast("MonitorServiceAsyncStub", MonitorServiceStub(self._channel))
        for attempt in range(SNAPSHOT_ATTEMPTS):
            asked = time.monotonic()
            try:
                return (await stub.GetSnapshot(GetSnapshotRequest(), timeout=5)).snapshot
            except grpc.aio.AioRpcError as error:
                late_s = time.monotonic() - asked
                sys.stderr.write(f"no snapshot for {late_s:.1f} s: {error.code().name}\n")
                if attempt == SNAPSHOT_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def spans(self) -> int:
        """Finished requests that vLLM's spans have told this sidecar of."""
        found = await counters(self.ports.http)
        return int(found.total("tidegate_spans_total", emitter="vllm"))

    async def stop_sidecar(self) -> None:
        """Take it down; the middleware goes on without."""
        if self._channel is not None:
            await self._channel.close()
        if self.sidecar is not None:
            await self.sidecar.stop()
        self.sidecar = self._channel = None

    async def stop(self) -> None:
        """Leave nothing running."""
        await self.stop_sidecar()
        if self.engine is not None:
            await self.engine.stop()
        self.engine = None
