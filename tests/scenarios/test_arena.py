"""The simulator against seven policies measured on an A10G, and the product against the best of them."""

from __future__ import annotations

import pytest

from benchmarks.arena_runs import MEASURED, Request, figures, measured, simulated
from benchmarks.bench_arena import LAW, MOST_OFF, alone, error

CLOSE = 0.05
"""What the simulator reaches; the claim is three times as wide."""


def test_the_published_figures_are_in_the_files() -> None:
    """First tokens within 2 s over the time until the last answer ended: FCFS .34, VTC .76, the best static limit 1.39."""
    rates = {name: round(figures(rows).requests_per_s, 2) for name, rows in measured().items()}
    assert rates == {
        "fcfs": 0.34,
        "vtc": 0.76,
        "rpm5": 0.94,
        "rpm10": 1.39,
        "rpm15": 1.34,
        "rpm20": 1.08,
        "rpm30": 0.66,
    }


@pytest.mark.parametrize("name", MEASURED)
def test_the_simulator_comes_to_what_was_measured(name: str) -> None:
    """In the figure that counts, and in the whole distribution of first tokens."""
    there, here = figures(measured()[name]), figures(simulated(MEASURED[name], told=True))
    assert abs(error(name, there)) <= CLOSE < MOST_OFF
    assert here.until_s == pytest.approx(there.until_s, rel=0.02)
    assert here.ttft_p50_s == pytest.approx(there.ttft_p50_s, rel=MOST_OFF)
    assert here.ttft_p90_s == pytest.approx(there.ttft_p90_s, rel=MOST_OFF)
    assert here.tpot_p50_s == pytest.approx(there.tpot_p50_s, rel=0.06)


def test_the_product_beats_the_best_of_them() -> None:
    """By a third, in requests and in tokens, in every quarter of sizes, and with the worst client better off."""
    best = figures(measured()["rpm10"])
    ours = alone(LAW)
    assert ours.requests_per_s > 1.3 * best.requests_per_s
    assert ours.tokens_per_s > 1.3 * best.tokens_per_s
    assert all(here > there for here, there in zip(ours.good_by_size, best.good_by_size, strict=True))
    assert ours.worst_over_median > best.worst_over_median


def test_figures_are_what_they_say() -> None:
    """A refused request is offered and not served; a late one is served and not good."""
    run = [
        *(Request("a", float(no), 10, 11, 0.5, 1.5) for no in range(10)),
        *(Request("b", float(no), 30, 1, 3.0, 3.0) for no in range(5)),
        *(Request("b", 10.0 + no, 30, 1, 1.0, 1.0) for no in range(5)),
        Request("c", 15.0, 100, 100, None, None),
    ]
    one = figures(run)
    assert (one.served, one.good, one.until_s, one.good_tokens) == (20, 15, 15.0, 10 * 21 + 5 * 31)
    assert one.requests_per_s == 1.0
    assert one.tpot_p50_s == pytest.approx(0.1)
    assert one.worst_over_median == pytest.approx(0.5 / 0.75)
    with pytest.raises(ValueError, match="nothing was served"):
        figures(run[-1:])
