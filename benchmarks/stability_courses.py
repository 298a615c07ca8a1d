"""The courses of the stability benchmark: what changes in front of the law, when, and from which steady state to which."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.simulation.inputs.lengths import LengthsConfig
from admission.simulation.inputs.mixes import ChangeConfig, ComponentConfig
from admission.simulation.inputs.rates import RatePoint
from admission.simulation.scenarios.scenario import EngineSpec, Scenario
from admission.simulation.world import Disturbance, Restart, Sight, Slow

CAPACITY_PER_S = 5.66
"""Work bound of Llama-3-8B on one A100 for chats as long as Azure's, as in the shipped scenarios."""
TIGHT_KV, TIGHT_PER_S = 60_000, 4.51
"""The same with so little KV."""
OVER, LITTLE_OVER = 2.0, 1.2
AT_S, BACK_S, END_S = 75.0, 195.0, 330.0
DOWN_S = 30.0
SETTLED_S = 60.0
"""The last so many seconds before the next change say where the limit settles."""
LONGER = 4.0
SLOWER = 2.0
LIGHT, HEAVY = 0.3, 3.0
WRONG = 4.0
"""Times too high or too low at the start."""


def mix(
    changes: tuple[ChangeConfig, ...] = (), profile: tuple[RatePoint, ...] = ()
) -> tuple[ComponentConfig, ...]:
    """Chats as long as Azure's."""
    lengths = LengthsConfig(shape="chat")
    return (ComponentConfig(rate_per_s=1.0, lengths=lengths, changes=changes, profile=profile),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a steady state and a course have in common."""

    load: float = OVER
    tight: bool = False
    sight: Sight = field(default_factory=Sight)

    def scenario(
        self,
        name: str,
        duration_s: float,
        disturbances: tuple[Disturbance, ...] = (),
        components: tuple[ComponentConfig, ...] | None = None,
        slower: float = 1.0,
    ) -> Scenario:
        """A run of that setting; every second of it counts."""
        return Scenario(
            name=name,
            about=name,
            engine=EngineSpec(kv_capacity_tokens=TIGHT_KV if self.tight else None, slower=slower),
            capacity_per_s=TIGHT_PER_S if self.tight else CAPACITY_PER_S,
            load=self.load,
            mix=components or mix(),
            duration_s=duration_s,
            warm_up_s=0.0,
            tail_s=0.0,
            sight=self.sight,
            disturbances=disturbances,
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """Nothing changes: here the best limit that stands still is looked for."""

    setting: Setting
    output: float = 1.0
    slower: float = 1.0

    def scenario(self, name: str, duration_s: float) -> Scenario:
        """As long as that."""
        change = (ChangeConfig(at_s=0.0, output=self.output),) if self.output != 1.0 else ()
        return self.setting.scenario(name, duration_s, components=mix(change), slower=self.slower)


STEADY = {
    "chat": Steady(Setting()),
    "slow": Steady(Setting(), slower=SLOWER),
    "heavy": Steady(Setting(load=HEAVY)),
    "long": Steady(Setting(load=LITTLE_OVER), output=LONGER),
    "tight": Steady(Setting(load=LITTLE_OVER, tight=True)),
    "tight-long": Steady(Setting(load=LITTLE_OVER, tight=True), output=LONGER),
}


@dataclass(frozen=True, slots=True)
class Step:
    """A change: its name in the table, when, until when the run is as it is then, and the steady state that follows."""

    name: str
    at_s: float
    until_s: float
    after: str


@dataclass(frozen=True, slots=True)
class Course:
    """One run with a change or two.

    `before` names the steady state that it begins in, and `start` is the first limit over the best one there.
    `tries` are shares of the best limit of the state after the change, of which one who knows takes the best in this very run.
    """

    scenario: Scenario
    before: str
    steps: tuple[Step, ...]
    start: float = 1.0
    tries: tuple[float, ...] = (1.0,)

    @property
    def name(self) -> str:
        """Of its scenario."""
        return self.scenario.name


def _there_and_back(name: str, sight: Sight, label: str) -> Course:
    scenario = Setting(sight=sight).scenario(name, END_S, (Slow(AT_S, BACK_S, SLOWER),))
    return Course(
        scenario,
        "chat",
        (
            Step(f"engine {SLOWER:g}x slower{label}", AT_S, BACK_S, "slow"),
            Step(f"back to its speed{label}", BACK_S, END_S, "chat"),
        ),
    )


def _started(name: str, start: float, label: str) -> Course:
    until_s = BACK_S - 15.0
    return Course(
        Setting().scenario(name, until_s), "chat", (Step(f"limit {label}", 0.0, until_s, "chat"),), start
    )


def _longer(name: str, *, tight: bool, label: str) -> Course:
    components = mix((ChangeConfig(at_s=AT_S, output=LONGER),))
    setting = Setting(load=LITTLE_OVER, tight=tight)
    scenario = setting.scenario(name, AT_S + 165.0, components=components)
    step = Step(
        f"answers {LONGER:g}x longer, {label}", AT_S, scenario.duration_s, "tight-long" if tight else "long"
    )
    # Costs are predictions, which still tell of short answers when the long ones begin.
    return Course(scenario, "tight" if tight else "chat", (step,), tries=(1.0, 0.7, 0.5, 0.35))


def _rising() -> Course:
    profile = (RatePoint(at_s=0.0, factor=LIGHT / HEAVY), RatePoint(at_s=AT_S, factor=1.0))
    scenario = Setting(load=HEAVY).scenario("rising", BACK_S + 15.0, components=mix(profile=profile))
    return Course(
        scenario, "chat", (Step(f"load {LIGHT:g}x to {HEAVY:g}x", AT_S, scenario.duration_s, "heavy"),)
    )


def _restart() -> Course:
    back_s = AT_S + DOWN_S
    scenario = Setting().scenario("restart", back_s + 120.0, (Restart(AT_S, DOWN_S),))
    return Course(
        scenario,
        "chat",
        (Step(f"restart, back after {DOWN_S:g} s", back_s, scenario.duration_s, "chat"),),
    )


COURSES = (
    _started("high", WRONG, f"started {WRONG:g}x too high"),
    _started("low", 1.0 / WRONG, f"started {WRONG:g}x too low"),
    _there_and_back("slower", Sight(), ""),
    _longer("longer", tight=False, label="KV ample"),
    _longer("longer-tight", tight=True, label="KV tight"),
    _rising(),
    _restart(),
    *(
        _there_and_back(
            f"scrape{each:g}",
            Sight(scrape_s=each, first_tokens=False, progress=False),
            f", scrape only, {each:g} s",
        )
        for each in (0.25, 1.0, 5.0)
    ),
)
