"""Made-up fates for the tests of the verdict."""

from __future__ import annotations

from admission.simulation.fate import Ending, Fate
from admission.simulation.traces import Arrival
from admission.vocabulary import PriorityClass


def served(
    at_s: float = 0.0,
    *,
    ttft_s: float = 0.5,
    tpot_s: float | None = 0.02,
    prompt: int = 1_000,
    output: int = 10,
    priority: PriorityClass = PriorityClass.INTERACTIVE,
    tenant: str = "",
) -> Fate:
    """A request served whole, well within the default SLO unless said otherwise."""
    arrival = Arrival(at_s, prompt, output, priority, tenant)
    return Fate(
        arrival, Ending.SERVED, began_at_s=at_s, admitted=True, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=5.0
    )


def refused(at_s: float = 0.0, *reasons: str, prompt: int = 1_000, tenant: str = "") -> Fate:
    """A request that was refused as often as there are reasons."""
    named = reasons or ("QUEUE_FULL",)
    arrival = Arrival(at_s, prompt, 10, tenant=tenant)
    return Fate(arrival, Ending.REFUSED, named[-1], attempts=len(named), began_at_s=at_s, refused=named)


def impatient(at_s: float = 0.0, *, after_s: float = 10.0, admitted: bool = True) -> Fate:
    """A caller that left without a token."""
    return Fate(Arrival(at_s, 1_000, 10), Ending.IMPATIENT, began_at_s=at_s, admitted=admitted, e2e_s=after_s)
