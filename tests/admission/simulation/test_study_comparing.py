"""A difference between two configurations is told apart from noise, or it is not called one."""

from __future__ import annotations

import random

import pytest

from admission.simulation.comparing import paired, sentence, t_quantile


@pytest.mark.parametrize(
    ("freedom", "published"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (9, 2.262),
        (10, 2.228),
        (30, 2.042),
        (120, 1.980),
    ],
)
def test_t_quantiles_are_those_of_the_published_tables(freedom: int, published: float) -> None:
    """The interval rests on them; few seeds make it wide, and it must be as wide as it has to be."""
    assert t_quantile(freedom) == pytest.approx(published, abs=0.0006)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """An interval that is too narrow sells noise as progress."""
    rng = random.Random(5)
    covered = 0
    for _ in range(2_000):
        noise = [rng.gauss(0.02, 0.01) for _ in range(5)]
        found = paired("goodput", [0.5] * 5, [0.5 + each for each in noise])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.02 <= found.high

    assert 0.935 < covered / 2_000 < 0.965


def test_pairs_take_out_what_both_share() -> None:
    """Seeds differ far more from one another than the two configurations do on the same arrivals."""
    a, b = [0.40, 0.60, 0.80], [0.42, 0.621, 0.819]

    assert paired("goodput", a, b).exceeds_noise
    assert not paired("goodput", a, [0.621, 0.819, 0.42]).exceeds_noise


@pytest.mark.parametrize(
    ("b", "says"),
    [
        ([0.64, 0.66, 0.62], "new is better than old"),
        ([0.54, 0.56, 0.55], "old is better than new"),
        ([0.60, 0.63, 0.57], "No difference beyond the noise over 3 seeds"),
    ],
)
def test_the_sentence_names_the_better_one_or_none(b: list[float], says: str) -> None:
    """People read the sentence, not the interval."""
    assert sentence(paired("goodput", [0.60, 0.61, 0.59], b), "old", "new").startswith(says)


def test_one_seed_is_no_verdict() -> None:
    """A single pair says which was higher once, and nothing more."""
    found = paired("goodput", [0.5], [0.9])

    assert found.exceeds_noise is None
    assert "says nothing about noise" in sentence(found)


def test_what_is_no_pair_is_refused() -> None:
    """Seeds that are missing on one side would pair strangers."""
    with pytest.raises(ValueError, match="as many of A as of B"):
        paired("goodput", [0.5, 0.6], [0.5])
    with pytest.raises(ValueError, match="freedom"):
        t_quantile(0)
