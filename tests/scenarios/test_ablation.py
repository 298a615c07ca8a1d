"""The ablation behind docs/law-ablations.md: whatever it leaves out is really gone, only there, and its table says so."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from admission.core.pace import Pace
from admission.simulation.judging import Report
from admission.simulation.scenarios import scenario, scenarios
from admission.simulation.scenarios.running import play
from benchmarks.bench_ablation import LAB, WHOLE, Row, Trial, bought_nothing
from benchmarks.law_runs import Figures, Task
from benchmarks.law_statics import Best
from benchmarks.law_table import cell
from benchmarks.law_variants import CHANCE, INGREDIENTS, LAW, NEIGHBOURS, Variant
from benchmarks.law_without import PATCHES, without

SEED = 1
SHORT_S, LONG_S = 55.0, 100.0
LATE = {"capdrop", "restart", "stall8", "kvreason2", "outshift"}
"""What these are about comes after the first minute."""
ALL = [*INGREDIENTS, *NEIGHBOURS, *CHANCE]
TAKEN = [variant for variant in INGREDIENTS if variant.patch]


def report(name: str, spec: str) -> Report:
    """What the first part of a scenario comes to."""
    one = scenario(name)
    one = dataclasses.replace(one, duration_s=LONG_S if name in LATE else SHORT_S)
    return play(one, spec, SEED).report


whole = cache(report)


def figures(goodput: float, p99_s: float = 1.0) -> Figures:
    """A run that came to that."""
    return Figures(goodput, goodput, 1.0, 0.5, p99_s, [], [0.9, 0.8, 0.7, 0.6], 0, None, None)


def row(*goodputs: float, p99_s: float = 1.0, name: str = "x") -> Row:
    """A variant in as many scenarios, where the law whole has .5 in each."""
    law = Best(0, {1: figures(0.5)})
    names = LAB[: len(goodputs)]
    return Row(
        Variant(name=name),
        [
            cell(at, "x", {1: figures(goodput, p99_s)}, law, None)
            for at, goodput in zip(names, goodputs, strict=True)
        ],
    )


@pytest.mark.parametrize("variant", INGREDIENTS, ids=lambda variant: variant.name)
def test_without_an_ingredient_the_law_decides_otherwise(variant: Variant) -> None:
    """An ablation that takes nothing out would call every ingredient useless."""
    law = whole(variant.at, LAW)
    with without(variant.patch):
        assert report(variant.at, variant.spec) != law


@pytest.mark.parametrize("variant", [*NEIGHBOURS, *CHANCE], ids=lambda variant: variant.name)
def test_another_setting_is_another_run(variant: Variant) -> None:
    """A key that nothing reads would look like a setting that does not matter."""
    assert Trial(variant.at, variant.spec, SEED).name != Task(variant.at, LAW, SEED).name
    assert report(variant.at, variant.spec) != whole(variant.at, LAW)


@pytest.mark.parametrize("name", [name for name in PATCHES if name])
def test_afterwards_the_law_is_whole_again(name: str) -> None:
    """The next run of the same process may be one of the law itself: also after one that failed."""
    owners = [patch.owner for patch in PATCHES[name]]
    before = [dict(vars(owner)) for owner in owners]
    with without(name):
        assert [dict(vars(owner)) for owner in owners] != before
    with pytest.raises(ZeroDivisionError), without(name):
        raise ZeroDivisionError
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_controller_made_meanwhile_lives_on() -> None:
    """A patch that hides what an instance keeps must not have lost it for others."""
    pace = Pace()
    pace.cut_at = 3.0
    with without("since the cut"):
        pace.cut_at = 5.0
        assert pace.cut_at < 0
    assert pace.cut_at == 3.0


def test_every_patch_is_somebodys_and_every_name_is_one() -> None:
    """One that no variant names would rot; two variants of one name could not be told apart."""
    assert {variant.patch for variant in TAKEN} == {name for name in PATCHES if name}
    assert len({variant.name for variant in ALL}) == len(ALL)
    assert all(variant.purpose for variant in INGREDIENTS)
    with pytest.raises(KeyError), without("nothing of that name"):
        pass


def test_results_of_a_law_without_something_are_never_those_of_the_law() -> None:
    """The comparison of laws keeps its results in the same place."""
    law, same, less = Task("over2", LAW, 1), Trial("over2", LAW, 1), Trial("over2", LAW, 1, patch="prefill")
    assert (same.name, same.made_of) == (law.name, law.made_of)
    assert less.name != law.name
    assert less.made_of != law.made_of
    assert len({law.name, *(Trial("over2", v.spec, 1, patch=v.patch).name for v in ALL)}) == len(ALL) + 1
    assert all(Trial("over2", variant.spec, 1).is_law for variant in ALL)


def test_the_row_names_where_it_matters() -> None:
    """A mean over many scenarios hides the few that an ingredient is for."""
    one = row(0.5, 0.4, 0.55, 0.497)
    assert one.worst == pytest.approx(0.8)
    assert one.goodput == pytest.approx((1 + 0.8 + 1.1 + 0.994) / 4)
    line = one.line(row(0.5, 0.5, 0.5, 0.5))
    assert f"| {LAB[1]} 0.80 | {LAB[2]} 1.10 |" in line
    assert LAB[3] not in line
    assert f"+{LAB[0]}" in row(0.5, p99_s=9.0).line(row(0.5))


@pytest.mark.parametrize(
    ("one", "idle"),
    [
        (row(0.5, 0.5), True),
        (row(0.499, 0.502), True),
        (row(0.48, 0.48), False),
        (row(0.47, 0.53), False),
        (row(0.5, 0.5, p99_s=9.0), False),
    ],
)
def test_what_lies_within_chance_is_no_finding(one: Row, idle: bool) -> None:
    """Two runs of the same law differ too, once anything in them comes a millisecond later."""
    assert bought_nothing(one, [row(0.498, 0.5), row(0.5, 0.495)], row(0.5, 0.5)) is idle


def test_the_lab_is_of_shipped_scenarios() -> None:
    """Its names are those that the page links to."""
    assert set(LAB) <= set(scenarios())
    assert len(set(LAB)) == len(LAB)
    assert {variant.at for variant in ALL} <= set(scenarios())
    assert WHOLE.spec == LAW
