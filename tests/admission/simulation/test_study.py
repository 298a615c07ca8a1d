"""A study runs every policy in front of the same traffic, the same way each time."""

from __future__ import annotations

import json
import pickle
from itertools import islice, pairwise
from pathlib import Path

import pytest

from admission.core.slo import SloConfig
from admission.simulation import asking
from admission.simulation.policies import PolicySpec
from admission.simulation.scenarios import run_scenario, scenario
from admission.simulation.staging import Staged
from admission.simulation.study import BEST_STATIC, Case, Findings, Study, run_case
from admission.simulation.sweep import grid
from admission.simulation.workload import MIX_S, Bench, Kind, Traffic, mix_named
from admission.vocabulary import PriorityClass

BUSY = Bench(traffic=Traffic(kind=Kind.MIX, name="chat", factor=6.0, duration_s=20.0))
"""About twice what the default engine can carry, for a short while."""
NONE, TIDEGATE = PolicySpec("none"), PolicySpec("tidegate")


def small(**more: object) -> Study:
    """Two policies in this process."""
    settings = {"setup": BUSY, "contenders": {"none": NONE, "tidegate": TIDEGATE}, "processes": 1, **more}
    return Study(**settings)  # type: ignore[arg-type]


class Counting:
    """A meter that counts."""

    def __init__(self) -> None:
        self.expected = self.ended = 0

    def expect(self, runs: int) -> None:
        """So many more."""
        self.expected += runs

    def advance(self) -> None:
        """One has ended."""
        self.ended += 1


@pytest.mark.parametrize("policy", [NONE, TIDEGATE, PolicySpec("vegas")], ids=lambda spec: spec.name)
def test_the_same_case_gives_the_same_figures(policy: PolicySpec) -> None:
    """Whoever reruns a figure from the documentation must get it, to the last digit."""
    case = Case(setup=BUSY, label="x", policy=policy, seed=3)

    assert json.dumps(run_case(case).report.as_json()) == json.dumps(run_case(case).report.as_json())


def test_every_policy_meets_the_same_requests() -> None:
    """Side by side means the same arrivals, seed by seed; another seed is other traffic."""
    found = small(seeds=(1, 2)).run()
    offered = [[run.report.offered_tokens for run in found.of(label, 1.0)] for label in found.labels()]

    assert found.labels() == ["none", "tidegate"]
    assert offered[0] == offered[1]
    assert offered[0][0] != offered[0][1]


def test_admission_helps_an_engine_that_is_overloaded() -> None:
    """The question that people come with has an answer here."""
    found = small().run()
    ratios = {run.label: run.report.goodput_requests_ratio for run in found.runs}

    assert ratios["tidegate"] > 1.2 * ratios["none"]


def test_a_limit_on_requests_is_known_by_whoever_shows_the_run() -> None:
    """Such a policy keeps its books in tokens, and its limit stands in its settings, or in their defaults."""
    specs = {
        "some": asking.policy("fixed_requests:limit_requests=5"),
        "usual": PolicySpec("fixed_requests"),
        "none": NONE,
        "tidegate": TIDEGATE,
    }
    short = Bench(traffic=Traffic(kind=Kind.MIX, name="chat", duration_s=2.0))
    found = small(setup=short, contenders=specs).run()

    assert {run.label: run.limit_requests for run in found.runs} == {
        "some": 5,
        "usual": 64,
        "none": None,
        "tidegate": None,
    }


def test_load_multiplies_what_is_offered() -> None:
    """A factor on the rate, for mixes and for recordings."""
    for traffic in (BUSY.traffic, Traffic(name="azure2023_code_burst_540_960", duration_s=40.0)):
        study = small(setup=Bench(traffic=traffic), contenders={"none": NONE}, loads=(0.5, 1.0, 2.0))
        half, one, two = (run.report.offered_requests for run in study.run().runs)

        assert half == pytest.approx(one / 2, rel=0.25)
        assert two == pytest.approx(one * 2, rel=0.25)


def test_the_sweep_gives_one_budget_for_all_seeds() -> None:
    """Choosing per seed would flatter the bar that policies are held against."""

    def fixed(tokens: int) -> PolicySpec:
        return asking.policy(f"fixed_tokens:limit_tokens={tokens}")

    meter = Counting()
    quick = Bench(traffic=Traffic(kind=Kind.MIX, name="chat", factor=6.0, duration_s=5.0))
    found = small(setup=quick, contenders={"none": NONE}, seeds=(0, 1), sweep=True, fixed=fixed).run(meter)
    swept = found.sweeps[1.0]
    best = [run.report.goodput_requests_ratio for run in found.of(BEST_STATIC, 1.0)]

    assert set(grid(quick.engine.kv_capacity_tokens)) < set(swept.scores)
    assert swept.best.goodput_requests_ratio == pytest.approx(sum(best) / 2)
    assert all(score.rank <= swept.best.rank for score in swept.scores.values())
    assert meter.expected == meter.ended == 2 + 2 * len(swept.scores)


def test_a_sweep_that_cannot_make_budgets_is_refused() -> None:
    """A sweep of nothing would look like a result."""
    with pytest.raises(ValueError, match="static budget"):
        small(sweep=True, contenders={}).run()


def test_a_scenario_is_run_as_its_own_runner_runs_it() -> None:
    """The figures of the command and those of the tests are the same figures."""
    staged = Staged(scenario("stall8"))
    policy = asking.policy("tidegate", slos=staged.slo)

    mine = run_case(Case(setup=staged, label="x", policy=policy, seed=5)).report

    assert mine.as_json() == run_scenario(staged.scenario, "tidegate", 5).as_json()


def test_time_lines_come_back_for_one_seed_and_load_only() -> None:
    """A plot shows one run of each policy; more would only cost."""
    found = small(seeds=(0, 1), loads=(1.0, 2.0), watched=True, contenders={"none": NONE}).run()

    assert [(run.load, run.seed) for run in found.runs if run.timeline is not None] == [(1.0, 0)]


def test_differences_are_paired_by_seed() -> None:
    """B - A on the same arrivals."""
    found = small(seeds=(0, 1)).run()
    said = found.difference("none", "tidegate", 1.0, "goodput_requests_ratio")
    without, with_ = (
        [run.report.goodput_requests_ratio for run in found.of(label, 1.0)] for label in ("none", "tidegate")
    )

    assert said.mean == pytest.approx(sum(with_) / 2 - sum(without) / 2)
    assert said.pairs == 2


def test_a_case_is_small_however_long_the_traffic_is() -> None:
    """Workers make the requests themselves: memory stays flat, and nothing large is sent."""
    traffic = Traffic(kind=Kind.MIX, name="chat", factor=1_000.0, duration_s=1e6)
    case = Case(setup=Bench(traffic=traffic), label="x", policy=asking.policy("tidegate"))

    assert len(pickle.dumps(case)) < 20_000
    assert len(list(islice(traffic.arrivals(), 5))) == 5


def test_another_seed_of_a_recording_keeps_moments_and_sizes() -> None:
    """Seeds must differ, or noise looks like none; and they must stay the recording, or it is another load."""
    traffic = Traffic(name="azure2023_code_burst_540_960")
    first, other, again = (list(traffic.arrivals(seed)) for seed in (0, 1, 1))

    assert first != other
    assert other == again
    assert [one.at_s for one in first] == [one.at_s for one in other]
    assert sorted(one.prompt_tokens for one in first) == sorted(one.prompt_tokens for one in other)


def test_window_speed_and_duration_cut_and_squeeze() -> None:
    """START:LENGTH is in seconds of the recording, the duration in simulated ones."""
    whole = list(Traffic(name="azure2023_code_burst_540_960").arrivals())
    part = list(
        Traffic(
            name="azure2023_code_burst_540_960", window=(100.0, 200.0), speed=4.0, duration_s=30.0
        ).arrivals()
    )
    expected = [one for one in whole if 100.0 <= one.at_s < 220.0]

    assert [one.prompt_tokens for one in part] == [one.prompt_tokens for one in expected]
    assert all(a.at_s <= b.at_s < 30.0 for a, b in pairwise(part))


def test_an_engine_gives_one_token_at_least() -> None:
    """Traces record answers of no tokens: no engine can give that."""
    traffic = Traffic(name="azure2023_code_burst_540_960")

    assert all(one.output_tokens >= 1 for one in traffic.arrivals())


def test_a_mix_is_known_by_its_name_or_is_a_file(tmp_path: Path) -> None:
    """`--mix chat` needs no file; one's own mix is one."""
    file = tmp_path / "mine.yaml"
    file.write_text("components: [{name: mine, rate_per_s: 2, lengths: chat}]")

    assert mix_named("chat").components[0].name == "chat"
    assert mix_named(str(file)).components[0].name == "mine"
    assert Traffic(kind=Kind.MIX, name=str(file)).length_s == MIX_S


def test_a_mix_lasts_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    """Longer than its file says, too: `--duration` must not be cut in silence."""
    file = tmp_path / "short.yaml"
    file.write_text("{length_s: 20, components: [{rate_per_s: 2, lengths: chat}]}")
    own = list(Traffic(kind=Kind.MIX, name=str(file)).arrivals())
    longer = list(Traffic(kind=Kind.MIX, name=str(file), duration_s=100.0).arrivals())

    assert own[-1].at_s < 20.0
    assert 80.0 < longer[-1].at_s < 100.0
    assert longer[: len(own)] == own


def test_the_targets_are_those_that_were_asked_for() -> None:
    """A stricter SLO makes fewer answers good."""
    strict = {PriorityClass.INTERACTIVE: SloConfig(ttft_s=0.05, tpot_s=0.01)}
    easy = run_case(Case(setup=BUSY, label="x", policy=NONE)).report.good_requests
    hard = run_case(
        Case(setup=Bench(traffic=BUSY.traffic, slo=strict), label="x", policy=NONE)
    ).report.good_requests

    assert hard < easy


def test_labels_stay_in_the_order_of_asking() -> None:
    """A table is read from left to right."""
    assert Findings((), (0,), (1.0,)).labels() == []
    assert small(contenders={"tidegate": TIDEGATE, "none": NONE}).run().labels() == ["tidegate", "none"]
