"""Arithmetic that the law stands on."""

from __future__ import annotations

from admission.core.stats import Mean, Rate, RunningQuantile, SmoothedInTime, low_quantile


def test_a_handful_of_values_gives_a_cautious_quantile() -> None:
    """With three values the 0.9-quantile is the middle one: one slow request must not cut the limit."""
    assert low_quantile([1.0, 2.0, 9.0], 0.9) == 2.0


def test_the_quantile_forgets_what_leaves_the_window() -> None:
    """Else a mix that changed would be predicted by what it was."""
    window = RunningQuantile(3)
    for value in (100.0, 1.0, 2.0, 3.0):
        window.add(value)

    assert (len(window), window.value(1.0), window.values()) == (3, 3.0, [1.0, 2.0, 3.0])


def test_the_initial_guess_of_a_mean_fades_with_the_first_sample() -> None:
    """A guess is worth less than one measurement."""
    mean = Mean(512.0, 0.05)
    mean.add(10.0)

    assert mean.value == 10.0


def test_smoothing_is_in_seconds_not_in_samples() -> None:
    """Scraping four times as often must not make the law four times as nervous."""
    seldom, often = SmoothedInTime(2.0), SmoothedInTime(2.0)
    seldom.add(0.0, 0.0)
    often.add(0.0, 0.0)
    seldom.add(1.0, 1.0)
    for quarter in range(1, 5):
        often.add(1.0, quarter / 4)

    assert abs((seldom.value or 0) - (often.value or 0)) < 1e-9


def test_a_forgotten_mean_starts_over() -> None:
    """After an engine's restart the old value says nothing."""
    mean = SmoothedInTime(2.0)
    mean.add(5.0, 0.0)
    mean.forget()
    assert mean.value is None


def test_a_rate_is_what_was_counted_over_the_time_it_took() -> None:
    """Folded once a tick, smooth in seconds; folding twice at one instant changes nothing."""
    rate = Rate(5.0, 100.0)
    assert rate.per_second == 0.0
    rate.add(4.0)
    rate.add(2.0)
    rate.fold(102.0)
    rate.fold(102.0)
    assert rate.per_second == 3.0
    rate.fold(200.0)
    assert rate.per_second < 0.01
