"""Scripted states of a sidecar, as functions of time: to draw pages without one, and to test them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types

ONSET_S = 360.0
"""Every scene begins quiet; what it is about begins here, four minutes before the end of its ten."""
GIB = 2**30
_BOOT = b"scripted"


@dataclass(frozen=True, slots=True)
class Load:
    """What one target does at one moment. Durations in seconds, rates per second."""

    limit: float = 64_000
    used: float = 38_000
    in_flight: int = 41
    queued: Mapping[str, int] = field(default_factory=dict)
    kv: float | None = 0.61
    ttft_s: float | None = 0.42
    tpot_s: float | None = 0.031
    admitted: Mapping[str, float] = field(default_factory=lambda: {"interactive": 9.0, "batch": 3.0})
    refused: Mapping[tuple[str, str], float] = field(default_factory=dict)
    free_bytes: float | None = 6.2 * GIB
    good_share: float = 0.995


@dataclass(frozen=True, slots=True)
class Scene:
    """One state to show. `load` is a function of seconds since the scene began, `touch` edits the snapshot."""

    name: str
    load: Callable[[float], Load]
    touch: Callable[[monitor.Snapshot, float], None] = lambda _snapshot, _at: None
    mode: types.Mode.ValueType = types.MODE_ENFORCE
    targets: tuple[str, ...] = ("default",)
    began_s: float = 0.0
    """History starts here."""
    hole: tuple[float, float] = (0.0, 0.0)
    """No history between these."""


def _wave(at: float, period_s: float, depth: float) -> float:
    return 1.0 + depth * math.sin(at * 2 * math.pi / period_s) + 0.3 * depth * math.sin(at * 2.7)


def quiet(at: float) -> Load:
    """A working day: two thirds of the limit, nobody waits."""
    return Load(
        used=38_000 * _wave(at, 170, 0.12),
        in_flight=int(41 * _wave(at, 170, 0.12)),
        kv=0.61 * _wave(at, 170, 0.08),
        ttft_s=0.42 * _wave(at, 61, 0.2),
        tpot_s=0.031 * _wave(at, 90, 0.1),
        free_bytes=6.2 * GIB,
    )


def burst(at: float) -> Load:
    """Three times more arrives than can be done: the limit falls, batch is refused first."""
    if at < ONSET_S:
        return quiet(at)
    since = at - ONSET_S
    limit = max(41_000, 64_000 - 900 * since) * _wave(at, 35, 0.03)
    return Load(
        limit=limit,
        used=limit * 0.97,
        in_flight=int(52 * _wave(at, 50, 0.05)),
        queued={"interactive": 2, "batch": int(34 * _wave(at, 40, 0.2))},
        kv=0.83 * _wave(at, 45, 0.03),
        ttft_s=1.35 * _wave(at, 31, 0.15),
        tpot_s=0.081 * _wave(at, 27, 0.06),
        admitted={"interactive": 11.5 * _wave(at, 20, 0.1), "batch": 1.1},
        refused={
            ("batch", "QUEUE_FULL"): 8.2 * _wave(at, 25, 0.2),
            ("batch", "DEADLINE"): 0.6,
            ("interactive", "TTFT_FORECAST"): 1.4 * _wave(at, 33, 0.4),
        },
        good_share=0.972,
    )


def kv_full(at: float) -> Load:
    """The KV cache passes its critical mark: nothing is admitted."""
    if at < ONSET_S:
        return quiet(at)
    grown = min(1.0, 0.72 + 0.0012 * (at - ONSET_S))
    return replace(
        burst(at),
        limit=22_000,
        used=61_000,
        kv=grown if grown < 0.97 else 0.98,
        refused={("interactive", "WATERMARK_KV"): 9.3, ("batch", "WATERMARK_KV"): 5.1},
        admitted={"interactive": 0.4},
        tpot_s=0.142,
    )


def gpu_gone(at: float) -> Load:
    """One of the GPUs no longer answers."""
    return replace(quiet(at), free_bytes=6.2 * GIB if at < ONSET_S else None)


def just_started(_at: float) -> Load:
    """A sidecar of twenty seconds: no request, no sample."""
    return Load(
        limit=8_000,
        used=0,
        in_flight=0,
        kv=None,
        ttft_s=None,
        tpot_s=None,
        admitted={},
        free_bytes=None,
        good_share=0,
    )


def _shed(snapshot: monitor.Snapshot, at: float) -> None:
    for target in snapshot.targets:
        target.tpot_ratio = 1.02
        target.pending_prompt_tokens = 11_400
        _change(
            target, at - 3, "limit", "42100", "41000", "TPOT p90 82 ms over its SLO 80 ms", 0.082, 0.08, "own"
        )
        _change(
            target,
            at - 31,
            "limit",
            "47800",
            "42100",
            "TPOT p90 91 ms over its SLO 80 ms",
            0.091,
            0.08,
            "own",
        )
        _change(
            target,
            at - 96,
            "limit",
            "58000",
            "47800",
            "TPOT p90 97 ms over its SLO 80 ms",
            0.097,
            0.08,
            "spans",
        )
        _change(
            target,
            ONSET_S + 4,
            "limit",
            "64000",
            "58000",
            "TPOT p90 88 ms over its SLO 80 ms",
            0.088,
            0.08,
            "own",
        )
        _change(
            target,
            12,
            "limit",
            "63200",
            "64000",
            "the budget binds and TPOT is at 0.39 of its SLO",
            0.39,
            0.9,
            "law",
        )


def _fill_kv(snapshot: monitor.Snapshot, at: float) -> None:
    for target in snapshot.targets:
        gate = next(gate for gate in target.gates if gate.name == "kv")
        gate.state, gate.why = "critical", "KV usage 0.98 over critical 0.97"
        gate.measured, gate.threshold = 0.98, 0.97
        _change(
            target,
            at - 8,
            "kv",
            "hot",
            "critical",
            "KV usage 0.98 over critical 0.97",
            0.98,
            0.97,
            "scrape",
        )
        _change(
            target, at - 8, "limit", "41000", "22000", "KV usage critical: cut hard", 0.98, 0.97, "scrape"
        )
        _change(target, at - 70, "kv", "open", "hot", "KV usage 0.91 over hot 0.90", 0.91, 0.9, "scrape")


def _lose_gpu(snapshot: monitor.Snapshot, _at: float) -> None:
    lost = snapshot.gpus[1]
    lost.state = "lost"
    lost.age.FromSeconds(241)
    for name in ("memory_used_bytes", "memory_free_bytes", "utilization_ratio", "power_w", "temperature_c"):
        lost.ClearField(name)
    snapshot.warnings.append("NVML: GPU-9e21c0de is lost: it fell off the bus; looking for it every 5 s")


def _go_stale(snapshot: monitor.Snapshot, _at: float) -> None:
    for signal in snapshot.signals:
        if signal.source in {"scrape", "spans"}:
            signal.state = "stale" if signal.source == "scrape" else "missing"
            signal.age.FromSeconds(48)
    snapshot.signals[1].warning = "the scrape answered HTML: is http://127.0.0.1:8000/metrics the engine?"
    for target in snapshot.targets:
        target.sight = "partial"
        target.frozen = "KV usage is stale for 48 s"
        target.ClearField("kv_usage_ratio")
        target.ClearField("engine_running")


def _start(snapshot: monitor.Snapshot, _at: float) -> None:
    snapshot.uptime.FromSeconds(20)
    snapshot.sessions = 0
    del snapshot.signals[:]
    del snapshot.gpus[:]
    snapshot.warnings.append("state_dir is not writable: limits are kept in memory only")
    for target in snapshot.targets:
        target.engine_state = "starting"
        target.sight = "blind"
        target.prefill_budget_tokens = 0
        target.ClearField("engine_running")


def _die(snapshot: monitor.Snapshot, at: float) -> None:
    for target in snapshot.targets:
        target.engine_state = "outage"
        _change(target, at - 20, "engine", "up", "outage", "9 of 10 requests failed", 0.9, 0.5, "own")


def _off(snapshot: monitor.Snapshot, _at: float) -> None:
    for target in snapshot.targets:
        target.mode = types.MODE_OFF


def _change(
    target: monitor.TargetSnapshot,
    at: float,
    what: str,
    old: str,
    new: str,
    why: str,
    measured: float,
    threshold: float,
    source: str,
) -> None:
    """Put a change before the later ones; `at` in scene seconds, made absolute by the fake."""
    change = monitor.Change(
        what=what, old=old, new=new, why=why, measured=measured, threshold=threshold, source=source
    )
    change.at.FromNanoseconds(int(at * 1e9))
    target.changes.insert(0, change)


SCENES: Mapping[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene("healthy", quiet),
        Scene("overload", burst, _shed, hole=(200, 232)),
        Scene("shadow", burst, _shed, mode=types.MODE_SHADOW),
        Scene("kv_critical", kv_full, _fill_kv),
        Scene("gpu_lost", gpu_gone, _lose_gpu),
        Scene("stale", quiet, _go_stale),
        Scene("starting", just_started, _start, mode=types.MODE_SHADOW, began_s=580),
        Scene("outage", quiet, _die),
        Scene("off", quiet, _off),
        Scene("two_targets", quiet, targets=("llama-70b", "qwen-7b")),
    )
}
