"""The loop of the law is stable, and each of its ingredients is what makes it so: every band is missed without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.core.cost import Cost
from admission.core.ledger import Ledger, Permit
from admission.core.limits.aimd import Aimd, AimdConfig
from admission.core.limits.base import Load
from admission.core.model import Ticket, TicketId, Why
from admission.core.prefill import Prefill, PrefillConfig
from admission.simulation import policies
from admission.simulation.policies import PolicySpec
from admission.simulation.policies.tidegate import Tidegate, TidegateConfig
from admission.simulation.scenarios.scenario import EngineSpec, Scenario
from admission.simulation.timeline import Timeline
from admission.simulation.traces import Arrival
from admission.simulation.world import Sight, World
from admission.vocabulary import Mode
from benchmarks import stability_bounds as bounds
from benchmarks.bench_stability import written
from benchmarks.stability_courses import SETTLED_S, Setting
from benchmarks.stability_loop import WITHOUT, Loop, Plant, Trace, growing, grown
from benchmarks.stability_runs import Build, Watched, law, watch
from tests.architecture.tree import ROOT

LAW = AimdConfig()
EAGER = WITHOUT["cut gain 2.0"]
UNGUARDED = WITHOUT["without the effect guard"]
SLOW_UP = WITHOUT["without large steps and re-entry"]
EDGY = replace(LAW, dead_zone=0.0, landing=0.001)
FINE, COARSE = min(bounds.SHARES), max(bounds.SHARES)
PLANTS = bounds.plants()


# Cuts


def test_one_cut_never_takes_tpot_below_its_slo() -> None:
    """(1 + x)(1 - cut) >= 1 for any excess x and any engine, as long as max_cut <= 1 - cut_gain."""
    assert LAW.max_cut <= 1.0 - LAW.cut_gain
    assert bounds.one_cut(LAW) >= 1.0
    assert bounds.one_cut(EAGER) < 0.5


@pytest.mark.parametrize(("excess", "most"), [(0.1, 0.1), (0.3, 0.25), (0.8, 0.5)])
def test_cuts_in_a_row_on_an_old_measurement_go_a_little_below_and_no_further(
    excess: float, most: float
) -> None:
    """Streams still show what the last cut has cured: how far the next ones go then stays under the excess itself."""
    assert bounds.undershoot(LAW, (excess,), PLANTS) <= most
    assert bounds.undershoot(EAGER, (excess,), PLANTS) > most


def test_the_effect_guard_halves_what_cuts_take_too_much() -> None:
    """A second cut before the first has drained would punish the same congestion twice."""
    guarded = bounds.undershoot(LAW, (0.3,), PLANTS)
    assert bounds.undershoot(UNGUARDED, (0.3,), PLANTS) > 2 * guarded


# Growth


def test_growth_lands_softly_and_then_nothing_moves() -> None:
    """Steps that shrink with the room, and a dead zone: without dice there is no limit cycle at all."""
    for share in (FINE, COARSE):
        plant = Plant(elasticity=0.8, answer_s=10.0, share=share)
        calm, edgy = (growing(plant, bounds.LOW, each) for each in (LAW, EDGY))
        assert swing(calm) == 0.0
        assert swing(edgy) > 0.01
        assert calm.overshoot <= 0.05
    assert edgy.overshoot > 0.05


def swing(trace: Trace) -> float:
    """How far the limit still moves at the end."""
    late = trace.since(bounds.LATE_S).limit
    return max(late) - min(late)


def test_the_way_up_from_the_floor_is_short() -> None:
    """Slow start sets in again where there is much room: no fall is for long."""
    plant = Plant(elasticity=0.9, answer_s=10.0)

    def arrives_s(config: AimdConfig) -> float:
        start = plant.used_at(0.12)
        trace = Loop(plant, grown(config, start), start).run(120.0)
        return next((at for at, limit in zip(trace.at_s, trace.limit, strict=True) if limit > 0.8), 999.0)

    assert arrives_s(LAW) <= 45.0
    assert arrives_s(SLOW_UP) > 70.0


# The prefill budget


class Deaf(Prefill):
    """Learns from nothing that has little ahead of it."""

    def on_first_token(self, permit: Permit, now: float) -> None:
        """One sample."""
        self.last_first_token_at = max(now, self.last_first_token_at)
        if permit.ahead >= 1_500 * self.scale or now - permit.admitted_at > 0.25 * self.slo_s:
            super().on_first_token(permit, now)


def settled_budget(prefill: Prefill, rate: float, other_s: float) -> float:
    """P after many prompts that fill it, on an engine that reads at that rate and does something else for some seconds."""
    now = 0.0
    for no in range(400):
        ahead = round(prefill.budget(Ledger(), now))
        ticket = Ticket(TicketId("caller", no), prompt_tokens=ahead)
        permit = Permit(ticket, Cost(ahead, 0, ahead), now, 0.0, ahead, counted=True)
        now += ahead / rate + other_s
        prefill.on_first_token(permit, now)
    return prefill.budget(Ledger(), now)


@pytest.mark.parametrize("first_rate", [1_000.0, 60_000.0])
@pytest.mark.parametrize("rate", [8_000.0, 30_000.0])
def test_the_prefill_budget_comes_to_its_fixed_point_from_both_sides(first_rate: float, rate: float) -> None:
    """It is measured with itself pending: it must not keep itself small, nor grow without end."""
    config = PrefillConfig(initial_rate=first_rate)
    share_s = config.share * Prefill(config).slo_s
    fixed_point = rate * (share_s - 0.1)
    assert settled_budget(Prefill(config), rate, 0.1) == pytest.approx(fixed_point, rel=0.05)
    assert settled_budget(Prefill(config), rate, 1.2 * share_s) == 512.0
    if first_rate < 2_000.0:
        assert settled_budget(Deaf(config), rate, 0.1) < 0.3 * fixed_point


# In the simulator


def settled(watched: Watched) -> list[float]:
    """The limit of the last minute."""
    return watched.limit[-int(SETTLED_S) :]


def variation(limits: list[float]) -> float:
    """Standard deviation over mean."""
    mean = sum(limits) / len(limits)
    return float((sum((one - mean) ** 2 for one in limits) / len(limits)) ** 0.5 / mean)


def steady(config: AimdConfig, seed: int, sight: Sight) -> Watched:
    """Two minutes of twice the capacity, from about where the limit settles."""
    scenario = Setting(sight=sight).scenario("steady", 130.0)
    return watch(scenario, law(config, initial_tokens=90_000), seed)


@pytest.mark.parametrize(
    ("sight", "seed", "most"),
    [(Sight(), 1, 0.08), (Sight(scrape_s=5.0, first_tokens=False, progress=False), 2, 0.15)],
)
def test_once_settled_the_limit_varies_little(sight: Sight, seed: int, most: float) -> None:
    """Chance moves it, also seen by a scrape each five seconds alone; a cut gain of 2 makes it swing."""
    assert variation(settled(steady(LAW, seed, sight))) <= most
    assert variation(settled(steady(EAGER, seed, sight))) > most


class Stuck(Aimd):
    """As if growth always asked for six tenths of the limit in use."""

    def on_tick(self, load: Load, now: float) -> Why | None:
        """One step."""
        load.in_flight += 1
        return super().on_tick(load, now)


def like_one_another(scenario: Scenario, limit: type[Aimd]) -> Tidegate:
    """Half a minute of long prompts, all of one size, of which two do not fit the first limit."""
    built: list[Tidegate] = []

    def policy(no: int) -> Tidegate:
        controller = law()(scenario, no)
        controller.target.limit = limit(LAW)
        built.append(controller)
        return controller

    prompt = round(0.55 * LAW.initial_tokens)
    world = World(scenario.world(), policy, scenario.judge(), timeline=Timeline())
    world.run([Arrival(0.5 * no, prompt, 300) for no in range(60)], 30.0)
    return built[0]


def test_a_limit_without_room_for_two_requests_grows_until_they_fit() -> None:
    """One that runs alone and uses little of the limit keeps the next one out: this must not last."""
    scenario = replace(Setting().scenario("alike", 30.0), engine=EngineSpec(calibration="h100-llama3-8b"))
    assert like_one_another(scenario, Aimd).target.limit.value > 2 * LAW.initial_tokens
    assert like_one_another(scenario, Stuck).target.limit.value == LAW.initial_tokens


def enforced_late(at_s: float) -> float:
    """Goodput of the last half minute, when enforcing began at an instant on an engine in overload."""

    def build(scenario: Scenario, seed: int) -> Tidegate:
        config = TidegateConfig(mode=Mode.SHADOW, enforce_at_s=at_s)
        controller = policies.build(PolicySpec("tidegate", config), seed=seed, now=0.0, slos=scenario.slo)
        assert isinstance(controller, Tidegate)
        return controller

    watched = watch(Setting().scenario("late", 130.0), build, 1)
    return sum(watched.good[-30:]) / sum(watched.offered[-30:])


def test_enforcing_on_an_engine_in_overload_ends_the_overload() -> None:
    """What was learned of prefill behind an endless queue must not hold everybody out afterwards."""
    assert enforced_late(40.0) > 0.5
    assert enforced_late(1_000.0) < 0.2


def from_the_floor(config: AimdConfig) -> Build:
    """A limit that has been cut to the floor."""

    def build(scenario: Scenario, seed: int) -> Tidegate:
        controller = law(config)(scenario, seed)
        controller.target.limit = grown(config, config.floor_tokens)
        return controller

    return build


def test_in_front_of_an_engine_the_floor_is_left_within_a_minute() -> None:
    """Whatever threw the limit down, it comes back as long as the engine has room."""
    scenario = Setting().scenario("floor", 60.0)
    back = watch(scenario, from_the_floor(LAW), 1).limit[-1]
    assert back > 40 * LAW.floor_tokens * 0.8
    assert watch(scenario, from_the_floor(SLOW_UP), 1).limit[-1] < 0.8 * back


def test_the_floor_is_a_small_share_of_the_kv() -> None:
    """A floor above what the engine can bear would keep its SLO broken for ever."""
    for capacity, floor in ((5_000.0, 500), (1e6, LAW.floor_tokens)):
        limit = grown(LAW, LAW.initial_tokens)
        for tick in range(60):
            limit.on_tick(Load(used=limit.value, in_flight=1, excess=-1.0, capacity=capacity), float(tick))
        assert limit.value == floor


def test_an_unused_limit_sinks_no_further_than_a_little_over_its_use() -> None:
    """What another budget keeps unused is no reason to fall to the floor."""
    limit = grown(LAW, 100_000)
    for tick in range(200):
        limit.on_tick(Load(used=40_000, in_flight=9, refused_for_other=True, excess=0.2), float(tick))
    assert limit.value == LAW.idle_factor * 40_000


# The page


def test_every_table_has_its_place_in_the_page() -> None:
    """Or the command that writes them would stop half-way through its minutes."""
    page = (ROOT / "docs/control-law.md").read_text("utf-8")
    found = {rest.split(" -->")[0]: ["| new |"] for rest in page.split("<!-- stability: ")[1:]}
    assert set(found) == {"defaults", "constants", "cuts", "growth", "noise", "sights", "steps"}
    assert written(page, found).count("| new |") == len(found)
    with pytest.raises(ValueError, match="lacks"):
        written(page, {"nowhere": []})


def test_the_page_holds_what_the_defaults_give() -> None:
    """A constant that changed makes its tables old: run the command again."""
    page = (ROOT / "docs/control-law.md").read_text("utf-8")
    old = [line for line in bounds.constants() if line not in page]
    assert not old, "run: python -m benchmarks stability --write docs/control-law.md"
