"""How a target closes and opens again: errors, probes, gates, and what the engine itself refuses."""

from __future__ import annotations

from typing import Any

from admission.core.limits.aimd import AimdConfig
from admission.core.model import (
    Admitted,
    Finished,
    GateChanged,
    LimitChanged,
    Rejected,
    Sample,
    Shed,
)
from admission.vocabulary import EngineState, Outcome, PriorityClass, Reason, SignalKind
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH, INTERNAL = PriorityClass.BATCH, PriorityClass.INTERNAL
SMALL: dict[str, Any] = {"prompt_tokens": 100, "max_tokens": 100}


def test_three_errors_close_the_target_and_a_scrape_reopens_it_in_steps() -> None:
    """Refused at once meanwhile, with a time to come back."""
    bench = Bench(limit=AimdConfig(initial_tokens=64_000))
    bench.scrape()
    bench.wait(1.0)
    tickets = [bench.admit(**SMALL) for _ in range(3)]
    events = [event for ticket in tickets for event in bench.finish(ticket, Outcome.ERROR)]
    assert only(GateChanged, events).state == EngineState.OUTAGE.value
    refused = only(Rejected, bench.submit())
    assert (refused.reason, refused.why.measured) == (Reason.OUTAGE, 3)
    bench.wait(2.0)
    reopened = bench.scrape()
    assert only(LimitChanged, reopened).new == 32_000
    assert only(GateChanged, reopened).state == EngineState.REOPENING.value
    only(Admitted, bench.submit())
    changes = [one for one in some(GateChanged, bench.wait(31.0)) if one.gate == "engine"]
    assert [one.state for one in changes] == [EngineState.UP.value]


def test_without_a_scrape_one_probe_opens_the_target() -> None:
    """Nobody else passes while it is out; waiters held for the outage say so."""
    bench = Bench(limit=FULL_AT_100K)
    full = bench.fill()
    bench.submit(prompt_tokens=50_000)
    for _ in range(2):
        bench.core.recovery.on_end(full.id, Outcome.ERROR, bench.now)
    bench.finish(full, Outcome.ERROR)
    assert bench.core.recovery.closed
    bench.now += 1.25
    probe = only(Admitted, bench.core.wake(bench.now)).ticket
    only(Rejected, bench.submit())
    events = bench.core.first_token(probe.id, bench.now)
    assert some(GateChanged, events)[-1].state == EngineState.REOPENING.value
    assert len(some(LimitChanged, events)) == 0


def test_a_probe_that_ends_well_opens_too() -> None:
    """Short answers end before anybody sees a first token."""
    bench = Bench()
    bench.finish(bench.admit())
    for _ in range(3):
        bench.finish(bench.admit(), Outcome.ERROR)
    assert bench.core.recovery.closed
    bench.wait(1.3)
    probe = bench.admit()
    assert some(GateChanged, bench.finish(probe))[-1].state == EngineState.REOPENING.value


def test_waiters_held_by_critical_kv_expire_with_that_reason() -> None:
    """The reason that helps, not just that time was over."""
    bench = Bench(limit=FULL_AT_100K)
    bench.core.first_token(bench.admit(prompt_tokens=10).id, bench.now)
    changes = some(GateChanged, bench.scrape(kv=0.98, running=1))
    assert changes[-1].state == "critical"
    bench.submit(patience_s=0.4, prompt_tokens=10)
    shed = only(Shed, bench.wait(0.5))
    assert (shed.reason, shed.why.measured) == (Reason.WATERMARK_KV, 0.98)
    bench.submit(prompt_tokens=10)
    only(Admitted, bench.scrape(kv=0.5, running=1))


def test_a_reading_that_goes_stale_opens_the_gate_by_itself() -> None:
    """The tick looks, no reading need come."""
    bench = Bench(limit=FULL_AT_100K)
    bench.admit(prompt_tokens=10)
    bench.scrape(kv=0.98, running=1)
    bench.submit(prompt_tokens=10, priority=BATCH)
    events = bench.wait(5.0)
    assert [one.state for one in some(GateChanged, events) if one.gate == "kv"] == ["open"]


def test_a_gate_that_shuts_clears_the_queue_of_those_it_refuses() -> None:
    """They learn it now, not at their deadline."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.submit(priority=INTERNAL, **SMALL)
    bench.submit(**SMALL)
    assert only(Shed, bench.scrape(kv=0.92)).reason is Reason.WATERMARK_KV
    drained = bench.core.set_drain(True, bench.now)
    assert [one.reason for one in some(Shed, drained)] == [Reason.DRAINING]
    assert bench.core.set_drain(True, bench.now) == []
    assert only(Rejected, bench.submit()).reason is Reason.DRAINING
    bench.core.set_drain(False, bench.now)
    assert bench.core.view(bench.now).draining is False


def test_the_engines_own_refusal_is_back_pressure() -> None:
    """A 503 of the engine cuts the limit and is no fast success."""
    bench = Bench(limit=AimdConfig(initial_tokens=1_000, floor_tokens=100))
    tickets = [bench.admit(prompt_tokens=200, max_tokens=100) for _ in range(3)]
    done = only(Finished, bench.finish(tickets[0], Outcome.BUSY))
    assert done.good is False
    change = only(LimitChanged, bench.wait(1.0))
    assert (change.new, change.why.source.value) == (510, "own")


def test_a_failed_span_and_one_without_tokens_say_nothing_of_pace() -> None:
    """Unknown is not fast."""
    bench = Bench()
    for sample in (Sample(bench.now, Outcome.ERROR, output_tokens=9), Sample(bench.now, Outcome.OK)):
        assert bench.core.sample(sample, bench.now) == []
    bench.wait(1.0)
    assert bench.core.view(bench.now).tpot_ratio is None


def test_a_busy_span_and_preemptions_count_alike() -> None:
    """Whoever sees it first."""
    for kind in ("span", "scrape"):
        bench = Bench(limit=AimdConfig(initial_tokens=1_000, floor_tokens=100))
        bench.admit(prompt_tokens=900, max_tokens=10)
        if kind == "span":
            bench.core.sample(Sample(bench.now, Outcome.BUSY), bench.now)
        else:
            bench.observe(SignalKind.PREEMPTIONS_TOTAL, 4)
            bench.observe(SignalKind.PREEMPTIONS_TOTAL, 6)
        assert only(LimitChanged, bench.wait(1.0)).why.source.value == (
            "spans" if kind == "span" else "scrape"
        )
