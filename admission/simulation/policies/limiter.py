"""How many requests may be on the engine at once? The question that every published limiter answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from admission.core.model import Reading
from admission.vocabulary import PriorityClass

Latency = Literal["total", "ttft"]
"""Which latency a rule takes for the round trip of a request, both from its admission to the engine."""


@dataclass(slots=True)
class LimiterSample:
    """What a limiter hears of one request. Seconds; TTFT, TPOT and the answer's length are None when they were not seen."""

    now: float
    began_at: float
    """When it was admitted to the engine."""
    rtt_s: float
    """The latency that the limiter asked for; of a dropped request the time until it was known to be."""
    in_flight: int
    """Requests on the engine when this one was admitted, itself included."""
    dropped: bool = False
    """Refused by the engine, failed, or given up by its caller before the first token."""
    priority: PriorityClass = PriorityClass.INTERACTIVE
    prompt_tokens: int = 0
    waited_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    output_tokens: int | None = None


class Limiter(ABC):
    """A rule that says how many requests may be in flight. Times in seconds; it is told the time and never asks."""

    @property
    @abstractmethod
    def limit(self) -> float:
        """Requests that may be in flight now."""

    @abstractmethod
    def on_sample(self, sample: LimiterSample) -> None:
        """One request was measured."""

    def on_start(self, in_flight: int, now: float) -> None:  # noqa: B027 - most rules do not care
        """One request was admitted; `in_flight` counts it."""

    def on_reading(self, reading: Reading) -> None:  # noqa: B027 - as above
        """The engine said something of itself."""

    def on_tick(self, now: float) -> None:  # noqa: B027 - as above
        """Time has passed; called before each look at `limit`."""

    def next_at(self) -> float | None:
        """When `on_tick` must be called at the latest, None when time alone changes nothing."""
        return None
