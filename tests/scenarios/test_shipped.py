"""Every shipped scenario against its bands, which are data; and each band again without the ingredient that it guards."""

from __future__ import annotations

import functools

import pytest

from admission.simulation.scenarios import scenario, scenarios
from admission.simulation.scenarios.measuring import value
from admission.simulation.scenarios.running import Played, play

CHECKED = [name for name, one in scenarios().items() if any(not check.benchmark for check in one.checks)]


@functools.lru_cache(maxsize=8)
def played(name: str, policy: str, seed: int) -> Played:
    """Several checks look at the same run."""
    return play(scenario(name), policy, seed)


@pytest.mark.parametrize("name", CHECKED)
def test_every_measure_stays_in_its_band(name: str) -> None:
    """The whole loop: arrivals, decisions, engine, what it shows, the law."""
    missed = [
        f"seed {seed}: {check.measure} {check.of} is {found:.4g}, not {check.low:g} to {check.high:g}"
        for check in scenario(name).checks
        if not check.benchmark
        for seed in check.seeds
        if not check.low <= (found := value(scenario(name), check, check.policy, seed, played)) <= check.high
    ]
    assert not missed


@pytest.mark.parametrize("name", CHECKED)
def test_it_leaves_the_bands_without_the_ingredients(name: str) -> None:
    """A scenario that cannot fail proves nothing."""
    guarded = [check for check in scenario(name).checks if check.without and not check.benchmark]
    assert guarded
    kept = [
        f"{check.measure} {check.of} is {found:.4g} with {check.without}"
        for check in guarded
        if check.low
        <= (found := value(scenario(name), check, check.without, check.seeds[0], played))
        <= check.high
    ]
    assert not kept
