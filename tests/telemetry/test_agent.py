"""The agent checks what it is told, says what a machine can report, and complains once a minute, not each second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest

from telemetry.agent import AgentConfig, Exporter, once
from telemetry.receivers.nvml_sampler import NvmlSampler, Observation
from tests.telemetry.receivers.fake_nvml import FakeGpu, FakeNvml


class FakeChannel:
    """A channel whose only method fails or keeps what it got."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.requests: list[Any] = []
        self.metadata: list[Any] = []

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        """The method."""

        def export(request: Any, *, timeout: float, metadata: Any) -> None:
            if self.broken:
                raise grpc.RpcError("connection refused")
            self.requests.append(request)
            self.metadata.append(metadata)

        return export


def exporter_on(
    channel: FakeChannel,
    say: Callable[[str], object] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
    config: AgentConfig | None = None,
) -> Exporter:
    """An exporter whose channel is a fake."""
    return Exporter(config or AgentConfig(), cast("grpc.Channel", channel), say, clock)


def observation(*gpus: FakeGpu, init: int = 0) -> Observation:
    """One step over these GPUs."""
    return NvmlSampler(load=lambda: FakeNvml(*gpus, init=init)).step(1.0)


def test_configuration_builds_without_arguments() -> None:
    """Beside a sidecar nothing needs to be said."""
    assert AgentConfig().endpoint == "127.0.0.1:4317"


def test_every_mistake_is_named_at_once() -> None:
    """Not one a start."""
    with pytest.raises(ValueError, match="endpoint") as raised:
        AgentConfig(endpoint="nowhere", interval_s=0.0, cert="only-half")
    assert str(raised.value).count("\n") == 2


def test_plain_text_to_another_machine_must_be_wanted() -> None:
    """Secure by default."""
    with pytest.raises(ValueError, match="insecure"):
        AgentConfig(endpoint="10.0.0.7:4317")
    assert AgentConfig(endpoint="10.0.0.7:4317", insecure=True).insecure


def test_the_table_says_what_is_reported_and_why_the_rest_is_not() -> None:
    """The first question of whoever installs it."""
    lines: list[str] = []
    gpu = FakeGpu("GPU-a", errors={"utilization": 3})
    code, data = once(lines.append, NvmlSampler(load=lambda: FakeNvml(gpu)))
    text = "".join(lines)
    assert code == 0
    assert "GPU-a" in text
    assert "memory       yes  1.00 of 24.00 GiB used, 23.00 free" in text
    assert "utilization  no   Not Supported" in text
    assert data["gpus"][0]["unsupported"] == {"utilization": "Not Supported"}


def test_a_machine_without_gpus_says_why_and_fails() -> None:
    """The exit code is for scripts."""
    lines: list[str] = []
    code, data = once(lines.append, NvmlSampler(load=lambda: FakeNvml(init=12)))
    assert code == 1
    assert "NVML is absent: libnvidia-ml.so.1 is not on this machine" in "".join(lines)
    assert data["gpus"] == []


def test_a_lost_gpu_is_no_gpu_that_answers() -> None:
    """All lost is as bad as none."""
    gpu = FakeGpu("GPU-a", lost=True)
    code, data = once(lambda _: None, NvmlSampler(load=lambda: FakeNvml(gpu)))
    assert (code, data["silent_gpus"]) == (1, 1)


def test_what_is_sent_carries_the_token_and_the_attributes() -> None:
    """Without the role it would be shown and never steer."""
    channel = FakeChannel()
    config = AgentConfig(token="word", host="n1", attributes={"rack": "7"})
    exporter = exporter_on(channel, config=config)
    assert exporter.send(observation(FakeGpu("GPU-a")))
    [request] = channel.requests
    resource = request.resource_metrics[0].resource.attributes
    assert {key: value.string_value for key, value in resource.items()} == {"host.name": "n1", "rack": "7"}
    assert channel.metadata == [(("authorization", "Bearer word"),)]


def test_a_receiver_that_is_away_is_said_once_a_minute_and_tried_each_time() -> None:
    """A log line each second helps nobody."""
    said: list[str] = []
    now = [0.0]
    channel = FakeChannel(broken=True)
    exporter = exporter_on(channel, said.append, lambda: now[0])
    for second in range(61):
        now[0] = float(second)
        assert not exporter.send(observation(FakeGpu("GPU-a")))
    assert (exporter.failed, len(said)) == (61, 2)
    channel.broken = False
    assert exporter.send(observation(FakeGpu("GPU-a")))


def test_without_gpus_nothing_is_sent_and_the_reason_is_said() -> None:
    """An agent on a node without a driver is a mistake to be seen, not a crash."""
    said: list[str] = []
    channel = FakeChannel()
    exporter = exporter_on(channel, said.append, lambda: 0.0)
    assert not exporter.send(observation(init=9))
    assert channel.requests == []
    assert said == ["tidegate agent: NVML is absent: Driver Not Loaded\n"]
