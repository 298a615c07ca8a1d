"""The verdict: what is good, what was offered, who is counted where."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain

import pytest

from admission.core.slo import SloConfig
from admission.simulation.fate import Ending, Fate
from admission.simulation.judging import Judge, Report
from admission.vocabulary import PriorityClass
from tests.admission.simulation.fates import impatient, refused, served

BATCH = PriorityClass.BATCH


def judged(*fates: Fate, judge: Judge | None = None) -> Report:
    """The report of a judge over these."""
    judge = judge or Judge()
    for fate in fates:
        judge.settle(fate)
    return judge.report()


@pytest.mark.parametrize(
    ("fate", "good"),
    [
        (served(ttft_s=2.24, tpot_s=0.079), True),
        (served(ttft_s=2.26), False),
        (served(ttft_s=2.26, prompt=2_000), True),
        (served(tpot_s=0.081), False),
        (served(tpot_s=None), True),
        (served(priority=BATCH, ttft_s=500.0, tpot_s=0.19), True),
        (served(priority=BATCH, tpot_s=0.21), False),
        (replace(served(), ttft_s=None), False),
        (replace(served(), ending=Ending.FAILED), False),
        (replace(served(), leaves=True), False),
        (refused(), False),
        (impatient(), False),
    ],
)
def test_good_is_served_whole_and_in_the_time_of_its_class(fate: Fate, good: bool) -> None:
    """TTFT has 0.25 s more for each 1,000 prompt tokens; batch has no TTFT target; a TTFT nobody saw proves nothing."""
    assert Judge().settle(fate) is good


def test_the_slo_of_a_class_is_the_callers_to_set() -> None:
    """Others keep the product's default."""
    judge = Judge({PriorityClass.INTERACTIVE: SloConfig(ttft_s=0.4, ttft_per_1k_s=0.0)})
    assert not judge.settle(served(ttft_s=0.5))
    assert judge.settle(served(ttft_s=0.5, priority=BATCH))


def test_offered_counts_requests_not_attempts() -> None:
    """A request refused once and served on its second try is offered once, and good."""
    tried = replace(served(), attempts=2, refused=("QUEUE_FULL",))
    report = judged(tried, refused(0.0, "QUEUE_FULL", "DEADLINE"))
    assert (report.offered_requests, report.good_requests, report.attempts) == (2, 1, 4)
    assert (report.offered_tokens, report.good_tokens) == (2_020, 1_010)
    assert report.refusals == {"DEADLINE": 1, "QUEUE_FULL": 2}
    assert report.endings == {"refused": 1, "served": 1}
    assert report.refused_requests == 1
    assert (report.goodput_requests_ratio, report.goodput_tokens_ratio) == (0.5, 0.5)


def test_a_refusal_that_lists_no_attempts_still_counts_by_its_reason() -> None:
    """Only the last attempt's reason is known then."""
    assert judged(replace(refused(), refused=())).refusals == {"QUEUE_FULL": 1}


def test_callers_that_mean_to_leave_are_not_offered() -> None:
    """Who leaves mid-stream on purpose can never be good, so it does not lower the ratio, refused or not."""
    left = replace(served(), ending=Ending.LEFT)
    report = judged(left, replace(refused(), leaves=True), served())
    assert (report.offered_requests, report.accepted_requests, report.good_requests) == (1, 1, 1)
    assert report.endings == {"left": 1, "refused": 1, "served": 1}


def test_only_arrivals_of_the_judged_span_count() -> None:
    """Warm-up and the cut end are nobody's merit; its last instant belongs to what follows."""
    judge = Judge(from_s=10.0, until_s=20.0)
    report = judged(served(9.9), served(10.0), served(19.9), served(20.0), judge=judge)
    assert (report.offered_requests, report.endings) == (2, {"served": 2})


def test_share_of_accepted_blames_admission_and_share_of_served_does_not() -> None:
    """An accepted caller that left without a token was a wrong admission."""
    report = judged(served(), impatient(), impatient(admitted=False), refused())
    assert report.accepted_within_slo_ratio == 0.5
    assert report.served_within_slo_ratio == 1.0
    assert judged(refused()).accepted_within_slo_ratio is None


def test_an_accepted_caller_that_left_without_a_token_counts_in_the_tail_of_ttft() -> None:
    """Otherwise an engine that answers nobody would have the best TTFT."""
    report = judged(served(ttft_s=1.0), served(ttft_s=1.0), *[impatient(after_s=10.0)] * 2)
    assert report.ttft_p50_s == pytest.approx(1.0, rel=0.01)
    assert report.ttft_p90_s == pytest.approx(10.0, rel=0.01)
    assert judged(impatient(admitted=False)).ttft_p99_s is None


def test_the_quiet_tail_leaves_out_what_arrived_around_a_disturbance() -> None:
    """From 2 s before to 5 s after nobody can be held to the tail; a retry counts when it was made."""
    judge = Judge(disturbances=[(100.0, 110.0)])
    around = [served(at, ttft_s=9.0) for at in (98.0, 105.0, 114.9)]
    retried = replace(served(90.0, ttft_s=9.0), began_at_s=104.0)
    report = judged(*around, retried, served(97.9, ttft_s=1.0), served(115.0, ttft_s=1.0), judge=judge)
    assert report.ttft_p99_quiet_s == pytest.approx(1.0, rel=0.01)
    assert report.ttft_p99_s == pytest.approx(9.0, rel=0.01)


def test_the_quiet_tail_is_of_classes_that_were_promised_one() -> None:
    """Filler may wait for a minute: that is its use. A long prompt has a longer promise, and is held to its own."""
    filler = served(priority=BATCH, ttft_s=60.0)
    report = judged(filler, served(ttft_s=3.0, prompt=4_000), served(ttft_s=1.0, prompt=4_000))
    assert report.ttft_p99_quiet_s == pytest.approx(1.0, rel=0.01)
    report = judged(filler, served(ttft_s=3.0, prompt=4_000))
    assert report.ttft_p99_quiet_s == pytest.approx(3.0, rel=0.01)
    assert report.ttft_over_target_p99_quiet_ratio == pytest.approx(1.0, rel=0.01)
    assert judged(filler).ttft_over_target_p99_quiet_ratio is None


def test_rows_of_classes_add_up_to_the_whole() -> None:
    """The most urgent first; a class without requests has no row."""
    report = judged(served(priority=BATCH), served(), served(ttft_s=9.0), refused())
    assert [row.name for row in report.per_class] == ["interactive", "batch"]
    assert sum(row.offered_requests for row in report.per_class) == report.offered_requests == 4
    interactive = report.of_class(PriorityClass.INTERACTIVE)
    assert interactive is not None
    assert (interactive.offered_requests, interactive.good_requests) == (3, 1)
    assert report.of_class(PriorityClass.INTERNAL) is None


def test_tenants_are_shown_by_size_and_bounded() -> None:
    """Fifty rows and one for the rest, whatever a trace names; the anonymous are a tenant beside the named."""
    many = chain.from_iterable([served(tenant=f"t{no:03}")] * (200 - no) for no in range(120))
    report = judged(*many, served())
    names = [row.name for row in report.per_tenant]
    assert names == [f"t{no:03}" for no in range(50)] + ["other"]
    assert sum(row.offered_requests for row in report.per_tenant) == report.offered_requests
    assert [row.name for row in judged(served(), served(tenant="a")).per_tenant] == ["a", "anonymous"]
    assert judged(served()).per_tenant == ()


def test_memory_is_bounded_in_tenants_and_reasons() -> None:
    """A hostile trace that names a new tenant and a new reason each time costs no more than a kind one."""
    judge = Judge()
    for no in range(3_000):
        judge.settle(refused(0.0, f"R{no}", tenant=f"t{no}"))
    report = judge.report()
    assert len(judge._tallies) == 1_025
    assert len(report.refusals) == 65
    assert report.refusals["other"] == 3_000 - 64
    assert report.per_tenant[-1].offered_requests == 3_000 - 50


@pytest.mark.parametrize("request_count", [2_000, 20_000])
def test_memory_does_not_grow_with_requests(request_count: int) -> None:
    """A trace of a week is judged like one of a minute."""
    judge = Judge(disturbances=[(3.0, 4.0)])
    for no in range(request_count):
        judge.settle(served(no % 600, ttft_s=0.1 + (no % 997) / 500, prompt=1 + no % 1_999))
    (tally,) = judge._tallies.values()
    assert len(tally.ttft) + len(tally.tpot) + len(judge._sizes._buckets) < 700


def test_the_report_is_json_with_the_ratios_in_it() -> None:
    """What is published is read by machines: names with units, no infinity, the same keys in every run."""
    judge = Judge(disturbances=[(5.0, 6.0), (7.0, float("inf"))])
    told = judged(served(tenant="a"), refused(), judge=judge).as_json()
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again["goodput_requests_ratio"] == 0.5
    assert again["per_class"][0]["goodput_tokens_ratio"] == 0.5
    assert again["per_tenant"][0]["name"] == "a"
    assert again["recovery_s"] == [None, None]
    assert again["disturbances"] == [[5.0, 6.0], [7.0, None]]
    assert judged().as_json().keys() == told.keys()


def test_a_span_that_cannot_be_judged_is_refused() -> None:
    """Zero of zero would look like a catastrophe."""
    with pytest.raises(ValueError, match="nothing to judge"):
        Judge(from_s=10.0, until_s=10.0)
    with pytest.raises(ValueError, match="ends before it begins"):
        Judge(disturbances=[(10.0, 9.0)])
