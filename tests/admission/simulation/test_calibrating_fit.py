"""What the engine model made, the fit finds again; and it says what the data leave open."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from admission.simulation.calibrating.driving import drive
from admission.simulation.calibrating.fitting import CONSTANTS, Fitter
from admission.simulation.calibrating.judging import judge
from admission.simulation.calibrating.linear import Equations, open_ratios, solve
from admission.simulation.calibrating.measured import CalibrationError, Clock, Measured, Recording
from admission.simulation.calibrating.search import Simplex
from admission.simulation.engine import EngineConfig
from admission.simulation.engines import calibration
from tests.admission.simulation.calibrated import TRUTH, arrivals, recorded

UNKNOWN = replace(
    TRUTH, base_s=1.0, prefill_s_per_token=0, decode_s_per_sequence=0, kv_s_per_token=0, ahead=False
)


@pytest.mark.parametrize(
    "truth", [TRUTH, replace(TRUTH, ahead=True, overhead_s=0.015)], ids=["plain", "overhead"]
)
def test_known_constants_are_found_again(truth: EngineConfig) -> None:
    """If the fit does not find what made the data, nothing that it finds in real data means anything."""
    recording = recorded(truth, arrivals(rounds=2))
    fit = Fitter(recording, len(recording.requests) // 2).fit(UNKNOWN)
    assert fit.config.ahead is truth.ahead
    for name in CONSTANTS:
        assert getattr(fit.config, name) == pytest.approx(getattr(truth, name), rel=0.05), name
    _, judged = judge(fit.config, recording, len(recording.requests) // 2)
    assert max(abs(line.error) for line in judged.lines) < 0.03


def test_the_same_data_give_the_same_constants() -> None:
    """An engine file that comes out otherwise each time cannot be reviewed."""
    recording = recorded(TRUTH, arrivals(each=10))
    first, second = (Fitter(recording, 60).fit(UNKNOWN, evaluations=5) for _ in range(2))
    assert first == second


def test_outcomes_that_are_held_out_do_not_reach_the_fit() -> None:
    """Judged by the rest means nothing when the rest was fitted to."""
    recording = recorded(TRUTH, arrivals(each=10))
    blind = replace(
        recording,
        requests=recording.requests[:60]
        + tuple(replace(one, ttft_s=9.0, decode_s=99.0) for one in recording.requests[60:]),
    )
    seen, unseen = (Fitter(each, 60).fit(UNKNOWN, evaluations=5) for each in (recording, blind))
    assert seen == unseen


def test_the_wait_before_the_queue_is_no_part_of_a_queue_clock() -> None:
    """vLLM's `queued_ts` is after the tokenizer: an overhead there would be made up."""
    recording = recorded(replace(TRUTH, overhead_s=0.05), arrivals(each=10), Clock.QUEUE)
    assert Fitter(recording, 60).fit(UNKNOWN, evaluations=5).config.overhead_s == 0.0


def test_progress_is_told_to_its_end() -> None:
    """A bar that stops at a third says that something broke."""
    told: list[tuple[int, int]] = []
    Fitter(recorded(TRUTH, arrivals(each=5)), 40, lambda *done: told.append(done)).fit(
        UNKNOWN, 7, ahead=False
    )
    assert all(after[0] == before[0] + 1 for before, after in pairwise(told))
    assert told[-1][0] == told[-1][1]


def test_too_few_requests_are_refused() -> None:
    """Five numbers from three requests would be noise with four digits."""
    few = Recording("few.csv", tuple(Measured(float(i), 10, 10, 0.1, 1.0) for i in range(10)))
    with pytest.raises(CalibrationError, match=r"few\.csv: 10 requests with times to fit to; 20 are needed"):
        Fitter(few, 10)


def test_a_request_larger_than_the_engine_is_refused() -> None:
    """It was served, so the capacity that was given is wrong; the fit would not notice."""
    recording = recorded(TRUTH, arrivals(each=10))
    with pytest.raises(CalibrationError, match="the KV capacity must be more than 1000"):
        Fitter(recording, 60).fit(replace(UNKNOWN, kv_capacity_tokens=1_000))


def test_requests_are_shared_among_engines() -> None:
    """Data-parallel ranks are engines of their own: each has its batch, and a request meets one of them."""
    requests = [Measured(0.0, 500, 50), Measured(0.0, 500, 50)]
    one, two = drive(TRUTH, requests), drive(TRUTH, requests, engines=2)
    assert two.last.max() < one.last.max()
    assert sorted(two.engine_of.tolist()) == [0, 1]


def test_work_is_what_the_time_was_spent_on() -> None:
    """The four sums times the four costs are the time: the least squares rest on it."""
    driven = drive(TRUTH, [Measured(0.0, 3_000, 40), Measured(0.01, 100, 60)])
    of = np.arange(2)
    work = driven.work_between(of, driven.first, driven.last)
    costs = [TRUTH.base_s, TRUTH.prefill_s_per_token, TRUTH.decode_s_per_sequence, TRUTH.kv_s_per_token]
    assert work @ costs == pytest.approx(driven.decode())


def test_scheduling_ahead_costs_a_late_comer_one_step() -> None:
    """With vLLM's asynchronous scheduling the next batch is composed already when a request comes."""
    requests = [Measured(0.0, 100, 400), Measured(1.0, 100, 10)]
    plain, ahead = (drive(replace(TRUTH, ahead=on), requests).ttft(Clock.QUEUE)[1] for on in (False, True))
    assert ahead == pytest.approx(2 * plain, rel=0.5)
    assert ahead > plain + 0.9 * TRUTH.base_s


def test_costs_are_never_negative() -> None:
    """Collinear columns make plain least squares answer with a negative price."""
    rows = np.array([[1.0, 0.0, n, 400.0 * n + (n % 3), 0.0] for n in range(1, 40)])
    seconds = rows @ np.array([0.01, 0.0, 1e-4, 0.0, 0.0]) * (1 + 0.01 * np.sin(np.arange(39)))
    assert (solve(Equations(rows, seconds, seconds), 0.01) >= 0).all()


def test_a_machine_unlike_the_usual_is_found_when_the_usual_is_left_out() -> None:
    """A sequence costs a CPU twenty times what is usual on GPUs; in noisy data the usual would win."""
    random = np.random.default_rng(4)
    batch, prompts = random.integers(1, 20, 300), random.integers(0, 300, 300)
    rows = np.stack([np.ones(300), prompts, batch, 120.0 * batch, np.zeros(300)], axis=1)
    truth = np.array([0.014, 3e-4, 1.4e-3, 0.0, 0.0])
    exact = rows @ truth
    noisy = Equations(rows, exact * random.lognormal(0.0, 0.3, 300), exact)

    def decode(*, usual: bool) -> float:
        return float((solve(noisy, 0.014, usual=usual) @ [0.0, 0.0, 1.0, 120.0, 0.0]) / truth[2])

    assert decode(usual=False) == pytest.approx(1.0, abs=0.2)
    assert decode(usual=True) < 0.7


def test_what_the_data_leave_open_is_said() -> None:
    """Sequences and KV that grow together cannot be told apart; apart they can."""
    apart = np.array([[1.0, 0.0, n, 1000.0 * (7 * n % 40), 0.0] for n in range(1, 40)])
    together = np.array([[1.0, 0.0, n, 400.0 * n + (n % 2), 0.0] for n in range(1, 40)])
    costs = np.array([0.01, 0.0, 1e-4, 1e-7, 0.0])
    wobble = 1 + 0.01 * np.sin(np.arange(39))
    told, open_ = (
        open_ratios(Equations(rows, rows @ costs * wobble, rows @ costs), costs) for rows in (apart, together)
    )
    assert told[2] < 0.1
    assert open_[2] > 1.0
    assert open_[1] == float("inf"), "nothing was prefilled"


def test_the_simplex_finds_a_minimum_within_its_evaluations() -> None:
    """The search is bounded: a calibration that never ends is of no use."""
    calls: list[tuple[float, ...]] = []

    def valley(point: tuple[float, ...]) -> float:
        calls.append(point)
        x, y = point
        return (x - 0.3) ** 2 + 10 * (y - x) ** 2

    found = Simplex(valley, 120).minimise((0.0, 0.0), 0.1)
    assert found == pytest.approx((0.3, 0.3), abs=1e-2)
    assert len(calls) <= 120


def test_a_shipped_engine_is_found_from_what_it_makes() -> None:
    """Another regime: reading KV is most of a step there."""
    truth = calibration("a100-llama3-8b").config
    recording = recorded(replace(truth, ahead=True), arrivals())
    fit = Fitter(recording, len(recording.requests)).fit(UNKNOWN, evaluations=60, ahead=True)
    assert fit.config.base_s == pytest.approx(truth.base_s, rel=0.05)
    assert fit.config.prefill_s_per_token == pytest.approx(truth.prefill_s_per_token, rel=0.05)
