"""A snapshot as a busy sidecar would send it."""

from __future__ import annotations

from admission.v1.monitor_service_pb2 import (
    Change,
    ClassSnapshot,
    Count,
    GateSnapshot,
    GpuSnapshot,
    Percentiles,
    SignalSnapshot,
    Snapshot,
    TargetSnapshot,
)
from admission.v1.types_pb2 import Mode, Reason, Verdict

NOW_S = 1_800_000_000


def target(mode: Mode.ValueType = Mode.MODE_ENFORCE) -> TargetSnapshot:
    """A target with a hot KV cache."""
    found = TargetSnapshot(
        name="chat",
        mode=mode,
        limit_algorithm="aimd",
        limit_tokens=32_000,
        used_tokens=30_000,
        in_flight=41,
        queued=7,
        prefill_budget_tokens=4_000,
        pending_prompt_tokens=900,
        prefill_rate=8_000,
        kv_usage_ratio=0.93,
        kv_capacity_tokens=120_000,
        kv_hot_on=0.9,
        kv_hot_off=0.86,
        kv_critical=0.97,
        engine_running=40,
        engine_waiting=1,
        engine_state="up",
        sight="full",
    )
    found.classes.append(interactive())
    found.gates.append(GateSnapshot(name="kv", state="hot", why="KV usage 0.93 over 0.90"))
    found.changes.append(change(30, "32000", "24000", "TPOT 1.30 of its SLO"))
    return found


def interactive() -> ClassSnapshot:
    """A class whose TTFT misses its SLO."""
    return ClassSnapshot(
        name="interactive",
        in_flight=41,
        queued=7,
        ttft=Percentiles(p50=0.4, p95=2.5, p99=3.1, count=100),
        tpot=Percentiles(p50=0.02, p95=0.05, p99=0.07, count=100),
        slo_ttft_s=2.0,
        slo_tpot_s=0.08,
        slo_is_default=True,
        counts=[
            Count(verdict=Verdict.VERDICT_ADMITTED, total=900),
            Count(verdict=Verdict.VERDICT_QUEUED, total=50),
            Count(verdict=Verdict.VERDICT_REJECTED, reason=Reason.REASON_WATERMARK_KV, total=12),
            Count(verdict=Verdict.VERDICT_SHED, reason=Reason.REASON_DEADLINE, total=30),
        ],
        good=800,
        finished=850,
    )


def change(ago_s: int, old: str, new: str, why: str) -> Change:
    """A move of the limit some seconds ago."""
    found = Change(what="limit", old=old, new=new, why=why, source="scrape")
    found.at.FromSeconds(NOW_S - ago_s)
    return found


def snapshot(*targets: TargetSnapshot) -> Snapshot:
    """Everything, with one GPU and one stale signal."""
    found = Snapshot(version="1.2.3", sessions=2, targets=targets or (target(),), warnings=["disk full"])
    found.at.FromSeconds(NOW_S)
    found.uptime.FromSeconds(90)
    gpu = GpuSnapshot(uuid="GPU-1", name="H100", target="chat", state="ok", memory_free_bytes=5 << 30)
    found.gpus.append(gpu)
    stale = SignalSnapshot(target="chat", name="waiting", source="scrape", state="stale")
    stale.age.FromSeconds(12)
    found.signals.append(stale)
    missing = SignalSnapshot(
        target="chat", name="spans", source="spans", state="missing", warning="none came yet"
    )
    found.signals.append(missing)
    return found
