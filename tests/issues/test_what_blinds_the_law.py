"""What once blinded the law, starved somebody or let the limit grow against the evidence."""

from __future__ import annotations

import pytest

from admission.core.limits.fixed import FixedConfig
from admission.core.model import Admitted, Completion, Queued
from admission.core.pace import Pace, Streaming
from admission.core.prefill import Prefill, PrefillConfig
from admission.core.settings import ClassConfig, default_classes
from admission.core.stillness import Stillness
from admission.vocabulary import Outcome, PriorityClass
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH = PriorityClass.BATCH


def at_pace(tpot_s: float, made: float = 50.0, left: float = 50.0) -> Streaming:
    """A stream that has always had this pace."""
    return Streaming(PriorityClass.INTERACTIVE, 0.08, tpot_s, 1.0, made * tpot_s, made, left)


def test_a_report_that_comes_late_is_no_standstill() -> None:
    """A gateway silent for three seconds tells of forty chunks then: they were made in that time."""
    stillness = Stillness()
    stillness.moved(0.0, others=True, chunks=1)
    stillness.moved(3.0, others=True, chunks=40)
    assert stillness.total_s == 0.0
    assert not stillness.standing(5.0)
    stillness.moved(12.0, others=True, chunks=3)
    assert stillness.total_s == pytest.approx(9.0)


def test_two_hung_streams_do_not_blind_the_law_for_ever() -> None:
    """While answers end the engine works; and silence of over ten seconds is slowness, whatever else it is."""
    stillness = Stillness()
    stillness.moved(0.0, others=True, chunks=1)
    assert stillness.standing(9.0)
    assert not stillness.standing(11.0)
    bench = Bench(limit=FULL_AT_100K)
    hung = [bench.admit(prompt_tokens=10) for _ in range(2)]
    for one in hung:
        bench.core.first_token(one.id, bench.now)
    bench.core.progress([(one.id, 1, 0.0) for one in hung], bench.now)
    bench.wait(1.5)
    assert bench.core.target.stillness.standing(bench.now)
    answer = bench.admit(prompt_tokens=10, stream=False)
    bench.core.finish(answer.id, Completion(Outcome.OK, 10, None, 20), bench.now)
    assert not bench.core.target.stillness.standing(bench.now)


def test_a_large_prompt_is_not_passed_for_ever() -> None:
    """Its target is longer, so small ones go first, for a third of the time that it may wait."""
    bench = Bench(limit=FULL_AT_100K, classes=default_classes())
    running = bench.fill(90_000)
    large = bench.ticket(prompt_tokens=16_000, max_tokens=1)
    only(Queued, bench.core.submit(large, bench.now))
    bench.wait(1.6)
    for _ in range(3):
        bench.submit(prompt_tokens=12_000, max_tokens=1)
    assert next(iter(some(Admitted, bench.finish(running)))).ticket is large


def test_where_over_a_third_miss_their_slo_those_are_not_a_few() -> None:
    """Twelve of thirty on a member ten times as slow: the limit is not to grow on the others' account."""
    excess = Pace().excess([at_pace(0.04)] * 18 + [at_pace(0.4)] * 12, 0.0)
    assert excess is not None
    assert excess.value < 0


def test_a_long_past_does_not_hide_that_the_engine_has_become_slow() -> None:
    """Streams of 2,000 tokens at 40 ms, and 200 ms of late: at their end they will be in time, the next ones not."""
    old = Streaming(PriorityClass.INTERACTIVE, 0.08, 0.2, 1.0, 2_000 * 0.04, 2_000.0, 16.0)
    excess = Pace().excess([old] * 10, 0.0)
    assert excess is not None
    assert excess.value < 0


def test_batch_does_not_stay_out_because_of_a_prompt_that_waits_for_prefill() -> None:
    """Two chats at once, again and again, kept batch from an engine that was more than half idle."""
    bench = Bench(limit=FixedConfig(limit_tokens=10_000_000), classes=default_classes())
    first = bench.admit(prompt_tokens=4_000, max_tokens=1)
    second = bench.ticket(prompt_tokens=4_000, max_tokens=1)
    only(Queued, bench.core.submit(second, bench.now))
    bench.core.first_token(first.id, bench.now)
    bench.core.first_token(second.id, bench.now)
    only(Admitted, bench.submit(prompt_tokens=100, max_tokens=1, priority=BATCH))


def test_the_ration_of_prompts_that_miss_their_slo_ends() -> None:
    """One that hung for ten minutes closed the way for eight hours, also to an engine that had restarted."""
    prefill = Prefill(PrefillConfig())
    prefill.ration(600.0, 0.0)
    assert prefill.over_slo_at == 600.0
    prefill.forget()
    assert prefill.over_slo_at < 0.0


def test_a_huge_prompt_waits_half_a_minute_at_most() -> None:
    """A million tokens may take four minutes by their target; nobody is served by waiting for them."""
    settings = ClassConfig()
    assert settings.patience_for(1_000_000) == 30.0
    assert settings.patience_for(100) == pytest.approx(0.75 * 2.025)


def test_a_request_that_was_told_of_after_several_standstills_is_no_evidence() -> None:
    """More was taken off its time than it had, and it counted as faster than anything."""
    bench = Bench(limit=FULL_AT_100K)
    ticket = bench.admit(prompt_tokens=10)
    bench.core.first_token(ticket.id, bench.now)
    bench.wait(0.4)
    bench.core.progress([(ticket.id, 9, 0.0)], bench.now)
    bench.core.target.stillness.total_s = bench.core.target.stillness._before_s = 100.0
    bench.finish(ticket, output_tokens=10)
    assert bench.core.target.pace.lasting is None
    assert not any(bench.core.target.pace._finished)
