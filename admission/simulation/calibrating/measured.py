"""What was measured on a real server: requests with their times, and what the server said of itself meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CalibrationError(ValueError):
    """Measurements that nothing can be fitted to: one line that says where and why."""


class Clock(StrEnum):
    """Where a recording's TTFT begins."""

    ARRIVAL = "arrival"
    """When the request came: what callers, sidecars and vLLM's spans measure."""
    QUEUE = "queue"
    """When the engine took it into its queue, between two steps: vLLM's `queued_ts`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One request. Seconds; None: unknown, or it did not end whole. A request without times is load and no more."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None = None
    decode_s: float | None = None
    """From the first token to the last."""
    cached_tokens: int = 0

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first; None for answers of one token."""
        if self.decode_s is None or self.output_tokens < 2:
            return None
        return self.decode_s / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Moment:
    """What the server said of itself at one time. KV as a ratio, None: not said."""

    at_s: float
    running: int
    waiting: int
    kv_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """Requests of one server in order of arrival, and its own figures when there are any."""

    name: str
    requests: tuple[Measured, ...]
    series: tuple[Moment, ...] = ()
    clock: Clock = Clock.ARRIVAL
    kv_capacity_tokens: int | None = None
    """As the server said; None: it did not."""
    max_num_seqs: int | None = None
    engines: int = 1
    """Engines of one kind that shared the requests, such as the ranks of data-parallel vLLM."""
