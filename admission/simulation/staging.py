"""A scenario as something that a study can put policies in front of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from admission.core.slo import SloConfig
from admission.simulation.judging import Judge
from admission.simulation.scenarios.running import SETTLING_S
from admission.simulation.scenarios.scenario import Scenario
from admission.simulation.traces import Arrival
from admission.simulation.world import WorldConfig
from admission.vocabulary import PriorityClass


@dataclass(frozen=True, slots=True)
class Staged:
    """A scenario as a setup."""

    scenario: Scenario

    @property
    def slo(self) -> Mapping[PriorityClass, SloConfig]:
        """The scenario's own."""
        return self.scenario.slo

    @property
    def until_s(self) -> float | None:
        """As `play` runs it."""
        return self.scenario.duration_s + SETTLING_S

    def world(self) -> WorldConfig:
        """Everything around the policy."""
        return self.scenario.world()

    def arrivals(self, seed: int, load: float) -> Iterator[Arrival]:
        """The requests in time order."""
        return self.scenario.arrivals(seed, load)

    def judge(self) -> Judge:
        """Over what the scenario judges."""
        return self.scenario.judge()
