"""The comparison behind docs/calibrate.md, on a real server: the model is sent what the server was sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from admission.simulation.engine import EngineConfig
from admission.simulation.exchange import Request
from admission.simulation.judging import Judge
from admission.simulation.load import Load, LoadConfig, Outcome
from admission.simulation.policies import PolicySpec, build
from admission.simulation.traces import Arrival
from admission.simulation.world import Callers, WorldConfig
from admission.vocabulary import Mode, PriorityClass
from benchmarks.vllm_predict import (
    FIGURES,
    LEAVES,
    NEVER_S,
    Facts,
    Scripted,
    controller,
    keep,
    kept,
    predict,
    rising,
    scripted,
    table,
)
from tests.real.vllm_bench import LEAVE_RATIO, overload

FACTS = Facts(
    ttft_alone_s=0.05,
    tpot_alone_s=0.02,
    capacity_per_s=4.0,
    warm_s=5.0,
    judged_s=10.0,
    seeds=(1, 2),
    figures=(dict.fromkeys(FIGURES, 0.5),),
)
ENGINE = EngineConfig(
    base_s=0.02,
    prefill_s_per_token=1e-4,
    decode_s_per_sequence=1e-3,
    kv_s_per_token=0.0,
    kv_capacity_tokens=3_072,
)


class Listed(Load):
    """A load that notes what it sends."""

    def __init__(self, config: LoadConfig, arrivals: list[Arrival]) -> None:
        super().__init__(config, arrivals)
        self.sent: list[int] = []

    def _request(self, outcome: Outcome) -> Request:
        request = super()._request(outcome)
        self.sent.append(request.leave_after_chunks)
        return request


def test_leavers_are_those_of_the_load_that_was_sent() -> None:
    """The same callers leave after the same number of chunks; else two different loads would be compared."""
    arrivals = [replace(arrival, at_s=0.0) for arrival in overload(4.0, 10.0, 3)]
    nobody = LoadConfig(port=1, exact_output=True, leave_ratio=LEAVE_RATIO, seed=3)
    load = Listed(nobody, arrivals)
    asyncio.run(load.run(extra_s=5.0))
    told = [one.output_tokens if one.session == LEAVES else 0 for one in scripted(arrivals, 3)]
    assert sum(map(bool, told)) > len(told) / 10
    assert told == load.sent


def test_leavers_leave_and_are_not_offered() -> None:
    """On an idle engine all the others are served, and what a caller asked for stays what its ticket says."""
    arrivals = list(scripted(overload(0.1, 100.0, 2), 2))
    leavers = sum(arrival.session == LEAVES for arrival in arrivals)
    judge = Judge()
    callers = Callers(leave_within_s=NEVER_S)
    Scripted(WorldConfig(callers=callers), lambda no: build(PolicySpec("none"), seed=no, now=0.0), judge).run(
        arrivals
    )
    report = judge.report()
    assert leavers > 0
    assert report.endings == {"served": len(arrivals) - leavers, "left": leavers}
    assert report.offered_requests == len(arrivals) - leavers
    assert all(arrival.max_tokens >= 24 for arrival in arrivals)


def test_the_law_is_configured_as_in_the_sidecar() -> None:
    """The product's own reader of configurations makes both."""
    config = controller(FACTS.slo)
    assert config.mode is Mode.ENFORCE
    assert config.classes[PriorityClass.INTERACTIVE].slo == FACTS.slo
    assert FACTS.slo.ttft_s == pytest.approx(0.2)


def test_the_prediction_repeats_and_knows_an_overload() -> None:
    """The same facts give the same figures to the last bit; at three times the capacity most are refused."""
    first = predict(FACTS, ENGINE)
    assert first == predict(FACTS, ENGINE)
    assert all(0.05 < run["goodput_requests"] <= run["accepted"] < 0.9 for run in first)
    slow = replace(ENGINE, base_s=10 * ENGINE.base_s)
    assert all(run["goodput_requests"] < 0.05 for run in predict(FACTS, slow))


def test_the_calibration_load_shows_every_phase_to_both_halves() -> None:
    """Constants are fitted to the first half of the requests and judged by the second."""
    times = [arrival.at_s for arrival in rising(20.0)]
    assert times == sorted(times)
    first, second = (sum(start <= at < start + 36.0 for at in times) for start in (0.0, 36.0))
    assert first + second == len(times)
    assert first == pytest.approx(second, rel=0.1)


def test_errors_are_relative_to_what_was_measured() -> None:
    """A prediction that is too high has a positive sign."""
    real, simulated = dict.fromkeys(FIGURES, 0.2), dict.fromkeys(FIGURES, 0.25)
    lines = table([real, real], [simulated])
    assert "| goodput, requests | 0.200 | 0.250 | +25% |" in lines
    assert "| TTFT p50 | 200 ms | 250 ms | +25% |" in lines
    assert len(lines) == 2 + len(FIGURES)


def test_what_was_measured_can_be_kept(tmp_path: Path) -> None:
    """A journal that was recorded once can be calibrated to again, without a server."""
    keep(tmp_path, FACTS)
    assert kept(tmp_path) == FACTS
