"""The engine's step, learned from watching: base, KV and prompts told apart."""

from __future__ import annotations

import pytest

from admission.core.plant import Plant

BASE_S, PER_KV_S, PER_PROMPT_S = 0.014, 2.2e-7, 6.3e-5


def true_pace_s(kv_tokens: float, prompt_rate: float) -> float:
    """An engine with those constants."""
    return (BASE_S + PER_KV_S * kv_tokens) / (1.0 - PER_PROMPT_S * prompt_rate)


def watch(plant: Plant, kv_tokens: float, prompt_rate: float, seconds: int = 10) -> None:
    """Some seconds at one load."""
    for _ in range(seconds):
        plant.watch(1.0, 1.0 / true_pace_s(kv_tokens, prompt_rate), kv_tokens, prompt_rate)


def test_different_loads_tell_what_a_step_takes() -> None:
    """From an engine on its way into overload follows how fast it would be with half of it."""
    plant = Plant(13_500.0)
    for kv_tokens in range(10_000, 200_000, 10_000):
        watch(plant, kv_tokens, 11_500 - kv_tokens / 100, seconds=1)
    watch(plant, 200_000, 10_000, seconds=100)
    assert plant.pace_s(100_000, 5_000) == pytest.approx(true_pace_s(100_000, 5_000), rel=0.1)


def test_a_load_that_lasts_does_not_drown_what_others_told() -> None:
    """Hours of one overload tell nothing about another load."""
    plant = Plant(8_000.0)
    for kv_tokens in (20_000, 40_000, 80_000, 160_000):
        watch(plant, kv_tokens, 5_000)
    before = plant.pace_s(40_000, 2_000)
    watch(plant, 160_000, 5_000, seconds=300)
    assert plant.pace_s(40_000, 2_000) == pytest.approx(before, rel=0.1)


def test_an_engine_overloaded_from_the_start_is_scaled_down_in_proportion() -> None:
    """At the one load ever seen it is right; below it, what is thought of the rest decides."""
    plant = Plant(13_500.0)
    watch(plant, 200_000, 8_000, seconds=30)
    assert plant.pace_s(200_000, 8_000) == pytest.approx(true_pace_s(200_000, 8_000), rel=0.1)
    assert plant.pace_s(100_000, 4_000) == pytest.approx(true_pace_s(100_000, 4_000), rel=0.25)


def test_the_measured_prefill_rate_says_what_prompts_take() -> None:
    """Where all steps read as much of prompts, nothing else does."""
    guessed, told = Plant(8_000.0), Plant(13_500.0)
    for plant in (guessed, told):
        watch(plant, 100_000, 9_000, seconds=30)
    error = [
        abs(plant.pace_s(100_000, 2_000) / true_pace_s(100_000, 2_000) - 1.0) for plant in (guessed, told)
    ]
    assert error[1] < 0.5 * error[0]


def test_an_engine_without_prompts_to_read_gives_no_nonsense() -> None:
    """What was never seen stays a guess of nothing."""
    plant = Plant(8_000.0)
    assert not plant.known
    watch(plant, 50_000, 0.0)
    assert plant.known
    assert plant.pace_s(50_000, 0.0) == pytest.approx(true_pace_s(50_000, 0.0), rel=0.1)
