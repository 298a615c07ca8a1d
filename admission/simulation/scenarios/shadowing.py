"""What shadow says that enforcing would refuse, beside what enforcing the same requests does refuse."""

from __future__ import annotations

from dataclasses import dataclass

from admission.core.model import Admitted, Event, Rejected, ShadowDecided, Shed
from admission.simulation.scenarios.running import play, run_scenario
from admission.simulation.scenarios.scenario import Scenario
from admission.vocabulary import Verdict


@dataclass(slots=True)
class Predicted:
    """Counts what a controller in shadow says of the requests that arrive in a span of seconds."""

    from_s: float
    until_s: float
    asked: int = 0
    refused: int = 0

    def watch(self, sidecar: int, now: float, event: Event) -> None:
        """One event of the controller."""
        if isinstance(event, Admitted) and self.from_s <= now < self.until_s:
            self.asked += 1
            self.refused += isinstance(event.shadow, Rejected | Shed)
        elif isinstance(event, ShadowDecided) and self.from_s <= now - event.waited_s < self.until_s:
            self.refused += event.verdict in {Verdict.REJECTED, Verdict.SHED}


@dataclass(frozen=True, slots=True)
class Refusals:
    """Shares of the requests."""

    predicted: float
    enforced: float


def refusals(scenario: Scenario, seed: int, load: float = 1.0) -> Refusals:
    """Both, of the same requests in worlds of their own."""
    predicted = Predicted(scenario.warm_up_s, scenario.duration_s - scenario.tail_s)
    play(scenario, "tidegate:mode=shadow", seed, load, predicted.watch)
    report = run_scenario(scenario, "tidegate", seed, load)
    return Refusals(
        predicted.refused / max(1, predicted.asked),
        report.refused_requests / max(1, report.offered_requests),
    )
