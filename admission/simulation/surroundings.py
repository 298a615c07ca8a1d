"""What is around the policies of a run: engines, callers, what is seen of both, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.simulation.callers import Callers
from admission.simulation.disturbances import Disturbance
from admission.simulation.fleet import Member, Noise
from admission.simulation.sight import Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """The world around one or several policies that protect one target."""

    members: tuple[Member, ...] = (Member(),)
    """Requests go to the one with the fewest in flight."""
    callers: Callers = field(default_factory=Callers)
    sight: Sight = field(default_factory=Sight)
    disturbances: tuple[Disturbance, ...] = ()
    noise: Noise = "none"
    """Of each step's duration: `moe` varies by 10 %, and one step in fifty takes three times as long."""
    sidecars: int = 1
    """Policies side by side; arrivals are dealt out to them at random."""
    single_steps: bool = False
    """Take each decode step by itself: slow, and a check on the runs that are jumped otherwise."""
    hand_over_s: float = 0.005
    """From a prefill member's first token until its KV begins to leave for a decode member."""
    hand_over_s_per_token: float = 5.3e-6
    """And for each prompt token: 131,072 bytes (Llama-3.1-8B, bf16) over 200 Gbit/s."""

    def __post_init__(self) -> None:
        if self.sidecars < 1:
            raise ValueError(f"sidecars must be at least 1, not {self.sidecars}")
        if self.hand_over_s < 0 or self.hand_over_s_per_token < 0:
            raise ValueError("hand_over_s and hand_over_s_per_token must not be negative")
