"""`tidegate agent`: samples the GPUs of a node and sends them as OTLP metrics, also through a Collector."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import grpc

from admission.wire.otlp_metrics_pb2 import MetricsRequest, MetricsResponse
from telemetry.config import is_loopback, split_address
from telemetry.gpu_table import as_dict, as_text
from telemetry.hw_convention import request_for
from telemetry.receivers.nvml_sampler import NvmlSampler, Observation

_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_EXPORT_TIMEOUT_S = 3.0
_SAY_AGAIN_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """Where the agent sends, how often, and as whom."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    endpoint: str = "127.0.0.1:4317"
    """host:port of an OTLP/gRPC receiver: the sidecar or a Collector."""
    interval_s: float = 1.0
    host: str = ""
    """The resource attribute `host.name`; empty: this machine's name."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """More resource attributes."""
    token: str = ""
    """Bearer token with the telemetry role."""
    ca: str = ""
    """Certificate file; with it the connection uses TLS."""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    """Allow plain text to another machine."""

    def __post_init__(self) -> None:
        """ValueError naming every setting that cannot work, one per line."""
        problems = []
        try:
            host, _ = split_address(self.endpoint)
        except ValueError as error:
            problems.append(f"endpoint: {error}")
        else:
            if not is_loopback(host) and not self.ca and not self.insecure:
                problems.append(
                    f"endpoint: {self.endpoint} is beyond loopback without TLS; set ca, or insecure: true"
                )
        if not 0.2 <= self.interval_s <= 60.0:
            problems.append(f"interval_s: {self.interval_s} is not within 0.2 to 60 s")
        if bool(self.cert) != bool(self.key):
            problems.append("cert and key go together")
        if problems:
            raise ValueError("\n".join(problems))


def run(config: AgentConfig | None = None, stop: threading.Event | None = None) -> int:
    """Samples and sends until SIGTERM, SIGINT or `stop`; returns the exit code. Says on stderr what fails, each minute."""
    config = config or AgentConfig()
    stop = stop or threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    sampler = NvmlSampler(slow_interval_s=0.0)
    with _channel(config) as channel:
        exporter = Exporter(config, channel)
        while not stop.is_set():
            started = time.monotonic()
            exporter.send(sampler.step(started))
            stop.wait(max(0.0, started + config.interval_s - time.monotonic()))
    sampler.close()
    return 0


def once(
    write: Callable[[str], object] = sys.stdout.write, sampler: NvmlSampler | None = None
) -> tuple[int, dict[str, Any]]:
    """Writes a table of what this machine reports, what it cannot, and why; returns exit code and the same as data.

    The code is 0 when at least one GPU answers, 1 when none does.
    """
    sampler = sampler or NvmlSampler()
    observation = sampler.step(time.monotonic())
    sampler.close()
    write(as_text(observation, socket.gethostname()))
    alive = any(gpu.state != "lost" for gpu in observation.gpus)
    return (0 if alive else 1), as_dict(observation, socket.gethostname())


class Exporter:
    """Sends observations one at a time; what cannot be sent is dropped: a newer one follows."""

    def __init__(
        self,
        config: AgentConfig,
        channel: grpc.Channel,
        say: Callable[[str], object] = sys.stderr.write,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._host = config.host or socket.gethostname()
        self._export = channel.unary_unary(
            _EXPORT,
            request_serializer=MetricsRequest.SerializeToString,
            response_deserializer=MetricsResponse.FromString,
        )
        self._metadata = (("authorization", f"Bearer {config.token}"),) if config.token else ()
        self._say = say
        self._clock = clock
        self._said: dict[str, float] = {}
        self.sent = 0
        self.failed = 0

    def send(self, observation: Observation) -> bool:
        """Whether the receiver took it. An observation without GPUs is not sent."""
        if observation.problem:
            self._complain(f"NVML is absent: {observation.problem}")
        if not observation.gpus:
            return False
        request = request_for(observation, self._host, self._config.attributes, time.time_ns())
        try:
            self._export(request, timeout=_EXPORT_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            self.failed += 1
            self._complain(f"cannot send to {self._config.endpoint}: {_reason(error)}")
            return False
        self.sent += 1
        return True

    def _complain(self, text: str) -> None:
        now = self._clock()
        if now - self._said.get(text, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
            if len(self._said) > 64:
                self._said.clear()
            self._said[text] = now
            self._say(f"tidegate agent: {text}\n")


def _reason(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)


def _channel(config: AgentConfig) -> grpc.Channel:
    if not config.ca:
        return grpc.insecure_channel(config.endpoint)
    files = [Path(name).read_bytes() if name else None for name in (config.ca, config.key, config.cert)]
    return grpc.secure_channel(config.endpoint, grpc.ssl_channel_credentials(*files))
