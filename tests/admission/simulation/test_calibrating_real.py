"""Fitted to the first half of four real vLLM runs and to profile points, the model tells the rest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from admission.simulation.calibrating.facts import kv_capacity, max_num_seqs
from admission.simulation.calibrating.job import Outcome, Wish, calibrate
from admission.simulation.calibrating.measured import Recording
from admission.simulation.calibrating.shipped import SHIPPED, Shipped
from admission.simulation.calibrating.tables import choice, read_table, requests, series
from admission.simulation.engines import CALIBRATIONS, load_engine

DATA = Path(str(files("admission.simulation") / "data"))
BANDS = {"p50": 0.15, "p90": 0.15, "p99": 0.25}
RUNS = [each for each in SHIPPED if each.wish.where]


@cache
def _calibrated(engine: str) -> Outcome:
    each = next(each for each in SHIPPED if each.engine == engine)
    return calibrate([DATA / name for name in each.files], each.wish)


@pytest.mark.parametrize(
    "engine",
    [
        "rtx4090-llama3.1-8b",
        "pro6000-llama3.1-8b",
        "pro6000x2-qwen3-32b",
        "pro6000-qwen3-30b-a3b",
    ],
)
def test_the_second_half_of_a_real_run_is_told_by_the_first(engine: str) -> None:
    """The promise of `calibrate`: 300 requests at 10/s, judged by the 150 whose times the fit never saw."""
    outcome = _calibrated(engine)
    assert outcome.judged is not None
    assert outcome.judged.requests == 150
    missed = {
        line.measure: f"{line.error:+.1%}"
        for line in outcome.judged.lines
        if abs(line.error) > BANDS[line.measure[-3:]]
    }
    assert missed == {}


def test_a_wrong_sequence_bound_shows_in_the_held_out_half() -> None:
    """The bands can fail: with 256 sequences instead of 128 the second half is far off."""
    run = next(each for each in RUNS if each.engine == "pro6000-llama3.1-8b")
    outcome = calibrate([DATA / name for name in run.files], replace(run.wish, max_num_seqs=256))
    assert outcome.judged is not None
    assert max(abs(line.error) for line in outcome.judged.lines) > 0.5


def test_the_shipped_mixture_of_experts_is_the_one_that_is_fitted() -> None:
    """A constant in the source that nobody can reproduce is folklore."""
    fitted = _calibrated("pro6000-qwen3-30b-a3b").config
    shipped = load_engine("pro6000-qwen3-30b-a3b").config
    for name in ("base_s", "prefill_s_per_token", "decode_s_per_sequence"):
        assert getattr(shipped, name) == pytest.approx(getattr(fitted, name), rel=0.05)
    assert (shipped.kv_capacity_tokens, shipped.max_num_seqs, shipped.ahead) == (617_440, 128, True)


def test_profile_points_of_an_h200_give_its_constants() -> None:
    """Decode steps within 5 % and lone prefills within 9 % on average, and the overhead that only the TTFT has."""
    outcome = _calibrated("h200-llama3.1-8b-fp8")
    assert outcome.points is not None
    for kind, band in (("decode step", 0.05), ("lone TTFT", 0.09)):
        errors = [abs(error) for error in outcome.points.judged[kind]]
        assert sum(errors) / len(errors) < band
    known = CALIBRATIONS["h200-llama3.1-8b-fp8"].config
    assert outcome.config.base_s == pytest.approx(known.base_s, rel=0.02)
    assert outcome.config.kv_s_per_token == pytest.approx(known.kv_s_per_token, rel=0.05)
    assert 0.005 < outcome.config.overhead_s < 0.02


def test_whole_batches_give_what_they_can_and_say_what_not() -> None:
    """Their prompts are as long as their answers: prefill and decode costs appear as one sum, and that is said."""
    outcome = calibrate(
        [DATA / "argonne_vllm_batch_latency.csv"],
        Wish(
            kv_capacity_tokens=460_000,
            where=("gpu=Nvidia H100 GPU", "n_gpu=1", "model=meta-llama/Meta-Llama-3-8B"),
        ),
    )
    known = CALIBRATIONS["h100-llama3-8b"].config
    assert outcome.config.base_s == pytest.approx(known.base_s, rel=0.02)
    assert outcome.config.kv_s_per_token == pytest.approx(known.kv_s_per_token, rel=0.03)
    both = outcome.config.prefill_s_per_token + outcome.config.decode_s_per_sequence
    assert both == pytest.approx(known.prefill_s_per_token + known.decode_s_per_sequence, rel=0.25)
    assert outcome.open["decode_s_per_sequence"] > 1.0


@pytest.mark.parametrize("run", RUNS, ids=lambda each: each.engine)
def test_bounds_are_read_off_the_engine_s_own_figures(run: Shipped) -> None:
    """Where nobody knows the flags: KV within 3 % of the truth, the sequence bound exactly."""
    where = choice(run.wish.where)
    recording = Recording(
        run.engine,
        requests(read_table(DATA / run.files[0], where)),
        series(read_table(DATA / "vllm0.19_real_runs_timeseries_1s.csv.gz", where)),
        engines=run.wish.engines or 1,
    )
    if run.engine.startswith("rtx4090"):
        assert kv_capacity(recording) == pytest.approx(41_408, rel=0.03)
        assert max_num_seqs(recording) is None, "KV binds there, not the bound of 256"
    else:
        assert max_num_seqs(recording) == 128
