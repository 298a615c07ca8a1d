"""What a run shows beyond its figures: that it says when it is blind, and that shadow and taking over keep their word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.simulation.policies.tidegate import Tidegate
from admission.simulation.scenarios import run_scenario, scenario
from admission.simulation.scenarios.measuring import limit_end
from admission.simulation.scenarios.running import play
from admission.simulation.scenarios.shadowing import refusals


def test_without_any_signal_the_limit_stands_still_and_says_so() -> None:
    """Blind is a state of its own, not a reason to grow."""
    one = scenario("blind")
    controller = play(one, "tidegate", 3).world.policies[0]
    assert isinstance(controller, Tidegate)
    assert controller.target.limit.value == controller.config.limit.initial_tokens  # type: ignore[union-attr]
    assert controller.view(one.duration_s).frozen.startswith("no signal")


def test_sixteen_tokens_a_chunk_end_at_the_limit_of_one() -> None:
    """A chunk is not a token: how many it carries is learned from the usage of finished answers, and not without it."""
    many, single = scenario("chunks16"), scenario("chunks1")
    untold = replace(many, sight=replace(many.sight, usage=False))
    ends = [limit_end(play(one, "tidegate", 11)) for one in (many, single, untold)]
    assert abs(ends[0] / ends[1] - 1.0) < 0.25
    assert ends[2] < 0.5 * ends[1]


@pytest.mark.parametrize("initial", [2_000, 32_000])
def test_enforcing_at_a_steady_load_refuses_almost_nobody(initial: int) -> None:
    """Switching us on must not be an outage, however low the configured start."""
    one = scenario("steady0.7")
    policy = f"tidegate:mode=shadow,enforce_at_s=40,limit.initial_tokens={initial}"
    report = run_scenario(one, policy, 4)
    assert report.refused_requests / report.offered_requests < 0.01


def test_shadow_foresees_no_refusals_where_there_are_none() -> None:
    """Whoever tries us in shadow on a calm engine must not be frightened off."""
    calm = refusals(scenario("steady0.7"), 11, load=0.5)
    assert calm.enforced == 0
    assert calm.predicted < 0.01


@pytest.mark.parametrize("name", ["over2", "spikes5x"])
def test_shadow_foretells_what_enforcing_refuses(name: str) -> None:
    """Within ten points of the requests; and where no stream tells how fast it goes, the guess is far off."""
    one = replace(scenario(name), duration_s=90.0)
    told = refusals(one, 11)
    assert told.predicted == pytest.approx(told.enforced, abs=0.1)
    untold = refusals(replace(one, sight=replace(one.sight, progress=False)), 11)
    assert abs(untold.predicted - untold.enforced) > 0.2
