"""A GPU that is lost is written down where the limit's changes are."""

from __future__ import annotations

from admission.core.model import GateChanged
from admission.server.gpus import GpuStates
from admission.vocabulary import Source
from telemetry.link import GpuReport

UUID = "GPU-9e21c0de-0000-0000-0000-000000000000"


def seen(states: GpuStates, state: str, target: str = "chat") -> list[tuple[str, GateChanged]]:
    """What one view brings."""
    return list(states.changes([GpuReport(UUID, "H100", "node-1", target, state=state)]))


def test_a_lost_gpu_is_a_change_of_its_target_and_so_is_its_return() -> None:
    """Once each, not once a second."""
    states = GpuStates({"chat"})
    assert seen(states, "ok") == []

    ((target, lost),) = seen(states, "lost")
    assert (target, lost.gate, lost.old, lost.state) == ("chat", "gpu GPU-9e21c0de", "ok", "lost")
    assert lost.why.detail == f"H100 {UUID} on node-1 does not answer"
    assert lost.why.source is Source.NVML
    assert seen(states, "lost") == []

    ((_, back),) = seen(states, "ok")
    assert (back.old, back.state) == ("lost", "ok")


def test_one_that_is_lost_from_the_start_is_told() -> None:
    """A restart of the sidecar must not hide it."""
    assert len(seen(GpuStates({"chat"}), "lost")) == 1


def test_a_gpu_of_no_target_changes_none() -> None:
    """It is listed with its state, and that is all that can be said."""
    states = GpuStates({"chat"})

    assert seen(states, "ok", "") == seen(states, "lost", "") == []


def test_memory_is_bounded() -> None:
    """An exporter that invents names."""
    states = GpuStates({"chat"})

    for number in range(5000):
        list(states.changes([GpuReport(f"GPU-{number}", target="chat")]))

    assert len(states._states) == 1024
