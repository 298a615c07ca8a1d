"""How a run is judged: what is good, what was offered, whose fault it was."""

from __future__ import annotations

import json

import pytest

from admission.simulation.exchange import Attempt, Ending
from admission.simulation.load import LoadConfig, Outcome, Slo, body, judge, quantile
from admission.simulation.standin.wire import parse
from admission.simulation.traces import Arrival


def served(ttft_s: float, tpot_s: float, tokens: int = 11) -> Attempt:
    """An attempt served whole."""
    end = ttft_s + tpot_s * (tokens - 1)
    return Attempt(0.0, Ending.SERVED, 200, first_token_at=ttft_s, ended_at=end, output_tokens=tokens)


def outcome(*attempts: Attempt, prompt: int = 1000, leaves: bool = False) -> Outcome:
    """A logical request of 1,000 + 10 tokens unless said otherwise."""
    return Outcome(Arrival(0.0, prompt, 10), leaves, list(attempts))


@pytest.mark.parametrize(
    ("attempt", "good"),
    [
        (served(2.24, 0.079), True),
        (served(2.26, 0.01), False),
        (served(0.1, 0.081), False),
        (served(0.1, 0.5, tokens=1), True),
        (Attempt(0.0, Ending.FAILED, 200, first_token_at=0.1), False),
        (Attempt(0.0, Ending.REFUSED, 429), False),
    ],
)
def test_good_is_whole_and_in_time(attempt: Attempt, good: bool) -> None:
    """TTFT has 0.25 s more for each 1,000 prompt tokens; TPOT counts from the second token on."""
    assert Slo().met(attempt, 1000) is good


def test_offered_counts_requests_not_attempts() -> None:
    """A request refused once and served on its second try is offered once, and good."""
    refused = Attempt(0.0, Ending.REFUSED, 429, reason="QUEUE_FULL")
    report = judge([outcome(refused, served(0.1, 0.01)), outcome(refused)], Slo(), 10.0)
    assert (report.offered_requests, report.good_requests, report.attempts) == (2, 1, 3)
    assert (report.offered_tokens, report.good_tokens) == (2020, 1010)
    assert report.refusals == {"QUEUE_FULL": 2}
    assert report.endings == {"served": 1, "refused": 1}
    assert report.goodput_requests_ratio == 0.5


def test_callers_that_meant_to_leave_are_not_offered() -> None:
    """Who leaves mid-stream on purpose can never be good, so it does not lower the ratio."""
    report = judge(
        [outcome(Attempt(0.0, Ending.LEFT, 200), leaves=True), outcome(served(0.1, 0.01))], Slo(), 1.0
    )
    assert (report.offered_requests, report.good_requests) == (1, 1)
    assert report.endings["left"] == 1


def test_requests_under_way_are_offered_and_not_good() -> None:
    """The display may look at any time."""
    report = judge([outcome()], Slo(), 1.0)
    assert (report.offered_requests, report.good_requests, report.ttft_p99_s) == (1, 0, None)


def test_quantile_is_a_value_that_was_seen() -> None:
    """No interpolation: p99 of ten values is the ninth."""
    assert quantile([float(value) for value in range(10)], 0.99) == 8.0
    assert quantile([], 0.5) is None


@pytest.mark.parametrize("chat", [False, True])
def test_body_has_the_length_of_the_trace(chat: bool) -> None:
    """The stand-in counts as many prompt tokens as the trace says; the answer's length stays hidden."""
    raw = body(LoadConfig(chat=chat), 123, 2048)
    ask = parse(raw, chat=chat, hidden_output=7, context_tokens=10_000)
    assert (ask.prompts, ask.output_tokens, ask.max_tokens) == ((123,), 7, 2048)
    assert (ask.stream, ask.include_usage) == (True, True)
    exact = json.loads(body(LoadConfig(exact_output=True), 5, 7))
    assert (exact["max_tokens"], exact["ignore_eos"]) == (7, True)
