"""Shadow on an engine that holds more than enforcing would admit: the counted go as they would without the rest."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Admitted, Event, LimitChanged, Rejected, ShadowDecided, Ticket
from admission.core.settings import ClassConfig, default_classes
from admission.core.slo import SloConfig
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, Verdict
from tests.admission.core.bench import Bench, only, some

COST = 300
"""Of each ticket here: 100 prompt tokens and 200 of output."""


class Overload(Bench):
    """Eight streams of which enforcing would have four, with a token of each in `pace_s`."""

    def __init__(self, pace_s: float = 0.2, **settings: Any) -> None:
        settings.setdefault("limit", FixedConfig(limit_tokens=4 * COST))
        super().__init__(mode=Mode.SHADOW, **settings)
        self.pace_s = pace_s
        self.streams = [self.stream() for _ in range(8)]

    def stream(self, **fields: Any) -> Ticket:
        """One more that streams from now on."""
        ticket = self.waiting(**fields)
        self.core.first_token(ticket.id, self.now)
        return ticket

    def waiting(self, **fields: Any) -> Ticket:
        """One more without a first token."""
        return self.admit(**{"max_tokens": 200, **fields})

    def go_on(self, seconds: int) -> list[Event]:
        """All that stream go on."""
        events: list[Event] = []
        for _ in range(seconds):
            self.core.renew("s", self.now)
            events += self.wait(1.0)
            chunks = round(1.0 / self.pace_s)
            events += self.core.progress([(one.id, chunks, 0.0) for one in self.streams], self.now)
        return events

    @property
    def used(self) -> int:
        """The virtual ledger."""
        return self.core.view(self.now).used


def overload(**settings: Any) -> Overload:
    """Watched for long enough that reality is known to exceed the virtual ledger."""
    bench = Overload(**settings)
    bench.go_on(6)
    assert bench.core.target.ledger.exceeded
    assert bench.used == 4 * COST
    return bench


def test_what_is_counted_ends_when_it_would_have_ended() -> None:
    """The overloaded engine takes 40 s over it; others would have had its place before."""
    bench = overload()
    bench.go_on(30)
    assert bench.used == 0
    assert bench.core.view(bench.now).in_flight == 8
    for one in bench.streams:
        bench.finish(one, output_tokens=200)
    assert bench.core.view(bench.now).in_flight == 0


def test_the_limit_moves_by_what_is_foretold() -> None:
    """TPOT misses its SLO with eight streams; with the four that are counted it would not."""
    bench = overload(pace_s=0.09, limit=AimdConfig(initial_tokens=4 * COST, floor_tokens=100))
    assert (bench.core.view(bench.now).tpot_ratio or 0.0) > 1.0
    for _ in range(3):
        bench.waiting()
    moved = some(LimitChanged, bench.go_on(3))
    assert moved
    assert all(change.new > change.old and change.why.detail.startswith("as foretold") for change in moved)
    assert bench.core.view(bench.now).frozen == ""


def test_kv_full_of_what_enforcing_would_refuse_refuses_nobody() -> None:
    """Such a refusal is one that enforcing would never give."""
    calm, full = Bench(mode=Mode.SHADOW), overload()
    for bench in (calm, full):
        bench.admit()
        bench.scrape(running=8, kv=0.99, capacity=100_000)
    refused = only(Admitted, calm.submit(priority=PriorityClass.INTERNAL)).shadow
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.WATERMARK_KV
    assert not isinstance(only(Admitted, full.submit(priority=PriorityClass.INTERNAL)).shadow, Rejected)


def test_who_loses_patience_with_the_overload_stays_counted() -> None:
    """Under enforcement it would have been served, and would have held its place until then."""
    bench = Overload(limit=FixedConfig(limit_tokens=9 * COST))
    late = bench.waiting()
    for _ in range(3):
        bench.streams.append(bench.stream())
    bench.go_on(6)
    assert bench.core.target.ledger.exceeded
    bench.core.cancel(late.id, bench.now)
    assert not bench.core.knows(late.id)
    assert bench.used == 9 * COST
    bench.core.cancel(bench.streams.pop(0).id, bench.now)
    assert bench.used == 8 * COST, "who leaves while it streams leaves on purpose"
    bench.go_on(40)
    assert bench.used == 0


def test_a_prompt_of_shadow_is_read_at_the_measured_rate() -> None:
    """On the real engine it waits behind prompts that enforcing would have refused."""
    bench = overload()
    bench.core.cancel(bench.streams.pop(0).id, bench.now)
    ticket = bench.waiting(prompt_tokens=50)
    assert bench.core.target.ledger.pending_prompt == 50
    bench.wait(0.1)
    assert bench.core.target.ledger.pending_prompt == 0
    before = bench.core.target.prefill.rate
    bench.now += 9.0
    bench.core.first_token(ticket.id, bench.now)
    assert bench.core.target.prefill.rate == before


def test_prompts_that_are_not_counted_are_ahead_all_the_same() -> None:
    """Else a first token that comes late behind them would pass for a slow engine."""
    bench = Bench(mode=Mode.SHADOW, limit=FixedConfig(limit_tokens=4 * COST))
    bench.admit(prompt_tokens=1_000, max_tokens=1)
    aside = bench.admit(prompt_tokens=5_000, max_tokens=1)
    last = bench.admit(prompt_tokens=100, max_tokens=1)
    ledger = bench.core.target.ledger
    assert ledger.permits[last.id].ahead == 6_100
    bench.core.first_token(aside.id, bench.now)
    bench.finish(last)
    assert ledger.aside_prompt == 0


def test_a_waiter_of_shadow_is_pending_only_since_it_would_have_been_admitted() -> None:
    """The time it would have waited is no sign of an engine that stands still."""
    bench = Bench(mode=Mode.SHADOW, limit=FixedConfig(limit_tokens=4 * COST))
    first = bench.admit(prompt_tokens=1_000, max_tokens=1)
    bench.core.first_token(first.id, bench.now)
    waiter = bench.admit(prompt_tokens=1_000, max_tokens=1)
    bench.now += 1.0
    assert only(ShadowDecided, bench.finish(first)).verdict is Verdict.ADMITTED
    permit = bench.core.target.ledger.permits[waiter.id]
    assert permit.counted_at == bench.now
    assert not bench.core.target.prefill.stalled(bench.core.target.ledger, bench.now)


def test_the_queue_of_an_overloaded_engine_steers_nothing() -> None:
    """Without first tokens the rate is found by what waits inside, but these would not wait there."""
    bench = overload()
    for _ in range(3):
        bench.waiting()
    bench.wait(6.0)
    bench.scrape(running=8, waiting=40)
    assert bench.core.target.blind(bench.now)
    assert bench.core.target.prefill.steered is None


def test_one_that_fails_in_reality_ends_at_once_and_only_once() -> None:
    """What was planned for it is void: else the virtual ledger would fall below nothing."""
    bench = overload()
    bench.core.cancel(bench.streams.pop(0).id, bench.now)
    failed = bench.waiting(max_tokens=1)
    assert bench.used == 3 * COST + 101
    bench.finish(failed, Outcome.ERROR)
    bench.wait(0.9)
    assert bench.used == 3 * COST
    assert bench.core.target.ledger.counted == 3


def test_answers_are_taken_to_be_as_long_as_those_seen() -> None:
    """Nobody knows the length of one that has not ended; the mean over many decides how many places are free."""
    bench = Overload(limit=FixedConfig(limit_tokens=12 * COST))
    for _ in range(4):
        for one in bench.streams:
            bench.finish(one, output_tokens=50)
        bench.streams = [bench.stream() for _ in range(8)]
        bench.go_on(2)
    bench.streams += [bench.stream() for _ in range(40)]
    bench.go_on(2)
    lengths = [
        permit.course.ends_after for permit in bench.core.target.ledger.counted_permits() if permit.course
    ]
    assert sum(lengths) / len(lengths) < 150


def test_a_prompt_over_its_slo_is_rationed_by_its_foretold_first_token() -> None:
    """They are served one at a time, in shadow as in earnest."""
    strict = ClassConfig(slo=SloConfig(ttft_s=0.01, ttft_per_1k_s=0.0, tpot_s=0.08), patience_s=1.0)
    bench = Overload(
        limit=FixedConfig(limit_tokens=5 * COST + 200),
        limit_room=0.0,
        classes={**default_classes(), PriorityClass.BATCH: strict},
    )
    bench.go_on(6)
    prefill = bench.core.target.prefill
    prefill.restored = 8_000.0
    bench.waiting(priority=PriorityClass.BATCH, prompt_tokens=100, max_tokens=1)
    assert bench.core.target.ledger.over_slo == 1
    bench.wait(0.5)
    assert bench.core.target.ledger.over_slo == 0
    assert prefill.over_slo_at > bench.now


def test_a_course_goes_on_when_reality_is_back() -> None:
    """Streams that were slow in the overload are no evidence about what enforcing would show."""
    bench = overload()
    counted = [one for one in bench.streams if bench.core.target.ledger.permits[one.id].counted]
    for one in [one for one in bench.streams if one not in counted]:
        bench.finish(one, output_tokens=30)
    bench.streams = counted
    bench.go_on(2)
    assert not bench.core.target.ledger.exceeded
    excess = bench.core.virtual.excess
    assert excess is not None
    assert excess.value > 1.0 - (bench.core.view(bench.now).tpot_ratio or 0.0)
    assert not excess.why.detail.startswith("as foretold")


def test_enforcing_counts_what_is_real() -> None:
    """What was foretold is forgotten: those that would have ended run on, those that left are gone."""
    bench = overload()
    bench.core.cancel(bench.waiting(max_tokens=1, prompt_tokens=10).id, bench.now)
    bench.finish(bench.streams.pop(0), output_tokens=30)
    bench.go_on(1)
    bench.core.set_mode(Mode.ENFORCE, bench.now)
    ledger = bench.core.target.ledger
    assert ledger.used == ledger.used_really == 7 * COST
    assert ledger.beyond == {}
    assert not ledger.exceeded
    bench.core.set_mode(Mode.SHADOW, bench.now)
    bench.go_on(1)


def test_an_answer_of_several_is_followed_as_one_of_them() -> None:
    """n answers share a prompt; each goes at the pace of all."""
    bench = Overload(limit=FixedConfig(limit_tokens=4 * COST))
    bench.streams.append(bench.stream(n=2))
    bench.go_on(6)
    lengths = [
        permit.course.ends_after for permit in bench.core.target.ledger.counted_permits() if permit.course
    ]
    assert lengths == [pytest.approx(200)] * 4


def test_where_nobody_reports_progress_shadow_stands_still() -> None:
    """Without tokens to watch nothing can be foretold, and the view says so."""
    bench = Overload()
    bench.wait(8.0)
    assert not bench.core.target.ledger.exceeded
    assert bench.core.view(bench.now).frozen.startswith("shadow")
