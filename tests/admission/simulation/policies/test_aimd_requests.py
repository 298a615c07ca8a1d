"""AIMD on requests moves as published."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.slo import SloConfig
from admission.simulation.policies.aimd_requests import AimdRequests, AimdRequestsConfig, SloAsTimeout
from admission.vocabulary import PriorityClass
from tests.admission.simulation.policies.hearing import sample


def rule(**settings: Any) -> AimdRequests:
    """The published constants."""
    return AimdRequests(AimdRequestsConfig(**settings))


def judged(slos: dict[PriorityClass, SloConfig], *, counts_wait: bool = True) -> SloAsTimeout:
    """The rule with the SLO in place of the timeout, 30 requests allowed."""
    return SloAsTimeout(rule(initial=30), slos, counts_wait=counts_wait)


CHAT = {PriorityClass.INTERACTIVE: SloConfig(ttft_s=2.0, ttft_per_1k_s=0.0, tpot_s=0.08)}


def test_a_good_answer_is_one_more() -> None:
    """increaseOnSuccess of Netflix/concurrency-limits
    concurrency-limits-core/src/test/java/com/netflix/concurrency/limits/limit/AIMDLimitTest.java.
    """
    aimd = rule(initial=20)
    aimd.on_sample(sample(0.001, 10))
    assert aimd.limit == 21


def test_a_drop_is_a_tenth_less() -> None:
    """decreaseOnDrops of the same file."""
    aimd = rule(initial=30)
    aimd.on_sample(sample(0.0, 0, dropped=True))
    assert aimd.limit == 27


def test_it_never_grows_over_its_ceiling() -> None:
    """successOverflow of the same file."""
    aimd = rule(initial=21, ceiling=21, floor=0)
    aimd.on_sample(sample(0.001, 10))
    assert aimd.limit == 21


def test_it_never_sinks_under_its_floor() -> None:
    """The published floor is where it begins."""
    aimd = rule()
    aimd.on_sample(sample(0.0, 20, dropped=True))
    assert aimd.limit == 20


@pytest.mark.parametrize(("rtt_s", "after"), [(5.0, 31), (5.1, 27)])
def test_an_answer_over_the_timeout_is_a_drop(rtt_s: float, after: int) -> None:
    """The published timeout is 5 s, itself still in time."""
    aimd = rule(latency="total", initial=30)
    aimd.on_sample(sample(rtt_s, 30))
    assert aimd.limit == after


def test_an_idle_limit_does_not_grow() -> None:
    """Below half of the limit nothing was put to the test."""
    aimd = rule(initial=30)
    aimd.on_sample(sample(0.1, 14))
    assert aimd.limit == 30


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "waited_s", "after"),
    [
        (1.9, 0.07, 0.0, 31),
        (2.1, 0.07, 0.0, 27),
        (1.9, 0.09, 0.0, 27),
        (1.9, 0.07, 0.2, 27),
        (None, None, 0.0, 31),
    ],
)
def test_an_answer_outside_its_slo_is_a_drop(
    ttft_s: float | None, tpot_s: float | None, waited_s: float, after: int
) -> None:
    """With thresholds at the SLO the rule steers by what its callers are promised; what was not seen is not held against it."""
    aimd = judged(CHAT)
    aimd.on_sample(sample(9.0, 30, ttft_s=ttft_s, tpot_s=tpot_s, waited_s=waited_s))
    assert aimd.limit == after


def test_the_wait_in_our_own_queue_may_be_left_out() -> None:
    """Then the rule judges the engine alone."""
    aimd = judged(CHAT, counts_wait=False)
    aimd.on_sample(sample(9.0, 30, ttft_s=1.9, waited_s=1.5))
    assert aimd.limit == 31


@pytest.mark.parametrize(("rtt_s", "tokens", "after"), [(9.9, 101, 31), (10.1, 101, 27), (99.0, None, 31)])
def test_an_answer_that_does_not_stream_is_judged_whole(rtt_s: float, tokens: int | None, after: int) -> None:
    """2 s and 100 x 80 ms are 10 s; without its length it cannot be judged."""
    aimd = judged(CHAT)
    aimd.on_sample(sample(rtt_s, 30, output_tokens=tokens))
    assert aimd.limit == after


def test_a_drop_is_a_drop_whatever_the_slo() -> None:
    """A refusal has no TTFT to judge by."""
    aimd = judged(CHAT)
    aimd.on_sample(sample(0.1, 30, dropped=True))
    assert aimd.limit == 27


def test_with_the_slo_the_timeout_is_off() -> None:
    """A long answer at a good pace is no sign of load."""
    aimd = judged(CHAT)
    aimd.on_sample(sample(60.0, 30, ttft_s=0.5, tpot_s=0.05))
    assert aimd.limit == 31


def test_a_class_without_targets_is_never_late() -> None:
    """Nothing was promised to it."""
    aimd = judged({})
    aimd.on_sample(sample(99.0, 30, ttft_s=50.0))
    assert aimd.limit == 31


@pytest.mark.parametrize(
    "settings", [{"initial": 19}, {"floor": -1}, {"initial": 300}, {"backoff": 1.0}, {"timeout_s": 0.0}]
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line instead of a limiter that never moves."""
    with pytest.raises(ValueError, match=r"must|need"):
        AimdRequestsConfig(**settings)
