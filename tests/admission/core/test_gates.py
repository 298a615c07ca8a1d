"""The gates before the limit: KV, VRAM, drain."""

from __future__ import annotations

import pytest

from admission.core.gates.base import Hold, Refuse
from admission.core.gates.drain import Drain, DrainConfig
from admission.core.gates.kv import KvConfig, KvWatermark
from admission.core.gates.vram import MAX_GPUS, VramConfig, VramWatermark
from admission.core.model import Reading, Ticket, TicketId
from admission.vocabulary import PriorityClass, Reason, SignalKind, Source

CHAT = Ticket(TicketId("s", 1))
INTERNAL = Ticket(TicketId("s", 2), PriorityClass.INTERNAL)
GIB = 1 << 30
UUID = "GPU-5ca1ab1e"


def kv(gate: KvWatermark, ratio: float, now: float) -> bool:
    """A KV reading."""
    return gate.observe(Reading(SignalKind.KV_USAGE_RATIO, ratio, now, Source.SCRAPE, "a"), now)


def vram(gate: VramWatermark, free: float, now: float, uuid: str = UUID, total: float = 80 * GIB) -> bool:
    """Total and free bytes of a GPU."""
    gate.observe(Reading(SignalKind.VRAM_TOTAL_BYTES, total, now, Source.NVML, uuid), now)
    return gate.observe(Reading(SignalKind.VRAM_FREE_BYTES, free, now, Source.NVML, uuid), now)


def learned(free: float, **settings: object) -> VramWatermark:
    """A VRAM gate that knows its GPU's baseline."""
    gate = VramWatermark(VramConfig(**settings))  # type: ignore[arg-type]
    gate.on_engine_start(0.0)
    for second in range(25):
        vram(gate, free, float(second))
    return gate


def test_kv_critical_holds_and_hot_ends_only_below_its_own_mark() -> None:
    """Hysteresis: a reading on the mark must not flap the gate."""
    gate = KvWatermark(KvConfig())
    assert kv(gate, 0.98, 1.0)
    held = gate.check(CHAT, idle=False, now=1.0)
    assert isinstance(held, Hold)
    assert (held.reason, held.why.measured, held.why.threshold) == (Reason.WATERMARK_KV, 0.98, 0.97)
    assert kv(gate, 0.88, 2.0)
    assert gate.state == "hot"
    assert gate.check(CHAT, idle=False, now=2.0) is None
    assert kv(gate, 0.85, 3.0)
    assert (gate.state, gate.hot) == ("open", False)
    assert not kv(gate, 0.88, 4.0)


def test_hot_refuses_the_last_class() -> None:
    """Internal traffic gives way first."""
    gate = KvWatermark(KvConfig())
    kv(gate, 0.91, 1.0)
    refused = gate.check(INTERNAL, idle=False, now=1.0)
    assert isinstance(refused, Refuse)
    assert "0.91" in refused.why.detail
    assert gate.view().last_fired_at == 1.0


def test_a_frozen_gauge_does_not_lock_an_idle_engine_out() -> None:
    """KV stuck at 99 % with nothing of ours running: one request is worth more than the gauge."""
    gate = KvWatermark(KvConfig())
    kv(gate, 0.99, 1.0)
    assert gate.check(CHAT, idle=True, now=1.0) is None


def test_a_stale_kv_reading_opens_the_gate() -> None:
    """A dead exporter must not become an outage."""
    gate = KvWatermark(KvConfig())
    assert gate.view().why.detail == "KV usage is not known"
    kv(gate, 0.99, 1.0)
    assert gate.on_tick(30.0)
    assert gate.state == "open"


def test_a_disabled_kv_gate_and_foreign_readings_do_nothing() -> None:
    """Other signals are not its business."""
    gate = KvWatermark(KvConfig(enabled=False))
    assert not kv(gate, 0.99, 1.0)
    assert not gate.observe(Reading(SignalKind.RUNNING, 5.0, 1.0, Source.SCRAPE), 1.0)
    gate.reconfigure(KvConfig())
    assert gate.on_tick(1.5)
    assert gate.state == "critical"


def test_a_gate_that_no_reading_concerns_ignores_them_all() -> None:
    """The controller asks those alone that say which readings concern them."""
    drain = Drain(DrainConfig())
    assert not drain.concerns
    assert not any(drain.observe(Reading(kind, 1.0, 1.0, Source.SCRAPE), 1.0) for kind in SignalKind)


def test_a_gate_that_time_does_not_open_names_no_instant() -> None:
    """The controller asks those alone that say that time may open them."""
    drain = Drain(DrainConfig())
    assert not drain.timed
    assert drain.next_at() is None


def test_a_preallocating_engine_may_fill_its_gpu() -> None:
    """The engine vLLM takes 90 % at start: a naive mark on used memory would refuse for ever."""
    gate = learned(7 * GIB)
    assert gate.gpus()[UUID].rule == "preallocating"
    assert gate.check(CHAT, idle=False, now=25.0) is None


def test_another_process_on_the_gpu_is_refused_by_name_and_reopens_with_hysteresis() -> None:
    """Half of what the engine leaves free is gone: somebody else took it."""
    gate = learned(8 * GIB)
    assert vram(gate, 3.9 * GIB, 26.0)
    refused = gate.check(CHAT, idle=True, now=26.0)
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.WATERMARK_VRAM
    assert UUID in refused.why.detail
    assert refused.why.threshold == 4 * GIB
    assert not vram(gate, 4.5 * GIB, 27.0)
    assert vram(gate, 4.9 * GIB, 28.0)
    assert gate.check(CHAT, idle=False, now=28.0) is None
    assert gate.view().last_fired_at == 26.0


def test_a_small_baseline_does_not_keep_the_gate_shut() -> None:
    """An engine that leaves 400 MiB free would else be critical at rest."""
    gate = learned(0.4 * GIB)
    assert gate.view().state == "open"
    assert gate.gpus()[UUID].critical_free_bytes == int(0.3 * GIB)


def test_a_growing_engine_has_marks_on_the_whole() -> None:
    """HF, Triton, diffusion: they take memory as they work."""
    gate = learned(60 * GIB)
    assert gate.gpus()[UUID].rule == "growing"
    assert vram(gate, 11 * GIB, 26.0)
    assert (gate.view().state, gate.hot) == ("high", True)
    assert gate.check(CHAT, idle=False, now=26.0) is None
    assert vram(gate, 7 * GIB, 27.0)
    assert isinstance(gate.check(CHAT, idle=False, now=27.0), Refuse)


def test_nothing_is_critical_while_the_baseline_is_unknown() -> None:
    """A loading engine fills the GPU: that is its job. Before it is up nothing is learned at all."""
    gate = VramWatermark(VramConfig())
    assert gate.view().why.detail == "no GPU memory reading"
    for second in range(60):
        vram(gate, 1.0 * GIB, float(second))
    assert gate.gpus()[UUID].rule == "learning"
    assert gate.check(CHAT, idle=False, now=60.0) is None


def test_the_baseline_is_learned_again_after_a_restart() -> None:
    """Another model may leave another amount."""
    gate = learned(8 * GIB)
    gate.on_engine_start(30.0)
    assert gate.gpus()[UUID].baseline_bytes is None
    for second in range(25):
        vram(gate, 2 * GIB, 31.0 + second)
    assert gate.gpus()[UUID].baseline_bytes == 2 * GIB
    assert gate.check(CHAT, idle=False, now=60.0) is None


def test_a_stale_gpu_reading_opens_the_gate() -> None:
    """A lost GPU says nothing; it is shown as stale."""
    gate = learned(8 * GIB)
    vram(gate, 1 * GIB, 26.0)
    assert gate.on_tick(40.0)
    assert gate.view().state == "stale"
    assert gate.check(CHAT, idle=False, now=40.0) is None


def test_the_rule_can_be_set_and_the_gate_switched_off() -> None:
    """The operator knows the engine."""
    gate = learned(60 * GIB, rule="preallocating")
    assert gate.gpus()[UUID].rule_why == "set in configuration"
    vram(gate, 20 * GIB, 26.0)
    assert gate.view().state == "critical"
    gate.reconfigure(VramConfig(enabled=False))
    assert gate.on_tick(26.5)
    assert gate.view().state == "open"


def test_a_growing_rule_without_a_total_cannot_judge() -> None:
    """Missing is not zero."""
    gate = VramWatermark(VramConfig(rule="growing"))
    gate.observe(Reading(SignalKind.VRAM_FREE_BYTES, 1.0, 1.0, Source.NVML, UUID), 1.0)
    assert gate.view().state == "open"


def test_gpus_are_bounded_and_other_readings_ignored() -> None:
    """Invented UUIDs must not fill the memory."""
    gate = VramWatermark(VramConfig())
    for no in range(MAX_GPUS + 5):
        vram(gate, 1.0, 0.0, str(no))
    assert len(gate.gpus()) == MAX_GPUS
    assert not gate.observe(Reading(SignalKind.GPU_POWER_W, 1.0, 0.0, Source.NVML, UUID), 0.0)


def test_drain_refuses_all() -> None:
    """And says that an operator did it."""
    gate = Drain(DrainConfig())
    assert gate.check(CHAT, idle=True, now=1.0) is None
    gate.draining = True
    refused = gate.check(CHAT, idle=True, now=1.0)
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.why.source) == (Reason.DRAINING, Source.OPERATOR)
    gate.reconfigure(DrainConfig(retry_after_s=3.0))
    again = gate.check(CHAT, idle=True, now=2.0)
    assert isinstance(again, Refuse)
    assert again.retry_after_s == 3.0


@pytest.mark.parametrize(
    ("config", "bad"),
    [
        (KvConfig, {"hot_off": 0.95}),
        (KvConfig, {"retry_after_s": 0.0}),
        (VramConfig, {"baseline_share": 1.0}),
        (VramConfig, {"growing_high": 0.95}),
        (VramConfig, {"reopen_factor": 1.0}),
        (VramConfig, {"learn_s": 0.0}),
        (DrainConfig, {"retry_after_s": 0.0}),
    ],
)
def test_impossible_settings_are_refused(config: type, bad: dict[str, float]) -> None:
    """With their name."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        config(**bad)
