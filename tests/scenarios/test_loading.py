"""Scenarios are data: what is in a file is checked, and every mistake is told with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from admission.config.mistakes import BadConfigurationError
from admission.simulation.scenarios import families, load_family, scenario, scenarios
from admission.simulation.scenarios.measuring import names
from admission.simulation.scenarios.running import play, spec_of

ALL = scenarios()
SHORT = "about: x\nscenarios:\n  one:\n    about: y\n    capacity_per_s: 1\n"


def written(folder: Path, text: str) -> Path:
    """A family's file."""
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", ALL)
def test_the_stored_capacity_is_the_work_bound(name: str) -> None:
    """Loads are relative to it: a scenario whose engine or mix changed must not keep the old one."""
    one = ALL[name]
    assert one.capacity_per_s == pytest.approx(one.work_bound_per_s(), rel=0.02)


@pytest.mark.parametrize("name", ALL)
def test_every_check_can_be_measured(name: str) -> None:
    """Its figure exists, its policies can be built, and what it is held against exists too."""
    for check in ALL[name].checks:
        assert check.measure in names()
        assert check.against in {"", *ALL}
        spec_of(check.policy)
        spec_of(check.without or "none")


def test_names_are_unique_over_all_families() -> None:
    """A scenario is found by its name alone."""
    assert sum(len(family.scenarios) for family in families().values()) == len(ALL)


def test_arrivals_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    """Else neither a bad night could become a test, nor a second seed tell noise from a difference."""
    one = scenario("over2")
    first, again, other = (list(one.arrivals(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_pair_draws_the_same_requests() -> None:
    """With and without batch, the chat is the same chat."""
    both = [each for each in scenario("filler3").arrivals(3) if each.priority.label == "interactive"]
    alone = list(scenario("filler3-alone").arrivals(3))
    assert [one.prompt_tokens for one in both] == [one.prompt_tokens for one in alone]
    assert [one.at_s for one in both] == pytest.approx([one.at_s for one in alone])


def test_each_seed_replays_another_part_of_a_recording() -> None:
    """A recording that every seed repeats would be one trial, not five."""
    starts = {next(scenario("azure-conv").arrivals(seed)).prompt_tokens for seed in range(7)}
    assert len(starts) > 3


def test_load_comes_on_top() -> None:
    """Twice the load, twice the requests."""
    one = scenario("over2")
    assert len(list(one.arrivals(1, 2.0))) == pytest.approx(2 * len(list(one.arrivals(1))), rel=0.1)


def test_the_digest_changes_with_the_world_and_not_with_the_words() -> None:
    """Stored results are found by it."""
    one = scenario("over2")
    assert replace(one, about="other", checks=()).digest() == one.digest()
    assert replace(one, load=2.1).digest() != one.digest()
    assert replace(one, engine=replace(one.engine, slower=1.1)).digest() != one.digest()


def test_a_run_repeats_exactly() -> None:
    """Same seed, same world: else a bad night could not become a test."""
    reports = [play(scenario("limit30k"), "tidegate", 5).report for _ in range(2)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SHORT + "    laod: 2\n", "mine.yaml:6: scenarios.one.laod = 2: unknown key, did you mean load?"),
        (SHORT + "    load: 0\n", "scenarios.one.load = 0: must be over 0"),
        (SHORT + "    name: two\n", "scenarios.one.name = 'two': is given by where it stands"),
        (SHORT + "    noise: loud\n", "scenarios.one.noise = 'loud'"),
        (SHORT + "    duration_s: 30\n", "must leave something of duration_s to judge"),
        (
            SHORT + "    disturbances: [{kind: earthquake}]\n",
            "scenarios.one.disturbances[0].kind = 'earthquake': expected one of",
        ),
        (
            SHORT + "    checks: [{measure: preemptions, low: 2, high: 1}]\n",
            "scenarios.one.checks[0].high = 1: must be at least low",
        ),
        (SHORT + "    mix: [{rate_per_s: 1}]\n", "scenarios.one.mix[0].lengths: required"),
        ("scenarios: {}\n", "about: required"),
    ],
)
def test_a_mistake_is_told_with_its_path(tmp_path: Path, text: str, says: str) -> None:
    """One clear line each."""
    with pytest.raises(BadConfigurationError) as error:
        load_family(written(tmp_path, text))
    assert says in str(error.value)


def test_an_unknown_scenario_names_those_that_exist() -> None:
    """And an unknown policy or setting says so too."""
    with pytest.raises(ValueError, match=r"no scenario 'over3'; there are .*over2"):
        scenario("over3")
    with pytest.raises(ValueError, match=r"no policy 'tidegat'; there are .*tidegate"):
        spec_of("tidegat")
    with pytest.raises(ValueError, match="dead_zon"):
        spec_of("tidegate:limit.dead_zon=0.1")
