"""AIMD on requests: one more for each good answer, a tenth less for each bad one.

The rule is that of AIMDLimit in github.com/Netflix/concurrency-limits (0.5.4), where an answer slower than a timeout is
as bad as none; see docs/peers.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.limiter import Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.simulation.policies.window import WindowConfig, windowed
from admission.vocabulary import PriorityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class AimdRequestsConfig:
    """The published constants; the timeout is by default the SLO of the request's class."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    latency: Literal["slo", "total", "ttft"] = "slo"
    """`slo`: an answer outside its TTFT or TPOT target counts as dropped. Else: one over `timeout_s`."""
    timeout_s: float = 5.0
    slos: dict[PriorityClass, SloConfig] = field(default_factory=default_slos)
    """The targets that `slo` judges by; the queue's deadline follows them too."""
    counts_wait: bool = True
    """With `slo`: TTFT counts from the arrival, the time in our own queue included, as its caller sees it."""
    initial: int = 20
    floor: int = 20
    ceiling: int = 200
    backoff: float = 0.9
    """Factor on the limit for each bad answer."""
    window: WindowConfig | None = field(default_factory=lambda: WindowConfig(least=1))
    """One move a second, down if anything in it was bad; None: each sample moves it, and a row of late answers to
    requests that were let in together cuts it to the floor."""
    front: FrontConfig = field(default_factory=FrontConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.initial <= self.ceiling:
            raise ValueError("need 0 <= floor <= initial <= ceiling")
        if not 0.5 <= self.backoff < 1.0:
            raise ValueError(f"backoff must be at least 0.5 and under 1, not {self.backoff}")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be over 0, not {self.timeout_s}")


class AimdRequests(Limiter):
    """+1 while at least half of the limit is in use, x backoff at a drop or at an answer over the timeout."""

    def __init__(self, config: AimdRequestsConfig) -> None:
        self._config = config
        self._timeout_s = math.inf if config.latency == "slo" else config.timeout_s
        self._limit = config.initial

    @property
    def limit(self) -> float:
        """Requests that may be in flight."""
        return float(self._limit)

    def on_sample(self, sample: LimiterSample) -> None:
        """Each sample moves the limit by itself."""
        config = self._config
        wanted = self._limit
        if sample.dropped or sample.rtt_s > self._timeout_s:
            wanted = int(self._limit * config.backoff)
        elif sample.in_flight * 2 >= self._limit:
            wanted = self._limit + 1
        self._limit = min(config.ceiling, max(config.floor, wanted))


class SloAsTimeout(Limiter):
    """Tells a limiter that an answer outside its targets was dropped.

    One whose first token was not seen is late when all of it took longer than both targets allow together; what was
    not seen otherwise is not held against it.
    """

    def __init__(
        self, limiter: Limiter, slos: Mapping[PriorityClass, SloConfig], *, counts_wait: bool
    ) -> None:
        self._limiter = limiter
        self._slos = slos
        self._counts_wait = counts_wait

    @property
    def limit(self) -> float:
        """The limit of the rule behind."""
        return self._limiter.limit

    def on_sample(self, sample: LimiterSample) -> None:
        """Judge it and pass it on."""
        self._limiter.on_sample(replace(sample, dropped=sample.dropped or self._late(sample)))

    def _late(self, sample: LimiterSample) -> bool:
        slo = self._slos.get(sample.priority)
        if slo is None:
            return False
        waited_s = sample.waited_s if self._counts_wait else 0.0
        if sample.ttft_s is None:
            return waited_s + sample.rtt_s > _whole_s(slo, sample)
        return slo.met(sample.prompt_tokens, sample.ttft_s + waited_s, sample.tpot_s) is False


def _whole_s(slo: SloConfig, sample: LimiterSample) -> float:
    """How long the answer may take from its request's arrival; for ever where its length is not known."""
    if sample.output_tokens is None:
        return math.inf
    return (slo.ttft_for(sample.prompt_tokens) or 0.0) + slo.tpot_s * (sample.output_tokens - 1)


@policy("aimd_requests", AimdRequestsConfig)
def aimd_requests(config: AimdRequestsConfig, seed: int, now: float) -> QueuedLimiter:  # noqa: ARG001 - what a builder is given
    """The policy: the rule behind the front queue."""
    rule = windowed(AimdRequests(config), config.window)
    if config.latency == "slo":
        rule = SloAsTimeout(rule, config.slos, counts_wait=config.counts_wait)
    return QueuedLimiter(rule, config.front, config.slos, "ttft" if config.latency == "ttft" else "total")
