"""Shadow, take-over, restart, settings: what happens around the law."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from admission.core.controller import ClassConfig, ControllerConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import (
    Admitted,
    Finished,
    GateChanged,
    Held,
    LimitChanged,
    Queued,
    Rejected,
    Sample,
    ShadowDecided,
)
from admission.core.saved import SavedState
from admission.core.settings import default_classes
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, Sight, SignalKind, Verdict
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

SMALL: dict[str, Any] = {"prompt_tokens": 100, "max_tokens": 100}


def shadow(**settings: Any) -> Bench:
    """A target in shadow."""
    return Bench(mode=Mode.SHADOW, **settings)


def test_shadow_admits_everything_and_records_what_it_would_have_said() -> None:
    """Trust comes first."""
    classes = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(queue_tickets=1)}
    bench = shadow(limit=FULL_AT_100K, classes=classes)
    full = bench.fill()
    queued, rejected = only(Admitted, bench.submit(**SMALL)), only(Admitted, bench.submit(**SMALL))
    assert isinstance(queued.shadow, Queued)
    assert isinstance(rejected.shadow, Rejected)
    assert rejected.shadow.reason is Reason.QUEUE_FULL
    assert bench.core.view(bench.now).in_flight == 3
    bench.now += 0.5
    later = only(ShadowDecided, bench.finish(full))
    assert (later.verdict, later.waited_s) == (Verdict.ADMITTED, 0.5)
    assert bench.core.view(bench.now).used == 200


def test_a_shadow_waiter_whose_patience_ends_is_recorded_as_shed() -> None:
    """It runs on in reality."""
    bench = shadow(limit=FULL_AT_100K)
    bench.fill()
    waiting = bench.ticket(**SMALL)
    bench.submit(waiting)
    later = only(ShadowDecided, bench.wait(1.6))
    assert (later.verdict, later.reason) == (Verdict.SHED, Reason.DEADLINE)
    only(Finished, bench.finish(waiting))


def test_a_shadow_waiter_that_ends_first_leaves_the_queue() -> None:
    """Its virtual fate stays open, unless its caller left."""
    bench = shadow(limit=FULL_AT_100K)
    bench.fill()
    waiting = bench.ticket(**SMALL)
    bench.submit(waiting)
    assert only(ShadowDecided, bench.finish(waiting)).verdict is Verdict.QUEUED
    left = bench.ticket(**SMALL)
    bench.submit(left)
    assert only(ShadowDecided, bench.finish(left, Outcome.ABORTED)).reason is Reason.CANCELLED
    assert bench.core.view(bench.now).queued == 0


def test_the_limit_freezes_while_reality_exceeds_it() -> None:
    """What is measured then is not what enforcing would show."""
    bench = shadow(limit=AimdConfig(initial_tokens=3_000))
    for _ in range(5):
        bench.core.first_token(bench.admit(prompt_tokens=1_000, max_tokens=1).id, bench.now)
    events = bench.wait(1.0)
    assert only(GateChanged, events).state == "frozen"
    assert bench.core.view(bench.now).frozen.startswith("shadow")
    assert some(LimitChanged, events) == []


def test_enforcing_takes_over_what_runs() -> None:
    """Installing us at peak must not be an outage."""
    bench = shadow(limit=AimdConfig(initial_tokens=3_000))
    for _ in range(5):
        bench.admit(prompt_tokens=1_000, max_tokens=1)
    events = bench.core.set_mode(Mode.ENFORCE, bench.now)
    assert only(LimitChanged, events).new == 5_005
    assert bench.core.view(bench.now).used == 5_005
    assert only(GateChanged, events).gate == "mode"


def test_going_back_to_shadow_admits_what_waits() -> None:
    """Nothing waits where nothing is refused."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    waiting = bench.ticket(**SMALL)
    bench.submit(waiting)
    assert only(Admitted, bench.core.set_mode(Mode.SHADOW, bench.now)).ticket is waiting
    bench.submit(**SMALL)
    bench.core.set_mode(Mode.ENFORCE, bench.now)
    assert bench.core.view(bench.now).queued == 0
    bench.core.set_mode(Mode.SHADOW, bench.now)
    bench.submit(**SMALL)
    assert some(Admitted, bench.core.set_mode(Mode.OFF, bench.now)) == []


def test_the_first_scrape_takes_over_what_the_engine_runs() -> None:
    """A fresh start beside a busy engine."""
    bench = Bench(limit=AimdConfig(initial_tokens=2_000))
    change = only(LimitChanged, bench.scrape(running=40))
    assert change.new == 40 * 512
    assert some(LimitChanged, bench.scrape(running=400)) == []


def test_no_take_over_while_the_slo_is_broken() -> None:
    """Then what runs is too much already."""
    bench = shadow(limit=AimdConfig(initial_tokens=2_000))
    tickets = []
    for no in range(9):
        ticket = bench.admit(prompt_tokens=300, max_tokens=1, owner=str(no))
        bench.core.first_token(ticket.id, bench.now)
        tickets.append(ticket)
    for _ in range(8):
        bench.core.progress([(ticket.id, 1, 0.0) for ticket in tickets], bench.now)
        bench.wait(0.5)
    tpot_ratio = bench.core.view(bench.now).tpot_ratio
    assert tpot_ratio is not None
    assert tpot_ratio > 1
    before = bench.core.view(bench.now).limit
    assert some(LimitChanged, bench.core.set_mode(Mode.ENFORCE, bench.now)) == []
    assert bench.core.view(bench.now).limit == before


def test_an_override_holds_until_its_time_or_for_an_hour() -> None:
    """The law goes on from there."""
    bench = Bench(limit=AimdConfig(initial_tokens=2_000, floor_tokens=100))
    change = only(LimitChanged, bench.core.set_limit(10_000, bench.now + 5.0, bench.now))
    assert (change.new, change.why.source.value) == (10_000, "operator")
    bench.admit(prompt_tokens=9_999, max_tokens=1)
    bench.core.law.on_busy(change.why.source)
    assert some(LimitChanged, bench.wait(3.0)) == []
    bench.wait(3.0)
    bench.core.law.on_busy(change.why.source)
    assert len(some(LimitChanged, bench.wait(1.0))) == 1
    assert bench.core.set_limit(None, None, bench.now) == []
    bench.core.set_limit(7_000, None, bench.now)
    assert some(LimitChanged, bench.core.set_limit(7_000, None, bench.now)) == []


def test_new_settings_keep_what_was_learned() -> None:
    """A reload is not a restart."""
    bench = Bench(limit=AimdConfig(initial_tokens=50_000))
    ticket = bench.admit()
    settings: dict[str, Any] = {"mode": Mode.ENFORCE, "ageing_s": 7.0}
    bench.core.reconfigure(ControllerConfig(limit=AimdConfig(ceiling_tokens=40_000), **settings), bench.now)
    assert bench.core.view(bench.now).limit == 40_000
    bench.core.reconfigure(ControllerConfig(limit=FixedConfig(limit_tokens=9), **settings), bench.now)
    assert (bench.core.view(bench.now).limit, bench.core.view(bench.now).limit_algorithm) == (9, "fixed")
    bench.core.reconfigure(ControllerConfig(limit=FixedConfig(limit_tokens=9), **settings), bench.now)
    assert bench.core.knows(ticket.id)
    events = bench.core.reconfigure(ControllerConfig(mode=Mode.OFF), bench.now)
    assert only(GateChanged, events).state == "off"


def test_a_restart_goes_on_from_half_the_saved_limit_with_ghosts() -> None:
    """What the saved permits held counts until it is announced, or its time is over."""
    before = Bench(limit=AimdConfig(initial_tokens=10_000, floor_tokens=100))
    before.core.set_limit(8_000, before.now, before.now)
    tickets = [before.admit(prompt_tokens=400, max_tokens=100, owner="c") for _ in range(4)]
    for length in range(12):
        before.finish(before.admit(prompt_tokens=10), output_tokens=50 + length)
    saved = SavedState(**asdict(before.core.save(before.now)))
    assert (saved.limit, saved.held, saved.held_tokens) == (8_000, 4, 2_000)

    after = Bench(limit=AimdConfig(initial_tokens=10_000, floor_tokens=100), saved=saved)
    view = after.core.view(after.now)
    assert (view.limit, view.untracked) == (4_000, 2_000)
    after.core.reinstate([Held(ticket, 3.0) for ticket in tickets[:2]], after.now)
    left = after.core.view(after.now).untracked
    assert left == 2_000 - after.core.view(after.now).used
    assert after.core.save(after.now).held == 4
    after.core.reinstate([Held(ticket, 3.0) for ticket in tickets[2:]], after.now)
    assert after.core.view(after.now).untracked == 0
    assert after.core.target.cost.predict(after.ticket()).output < 70
    after.wait(31.0)
    assert after.core.target.untracked_count(after.now) == 0


def test_a_saved_state_without_permits_has_no_ghosts() -> None:
    """An idle sidecar restarts with its limit only."""
    bench = Bench(saved=SavedState(limit=50_000, learned=True))
    assert (bench.core.view(bench.now).limit, bench.core.view(bench.now).untracked) == (25_000, 0)


def test_a_saved_limit_is_not_raised_to_what_the_engine_runs() -> None:
    """At a restart under load the engine is full of our own: what it may carry was learned before."""
    bench = Bench(saved=SavedState(limit=10_000, held=12, held_tokens=10_000, learned=True))
    assert some(LimitChanged, bench.scrape(running=40)) == []
    assert bench.core.view(bench.now).limit == 5_000


def test_a_limit_chosen_by_hand_is_moved_by_nobody_but_hands() -> None:
    """Not by what runs already, by no saved state, by no other algorithm before it; an operator's word ends in time."""
    fixed = FixedConfig(limit_tokens=1_200)
    bench = Bench(limit=fixed, saved=SavedState(limit=9_000, learned=True))
    assert bench.core.view(bench.now).limit == 1_200
    assert some(LimitChanged, bench.scrape(running=40)) == []
    bench.core.set_limit(700, bench.now + 5.0, bench.now)
    bench.wait(3.0)
    assert bench.core.view(bench.now).limit == 700
    change = only(LimitChanged, bench.wait(3.0))
    assert (change.old, change.new, change.why.source.value) == (700, 1_200, "operator")
    adaptive = Bench(limit=AimdConfig(initial_tokens=50_000))
    adaptive.core.reconfigure(ControllerConfig(limit=fixed, mode=Mode.ENFORCE), adaptive.now)
    assert adaptive.core.view(adaptive.now).limit == 1_200


def test_ghosts_and_scraped_work_are_never_added() -> None:
    """They are the same requests."""
    bench = Bench(
        saved=SavedState(held=5, held_tokens=5_000, prefill_rate=900.0, tokens_per_chunk=4.0, slots=12)
    )
    for _ in range(2):
        bench.scrape(running=5)
    view = bench.core.view(bench.now)
    assert view.untracked == 5_000
    assert (view.prefill_rate, view.tokens_per_chunk, view.slots) == (900.0, 4.0, 12)
    bench.wait(31.0)
    assert bench.core.view(bench.now).untracked == 0
    for _ in range(2):
        bench.scrape(running=5)
    assert bench.core.view(bench.now).untracked == 5 * 512


def test_one_lost_scrape_is_no_news() -> None:
    """What was seen a moment ago still runs; after a while it is unknown."""
    bench = Bench()
    for _ in range(2):
        bench.scrape(running=5)
    bench.observe(SignalKind.MAX_SEQUENCES, 16)
    assert bench.core.view(bench.now).slots == 16
    bench.observe(SignalKind.ENGINE_UP, 0)
    assert bench.core.view(bench.now).untracked == 5 * 512
    bench.wait(16.0)
    assert bench.core.view(bench.now).untracked == 0


def test_without_any_signal_the_limit_freezes_and_says_so() -> None:
    """And a signal lets it move again."""
    bench = Bench()
    bench.admit()
    changes = some(GateChanged, bench.wait(12.0))
    assert [one.state for one in changes] == ["frozen"]
    assert bench.core.view(bench.now).frozen.startswith("no signal")
    assert bench.core.view(bench.now).sight == Sight.BLIND.value
    for _ in range(4):
        bench.core.sample(Sample(bench.now, Outcome.OK, e2e_s=1.0, ttft_s=0.1, output_tokens=31), bench.now)
    changes = some(GateChanged, bench.wait(1.0))
    assert [one.state for one in changes] == ["moves"]
    assert bench.core.view(bench.now).sight == Sight.HEADER.value


def test_sight_follows_what_is_seen() -> None:
    """Each tier has its own promise."""
    bench = Bench()
    bench.observe(SignalKind.WAITING, 0)
    bench.scrape(running=1)
    assert bench.core.view(bench.now).sight == Sight.HEADER.value
    ticket = bench.admit()
    bench.core.first_token(ticket.id, bench.now)
    assert bench.core.view(bench.now).sight == Sight.PARTIAL.value
    bench.core.progress([(ticket.id, 3, 0.0)], bench.now)
    assert bench.core.view(bench.now).sight == Sight.FULL.value


def test_the_generation_counter_moves_the_limit_without_any_client_report() -> None:
    """Scrape alone must be enough, also when the engine does not say how many run."""
    for tell_running in (True, False):
        bench = Bench(limit=AimdConfig(initial_tokens=4_000, floor_tokens=100))
        for no in range(10):
            bench.core.first_token(bench.admit(prompt_tokens=300, max_tokens=50, owner=str(no)).id, bench.now)
        moved = []
        for second in range(8):
            bench.observe(SignalKind.ENGINE_UP, 1)
            if tell_running:
                bench.observe(SignalKind.RUNNING, 10)
            bench.observe(SignalKind.GENERATION_TOKENS_TOTAL, 50.0 * second)
            moved += some(LimitChanged, bench.wait(1.0))
        assert {one.why.source.value for one in moved} >= {"scrape"} or not tell_running
        assert bench.core.view(bench.now).limit < 4_000
