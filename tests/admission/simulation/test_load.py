"""How a load that was really sent is judged, and what its requests look like."""

from __future__ import annotations

import json

import pytest

from admission.core.slo import INTERACTIVE_SLO
from admission.simulation.exchange import Attempt, Ending
from admission.simulation.load import LoadConfig, Outcome, body, judge
from admission.simulation.standin.wire import parse
from admission.simulation.traces import Arrival
from admission.vocabulary import PriorityClass


def served(ttft_s: float, tpot_s: float, tokens: int = 11) -> Attempt:
    """An attempt served whole."""
    end = ttft_s + tpot_s * (tokens - 1)
    return Attempt(0.0, Ending.SERVED, 200, first_token_at=ttft_s, ended_at=end, output_tokens=tokens)


def outcome(*attempts: Attempt, prompt: int = 1000, leaves: bool = False) -> Outcome:
    """A logical request of 1,000 + 10 tokens unless said otherwise."""
    return Outcome(Arrival(0.0, prompt, 10), leaves, list(attempts))


def test_offered_counts_requests_not_attempts() -> None:
    """A request refused once and served on its second try is offered once, and good."""
    refused = Attempt(0.0, Ending.REFUSED, 429, reason="QUEUE_FULL")
    report = judge([outcome(refused, served(0.1, 0.01)), outcome(refused)], INTERACTIVE_SLO, 10.0)
    assert (report.offered_requests, report.good_requests, report.attempts) == (2, 1, 3)
    assert (report.offered_tokens, report.good_tokens) == (2020, 1010)
    assert report.refusals == {"QUEUE_FULL": 2}
    assert report.endings == {"served": 1, "refused": 1}
    assert report.goodput_requests_ratio == 0.5


def test_callers_that_meant_to_leave_are_not_offered() -> None:
    """Who leaves mid-stream on purpose can never be good, so it does not lower the ratio."""
    report = judge(
        [outcome(Attempt(0.0, Ending.LEFT, 200), leaves=True), outcome(served(0.1, 0.01))],
        INTERACTIVE_SLO,
        1.0,
    )
    assert (report.offered_requests, report.good_requests) == (1, 1)
    assert report.endings["left"] == 1


def test_requests_under_way_are_offered_and_not_good() -> None:
    """The display may look at any time."""
    report = judge([outcome()], INTERACTIVE_SLO, 1.0)
    assert (report.offered_requests, report.good_requests, report.ttft_p99_s) == (1, 0, None)


def test_an_answer_that_began_with_200_was_let_in() -> None:
    """Who then leaves without a token was let in for nothing; who waited for admission was not let in."""
    began = Attempt(0.0, Ending.IMPATIENT, 200, ended_at=10.0)
    waited = Attempt(0.0, Ending.IMPATIENT, ended_at=10.0)
    report = judge([outcome(began), outcome(waited)], INTERACTIVE_SLO, 20.0)
    assert (report.offered_requests, report.accepted_requests) == (2, 1)
    assert report.ttft_p50_s == pytest.approx(10.0, rel=0.01)


def test_the_slo_holds_for_every_class() -> None:
    """A load has one promise to keep, whatever its trace names."""
    batch = Outcome(Arrival(0.0, 1000, 10, PriorityClass.BATCH), False, [served(0.1, 0.15)])
    assert judge([batch], INTERACTIVE_SLO, 1.0).good_requests == 0


def test_lateness_and_length_are_the_loads_own_figures() -> None:
    """They are in what is published, so that a late client cannot pass for a slow server."""
    late = outcome(served(0.1, 0.01))
    late.late_s = 0.3
    told = judge([outcome(served(0.1, 0.01)), late], INTERACTIVE_SLO, 12.0).as_json()
    assert (told["late_max_s"], told["seconds"], told["good_requests"]) == (0.3, 12.0, 2)


@pytest.mark.parametrize("chat", [False, True])
def test_body_has_the_length_of_the_trace(chat: bool) -> None:
    """The stand-in counts as many prompt tokens as the trace says; the answer's length stays hidden."""
    raw = body(LoadConfig(chat=chat), 123, 2048)
    ask = parse(raw, chat=chat, hidden_output=7, context_tokens=10_000)
    assert (ask.prompts, ask.output_tokens, ask.max_tokens) == ((123,), 7, 2048)
    assert (ask.stream, ask.include_usage) == (True, True)
    exact = json.loads(body(LoadConfig(exact_output=True), 5, 7))
    assert (exact["max_tokens"], exact["ignore_eos"]) == (7, True)
