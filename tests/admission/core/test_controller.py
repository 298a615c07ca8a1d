"""One target's admission, input by input."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.controller import ClassConfig, RetryAfterConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import (
    Admitted,
    Finished,
    Queued,
    Rejected,
    Shed,
)
from admission.core.prefill import PrefillConfig
from admission.core.settings import KvForecastConfig, default_classes
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH, INTERNAL = PriorityClass.BATCH, PriorityClass.INTERNAL
SMALL: dict[str, Any] = {"prompt_tokens": 100, "max_tokens": 100}


def test_an_idle_engine_takes_any_ticket_that_fits_it() -> None:
    """However large: else it would wait for ever."""
    bench = Bench(limit=FixedConfig(limit_tokens=10))
    admitted = only(Admitted, bench.submit(prompt_tokens=5_000))
    assert admitted.waited_s == 0.0


def test_a_full_limit_queues_and_a_finish_admits() -> None:
    """In order of arrival, with the time waited."""
    bench = Bench(limit=FULL_AT_100K)
    full = bench.fill()
    first, second = bench.ticket(**SMALL), bench.ticket(**SMALL)
    assert only(Queued, bench.submit(first)).position == 1
    assert only(Queued, bench.submit(second)).position == 2
    bench.now += 0.5
    admitted = some(Admitted, bench.finish(full))
    assert [one.ticket for one in admitted] == [first, second]
    assert admitted[0].waited_s == 0.5


def test_a_smaller_ticket_does_not_slip_past_a_large_one() -> None:
    """Else large ones starve."""
    bench = Bench(limit=FULL_AT_100K)
    bench.admit(prompt_tokens=50_000, max_tokens=1, priority=BATCH)
    bench.core.first_token(bench.core.held_by("s")[0], bench.now)
    only(Queued, bench.submit(priority=BATCH, prompt_tokens=60_000))
    only(Queued, bench.submit(priority=BATCH, prompt_tokens=10))


def test_the_same_ticket_twice_is_misuse() -> None:
    """Queued or in flight."""
    bench = Bench(limit=FULL_AT_100K)
    full = bench.fill()
    waiting = bench.ticket()
    bench.submit(waiting)
    for known in (full, waiting):
        with pytest.raises(ValueError, match="known"):
            bench.core.submit(known, bench.now)


def test_a_second_finish_is_ignored_and_counted() -> None:
    """Networks repeat themselves."""
    bench = Bench()
    ticket = bench.admit()
    bench.finish(ticket)
    assert bench.finish(ticket) == []
    assert bench.core.ignored_finishes == 1


def test_patience_ends_by_timer_with_its_reason() -> None:
    """Not when somebody happens to look."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.submit(**SMALL)
    shed = only(Shed, bench.wait(1.6))
    assert shed.reason is Reason.DEADLINE
    patience_s = ClassConfig().patience_for(100)
    assert (shed.waited_s, shed.why.threshold) == pytest.approx((patience_s, patience_s))
    assert shed.retry_after_s is not None


def test_a_caller_may_be_less_patient_than_its_class_but_not_more() -> None:
    """The class's patience is the operator's bound."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.submit(patience_s=0.2, **SMALL)
    bench.submit(patience_s=90.0, **SMALL)
    assert only(Shed, bench.wait(0.3)).why.threshold == pytest.approx(0.2)
    assert only(Shed, bench.wait(1.3)).why.threshold == pytest.approx(ClassConfig().patience_for(100))


def test_a_ticket_without_patience_left_is_rejected() -> None:
    """Waiting elsewhere counts."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    rejected = only(Rejected, bench.submit(patience_s=0.0, **SMALL))
    assert rejected.reason is Reason.DEADLINE


def test_the_queue_is_bounded_in_count_and_in_prompt_tokens() -> None:
    """Ten prompts of 100k tokens are not ten."""
    classes = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(queue_tickets=2, queue_rate_s=2.0)}
    bench = Bench(limit=FULL_AT_100K, classes=classes)
    bench.fill()
    bench.submit(**SMALL)
    tokens = only(Rejected, bench.submit(prompt_tokens=15_950, max_tokens=1))
    assert (tokens.reason, tokens.why.measured, tokens.why.threshold) == (Reason.QUEUE_TOKENS, 16_050, 16_000)
    bench.submit(**SMALL)
    full = only(Rejected, bench.submit(**SMALL))
    assert (full.reason, full.why.measured, full.position) == (Reason.QUEUE_FULL, 2, 3)


def test_retry_after_follows_the_drain_rate_within_bounds_and_with_jitter() -> None:
    """Callers refused together must not come back together."""
    classes = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(queue_tickets=1)}
    bench = Bench(limit=FULL_AT_100K, classes=classes, retry_after=RetryAfterConfig(max_s=9.0))
    bench.fill()
    bench.core.target.drained.add(270)
    bench.wait(1.0)
    bench.submit(prompt_tokens=100, max_tokens=60)
    answers = [only(Rejected, bench.submit(**SMALL)).retry_after_s or 0 for _ in range(50)]
    assert 6.0 <= min(answers) < max(answers) <= 9.0
    assert len(set(answers)) > 10


def test_cancel_removes_a_waiter_at_once_and_gives_a_permit_back() -> None:
    """A grant that raced with the cancellation leaves nothing behind."""
    bench = Bench(limit=FULL_AT_100K)
    full, waiting = bench.fill(), bench.ticket()
    bench.submit(waiting)
    shed = only(Shed, bench.core.cancel(waiting.id, bench.now))
    assert (shed.reason, shed.retry_after_s) == (Reason.CANCELLED, None)
    assert only(Finished, bench.core.cancel(full.id, bench.now)).completion.outcome is Outcome.ABORTED
    assert bench.core.cancel(full.id, bench.now) == []
    assert bench.core.view(bench.now).in_flight == 0


def test_each_class_leaves_room_for_the_more_urgent() -> None:
    """Order alone is not enough when the limit is full of batch."""
    bench = Bench(limit=FULL_AT_100K)
    first = bench.admit(priority=BATCH, prompt_tokens=60_000, max_tokens=1)
    bench.core.first_token(first.id, bench.now)
    only(Queued, bench.submit(priority=BATCH, prompt_tokens=20_000, max_tokens=1))
    only(Admitted, bench.submit(prompt_tokens=20_000, max_tokens=1))


def test_a_prompt_larger_than_the_engine_is_refused_for_good() -> None:
    """Without Retry-After: coming back cannot help."""
    bench = Bench()
    bench.scrape(capacity=3_000)
    rejected = only(Rejected, bench.submit(prompt_tokens=3_000))
    assert (rejected.reason, rejected.retry_after_s, rejected.why.threshold) == (
        Reason.NEVER_FITS,
        None,
        3_000,
    )


def test_the_kv_forecast_keeps_what_is_admitted_under_the_capacity() -> None:
    """Preemption recomputes work: better to wait."""
    bench = Bench(kv_forecast=KvForecastConfig(set_point=1.0))
    bench.scrape(capacity=1_000, kv=0.1)
    bench.core.first_token(bench.admit(prompt_tokens=600, max_tokens=100).id, bench.now)
    only(Queued, bench.submit(prompt_tokens=400, max_tokens=100))
    only(
        Admitted,
        bench.submit(prompt_tokens=200, max_tokens=100, priority=PriorityClass.INTERACTIVE, owner="t"),
    ) if False else None
    assert bench.core.target.refused_for_other


def test_shared_prefixes_make_room() -> None:
    """KV measured over KV in the ledger scales the forecast."""
    bench = Bench(limit=FULL_AT_100K)
    bench.scrape(capacity=10_000)
    held = bench.admit(prompt_tokens=9_000, max_tokens=10)
    bench.core.first_token(held.id, bench.now)
    only(Queued, bench.submit(prompt_tokens=900, max_tokens=10, patience_s=0.1))
    for _ in range(30):
        bench.wait(1.0)
        bench.core.renew("s", bench.now)
        bench.scrape(capacity=10_000, kv=0.2, running=1)
    only(Admitted, bench.submit(prompt_tokens=900, max_tokens=10))


def test_work_that_did_not_pass_us_counts() -> None:
    """Bypass and fail-open traffic fills the same engine."""
    bench = Bench(limit=FixedConfig(limit_tokens=2_000))
    bench.admit(**SMALL)
    for _ in range(2):
        bench.scrape(running=9, waiting=2, kv=0.5, capacity=100_000)
    view = bench.core.view(bench.now)
    assert view.untracked == 10 * 200
    only(Queued, bench.submit(**SMALL))


def test_a_learned_sequence_limit_is_respected() -> None:
    """Waiting belongs here, where priority and deadlines apply."""
    bench = Bench(limit=FULL_AT_100K)
    for _ in range(40):
        bench.core.first_token(bench.admit(**SMALL).id, bench.now)
    for _ in range(2):
        bench.scrape(running=32, waiting=8, kv=0.2)
    assert bench.core.view(bench.now).slots == 32
    only(Queued, bench.submit(**SMALL))


def test_the_prefill_budget_bounds_prompts_without_first_token() -> None:
    """It guards TTFT."""
    bench = Bench(limit=FULL_AT_100K, prefill=PrefillConfig(share=0.25))
    pending = bench.admit(prompt_tokens=3_900, max_tokens=1)
    only(Queued, bench.submit(prompt_tokens=200, max_tokens=1))
    assert bench.core.view(bench.now).pending_prompt_tokens == 3_900
    only(Admitted, bench.core.first_token(pending.id, bench.now, 0.01))
    assert bench.core.first_token(pending.id, bench.now) == []


def test_what_is_read_of_a_large_prompt_makes_room_for_the_next() -> None:
    """Before its first token: the engine would have nothing to do when it is done."""
    bench = Bench(limit=FULL_AT_100K)
    known_rate(bench, 4_000)
    bench.admit(prompt_tokens=6_000, max_tokens=1)
    only(Queued, bench.submit(prompt_tokens=300, max_tokens=1))
    assert some(Admitted, bench.wait(0.5)) == []
    only(Admitted, bench.wait(0.6))


def test_a_silent_engine_admits_nothing_more() -> None:
    """While the oldest stream waits for longer than its prompt explains, more prompts only pile up."""
    bench = Bench(limit=FULL_AT_100K)
    bench.admit(prompt_tokens=100)
    bench.now += 0.9
    only(Queued, bench.submit(prompt_tokens=100))


def known_rate(bench: Bench, rate: float) -> None:
    """Make the prefill rate known."""
    for _ in range(6):
        ticket = bench.admit(prompt_tokens=4_000, max_tokens=1)
        bench.now += 4_000 / rate
        bench.core.first_token(ticket.id, bench.now)
        bench.finish(ticket)


def test_a_ticket_whose_ttft_is_hopeless_is_refused_at_once() -> None:
    """Honest and early, with forecast and bound; at the head of the queue too."""
    bench = Bench(limit=FULL_AT_100K)
    known_rate(bench, 4_000)
    bench.admit(prompt_tokens=3_900, max_tokens=1)
    refused = only(Rejected, bench.submit(prompt_tokens=3_900, max_tokens=1, waited_s=0.8))
    assert refused.reason is Reason.TTFT_FORECAST
    assert refused.why.measured == pytest.approx(0.8 + 7_800 / 4_000)
    assert refused.why.threshold == pytest.approx(0.9 * 2.975)
    only(Queued, bench.submit(prompt_tokens=100, max_tokens=1))
    shed = some(Shed, bench.wait(1.1))
    assert [one.reason for one in shed] == [Reason.TTFT_FORECAST]


def test_a_ticket_that_no_engine_serves_in_time_runs_one_at_a_time() -> None:
    """It is not refused for ever, and takes no more than its share of the time from the others: here a tenth."""
    bench = Bench(limit=FULL_AT_100K, prefill=PrefillConfig(over_slo_share=0.1))
    known_rate(bench, 1_000)
    long = bench.admit(prompt_tokens=8_000, max_tokens=1)
    bench.wait(0.05)
    only(Queued, bench.submit(prompt_tokens=8_000, max_tokens=1))
    assert some(Admitted, bench.core.first_token(long.id, bench.now)) == []
    assert some(Admitted, bench.finish(bench.admit(prompt_tokens=100, max_tokens=1))) == []
    small = bench.admit(prompt_tokens=100, max_tokens=1)
    bench.wait(0.5)
    only(Admitted, bench.finish(small))


def test_batch_is_not_judged_by_a_ttft_it_does_not_have() -> None:
    """Its target is pace alone."""
    bench = Bench(limit=FULL_AT_100K)
    known_rate(bench, 1_000)
    bench.admit(prompt_tokens=3_000, max_tokens=1, priority=BATCH)
    only(Queued, bench.submit(prompt_tokens=9_000, max_tokens=1, priority=BATCH))


def test_answers_without_a_stream_free_the_prefill_budget_by_the_measured_rate() -> None:
    """Nobody reports their first token."""
    bench = Bench(limit=FULL_AT_100K, prefill=PrefillConfig(share=0.25))
    bench.admit(prompt_tokens=4_000, max_tokens=1, stream=False)
    only(Queued, bench.submit(prompt_tokens=200, max_tokens=1, stream=False))
    assert some(Admitted, bench.wait(0.4)) == []
    only(Admitted, bench.wait(0.2))


def test_streams_that_nobody_reports_are_treated_as_silent() -> None:
    """Behind a proxy that sees headers only."""
    bench = Bench(limit=FULL_AT_100K)
    for _ in range(3):
        bench.finish(bench.admit())
    assert not bench.core.target.sees_streams
    bench.admit(prompt_tokens=4_000, max_tokens=1)
    bench.wait(0.6)
    only(Admitted, bench.submit(prompt_tokens=4_000, max_tokens=1))
    bench.scrape(running=2, waiting=4)
    assert bench.core.view(bench.now).prefill_rate == pytest.approx(7_200)


def test_good_means_whole_and_within_both_targets() -> None:
    """What cannot be told is neither."""
    bench = Bench()
    ends = []
    for outcome, truth in (
        (Outcome.OK, {"engine_ttft_s": 0.5, "output_tokens": 11, "decode_s": 0.5}),
        (Outcome.OK, {"engine_ttft_s": 3.0}),
        (Outcome.ERROR, {}),
        (Outcome.ABORTED, {}),
        (Outcome.OK, {}),
    ):
        ends.append(only(Finished, bench.finish(bench.admit(), outcome, **truth)).good)
    assert ends == [True, False, False, None, None]
    whole = bench.admit(stream=False)
    assert only(Finished, bench.finish(whole)).good is True


def test_own_events_give_ttft_and_tpot() -> None:
    """Waiting here is part of TTFT."""
    bench = Bench(limit=FULL_AT_100K)
    full, waiting = bench.fill(), bench.ticket(**SMALL)
    bench.submit(waiting)
    bench.now += 0.5
    bench.finish(full)
    bench.now += 0.25
    bench.core.progress([(waiting.id, 1, 0.0)], bench.now)
    bench.now += 1.0
    bench.core.progress([(waiting.id, 20, 0.0), (full.id, 3, 0.0), (waiting.id, 0, 0.0)], bench.now)
    done = only(Finished, bench.finish(waiting))
    assert (done.ttft_s, done.tpot_s, done.output_tokens) == (0.75, 0.05, 21)
    assert done.waited_s == 0.5


def test_an_operator_switches_to_off_and_everything_passes() -> None:
    """Also what waits."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.submit(**SMALL)
    only(Admitted, bench.core.set_mode(Mode.OFF, bench.now))
    assert bench.core.set_mode(Mode.OFF, bench.now) == []
    for _ in range(20):
        only(Admitted, bench.submit(prompt_tokens=50_000))
    assert bench.wait(3.0) == []


def test_kv_of_others_is_their_share_of_what_the_engine_runs() -> None:
    """Three of four on the engine are not ours: so is three quarters of its KV, until the scrape is too old to tell."""
    bench = Bench()
    bench.admit()
    assert bench.core.budgets.foreign_kv(10_000, bench.now) == 0
    for _ in range(2):
        bench.now += 1
        bench.scrape(running=4, kv=0.5, capacity=10_000)
    assert bench.core.budgets.foreign_kv(10_000, bench.now) == 3_750
    bench.now += 5
    assert bench.core.target.untracked_count(bench.now) == 3
    assert bench.core.budgets.foreign_kv(10_000, bench.now) == 0
