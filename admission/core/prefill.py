"""The prefill budget P, which guards TTFT: how many prompt tokens may wait for their first token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from admission.core.ledger import Ledger, Permit
from admission.core.stats import RunningQuantile


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillConfig:
    """Constants of the budget. Times scale with the TTFT SLO; figures in tokens are those for an SLO of 2 s."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    share: float = 0.3
    """Of the TTFT SLO that the engine's prefill may take."""
    refuse_share: float = 0.9
    """A ticket whose forecast TTFT is over this share of its SLO is refused at once."""
    initial_rate: float = 8_000.0
    """Prompt tokens per second that the engine is thought to read until it has been seen."""
    decay: float = 0.97
    """What older measurements of that rate keep of their weight at each new one."""
    large_tokens: int = 4_000
    """Prompts from this size on are judged by what a miss of the prefix cache costs: hits come all or nothing, so that
    a mean over both tells nothing about either."""
    over_slo_share: float = 0.02
    """Of the time, that prompts may take which miss their SLO even on an empty engine: they are served one at a time."""

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share must be over 0 and at most 1, not {self.share}")
        if not 0.0 < self.refuse_share <= 1.0:
            raise ValueError(f"refuse_share must be over 0 and at most 1, not {self.refuse_share}")
        if not self.initial_rate > 0:
            raise ValueError(f"initial_rate must be over 0, not {self.initial_rate}")
        if not 0.0 < self.decay < 1.0:
            raise ValueError(f"decay must be between 0 and 1, not {self.decay}")
        if self.large_tokens < 1:
            raise ValueError(f"large_tokens must be at least 1, not {self.large_tokens}")
        if not 0.0 < self.over_slo_share <= 1.0:
            raise ValueError(f"over_slo_share must be over 0 and at most 1, not {self.over_slo_share}")


MOST_READ = 0.9
"""Of a prompt in work: without a first token it is never all."""
LONGEST_RATION_S = 600.0
LARGE_WINDOW, MIN_LARGE, LARGE_QUANTILE = 50, 5, 0.2
MOST_PLAUSIBLE_RATE = 1e6
"""Prompt tokens per second that no engine exceeds."""


class Prefill:
    """Measures the engine's prefill rate in prompt tokens per second, and forecasts TTFT with it."""

    def __init__(self, config: PrefillConfig) -> None:
        self.config = config
        self.slo_s = 2.0
        self._tokens = 0.0
        self._seconds = 0.0
        self._seen = 0.0
        self._large = RunningQuantile(LARGE_WINDOW)
        self.over_slo_at = float("-inf")
        """When the next prompt may go that misses its SLO anyhow."""
        self.last_first_token_at = float("-inf")
        self.restored: float | None = None
        self.steered: float | None = None
        """The rate while no first token is seen: found by the engine's own queue."""

    def forget(self) -> None:
        """The engine restarted: what it could do before says nothing."""
        self._tokens = self._seconds = self._seen = 0.0
        self._large = RunningQuantile(LARGE_WINDOW)
        self.over_slo_at = float("-inf")
        self.restored = self.steered = None

    @property
    def scale(self) -> float:
        """The SLO over the 2 s that the law's figures were found for."""
        return self.slo_s / 2.0

    @property
    def known(self) -> bool:
        """Enough first tokens seen to trust the rate."""
        return self._seen >= 20_000 * self.scale

    @property
    def trusted(self) -> bool:
        """Measured now, or saved from an earlier run."""
        return self.known or self.restored is not None

    @property
    def rate(self) -> float:
        """Prompt tokens per second: steered while nothing is seen, else measured, restored, or the initial guess."""
        if self.steered is not None:
            return self.steered
        if self.known and self._seconds > 0:
            return self._tokens / self._seconds
        return self.restored if self.restored is not None else self.config.initial_rate

    def on_first_token(self, permit: Permit, now: float) -> None:
        """Learn from a first token."""
        ttft_s = max(now - permit.admitted_at, 1e-4)
        self.steered = None
        self.last_first_token_at = max(now, self.last_first_token_at)
        # Little ahead tells of the step under way more than of the rate; but a small budget never lets more be ahead.
        telling = min(1_500 * self.scale, 0.5 * self._at_rate(self.rate))
        if permit.ahead >= telling or ttft_s > 0.25 * self.slo_s:
            self._tokens = self._tokens * self.config.decay + permit.ahead
            self._seconds = self._seconds * self.config.decay + ttft_s
        if permit.ahead >= self._large_from and 2 * permit.cost.prompt >= permit.ahead:
            self._large.add(permit.ahead / ttft_s)
        if permit.over_slo:
            self.ration(ttft_s, now)
        self._seen += permit.cost.prompt

    def ration(self, ttft_s: float, now: float) -> None:
        """A prompt that misses its SLO anyhow took so long: when may the next go?"""
        wait_s = ttft_s * (1.0 / self.config.over_slo_share - 1.0)
        self.over_slo_at = now + min(wait_s, LONGEST_RATION_S)

    @property
    def _large_from(self) -> float:
        return self.config.large_tokens * self.scale

    def rate_for(self, prompt: int, rate: float) -> float:
        """The rate at which such a prompt is read when that is the rate of all: a large one may miss the prefix cache."""
        if prompt < self._large_from or len(self._large) < MIN_LARGE:
            return rate
        return min(rate, self._large.value(LARGE_QUANTILE))

    def censored(self, ledger: Ledger, now: float) -> float:
        """The rate, lowered by a request that is late now: it need not end to be evidence."""
        oldest = next(iter(ledger.pending.values()), None)
        if oldest is None:
            return self.rate
        ahead, since = oldest.ahead, oldest.counted_at
        if self.last_first_token_at > since:
            # What was ahead of it has had its first token: only its own prompt explains the time since then.
            ahead, since = oldest.cost.prompt, self.last_first_token_at
        age_s = now - since
        if age_s <= 0.15 * self.slo_s:
            return self.rate
        return min(self.rate, max(ahead, 500 * self.scale) / age_s)

    def steer(self, waiting: float, *, binds: bool) -> None:
        """Without any first token to see: the engine's own queue tells whether the rate is too high."""
        if waiting > 2:
            self.steered = max(self.rate * 0.9, 100.0)
        elif waiting == 0 and binds:
            self.steered = min(self.rate * 1.05, MOST_PLAUSIBLE_RATE)

    def overtaken(self, old: Permit, now: float) -> bool:
        """A later request has its first token and this one is long overdue: its prompt is not what the engine works on."""
        age_s = now - old.counted_at
        return age_s > max(0.5 * self.slo_s, 3.0 * old.ahead / self.rate)

    def given_up(self, oldest: Permit, progress_at: float, now: float) -> bool:
        """Has the oldest pending one been silent for so long that it must not hold up everybody?

        Sooner when other streams go on, since then the engine lives and this one request hangs.
        """
        silent_s = now - max(oldest.counted_at, self.last_first_token_at)
        bound_s = max(2.0 * self.slo_s, 10.0 * oldest.ahead / self.rate)
        return silent_s > (bound_s if now - progress_at <= 2.0 else 5.0 * bound_s)

    def budget(self, ledger: Ledger, now: float) -> float:
        """P, in prompt tokens."""
        return self._at_rate(self.censored(ledger, now))

    def _at_rate(self, rate: float) -> float:
        return max(512 * self.scale, self.config.share * self.slo_s * rate)

    def forecast(self, prompt: int, ledger: Ledger, now: float) -> tuple[float, float]:
        """Seconds to the first token of such a prompt: with nothing else to prefill, and as things are now."""
        rate = self.rate
        if not self.trusted:
            # An engine that nobody has measured is given the benefit of the doubt.
            cautious = rate = max(rate, 20_000.0)
        else:
            cautious = max(self.censored(ledger, now), 500.0)
        ahead_s = self.unread(ledger, now) / cautious
        return prompt / self.rate_for(prompt, rate), ahead_s + prompt / self.rate_for(prompt, cautious)

    def unread(self, ledger: Ledger, now: float) -> float:
        """Prompt tokens admitted without a first token, less what the engine must have read of a large one by now."""
        oldest = next(iter(ledger.pending.values()), None)
        if oldest is None or oldest.cost.prompt < self._large_from or not self.trusted:
            return ledger.pending_prompt
        since = max(oldest.counted_at, self.last_first_token_at)
        read = self.rate_for(oldest.cost.prompt, self.rate) * max(0.0, now - since)
        return ledger.pending_prompt - min(read, MOST_READ * oldest.cost.prompt)

    def stalled(self, ledger: Ledger, now: float) -> bool:
        """Has prefill stood still for longer than the oldest pending prompt can explain?"""
        oldest = next(iter(ledger.pending.values()), None)
        if oldest is None or not oldest.ticket.stream:
            return False
        still_s = now - max(self.last_first_token_at, oldest.counted_at)
        rate = max(self.rate, 4_000.0) if self.trusted else 20_000.0
        return still_s > 0.15 * self.slo_s and oldest.cost.prompt / rate < still_s / 3
