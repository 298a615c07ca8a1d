"""Counts of one group of requests, a class or a tenant, and the row that they come to."""

from __future__ import annotations

from dataclasses import dataclass

from admission.simulation.fate import Ending, Fate
from admission.simulation.histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a group of requests came to. Tokens are prompt plus answer; ratios are None when nothing was there.

    Percentiles of TTFT are over the accepted, where a caller that left without a token counts with what it
    had waited by then; those of TPOT over all that decoded.
    """

    name: str
    offered_requests: int
    offered_tokens: int
    accepted_requests: int
    accepted_tokens: int
    served_requests: int
    served_tokens: int
    good_requests: int
    good_tokens: int
    refused_requests: int
    """Logical requests whose last attempt was refused."""
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p95_s: float | None
    tpot_p99_s: float | None

    @property
    def goodput_requests_ratio(self) -> float:
        """Good over offered, in requests; 0 when nothing was offered."""
        return self.good_requests / max(1, self.offered_requests)

    @property
    def goodput_tokens_ratio(self) -> float:
        """Good over offered, in tokens; 0 when nothing was offered."""
        return self.good_tokens / max(1, self.offered_tokens)

    @property
    def accepted_within_slo_ratio(self) -> float | None:
        """Good over accepted: what an admission was worth."""
        return self.good_requests / self.accepted_requests if self.accepted_requests else None

    @property
    def served_within_slo_ratio(self) -> float | None:
        """Good over served whole."""
        return self.good_requests / self.served_requests if self.served_requests else None


@dataclass(slots=True)
class _Count:
    requests: int = 0
    tokens: int = 0

    def add(self, tokens: int) -> None:
        self.requests += 1
        self.tokens += tokens

    def merge(self, other: _Count) -> None:
        self.requests += other.requests
        self.tokens += other.tokens


class Tally:
    """Counts the fates of one group in constant memory."""

    __slots__ = ("accepted", "good", "offered", "refused", "served", "tpot", "ttft")

    def __init__(self) -> None:
        self.offered = _Count()
        self.accepted = _Count()
        self.served = _Count()
        self.good = _Count()
        self.refused = _Count()
        self.ttft = Histogram()
        self.tpot = Histogram()

    def add(self, fate: Fate, *, good: bool) -> None:
        """Count one offered request."""
        tokens = fate.tokens
        self.offered.add(tokens)
        if fate.admitted:
            self._accept(fate, tokens)
        if fate.ending is Ending.SERVED:
            self.served.add(tokens)
        elif fate.ending is Ending.REFUSED:
            self.refused.add(tokens)
        if good:
            self.good.add(tokens)

    def _accept(self, fate: Fate, tokens: int) -> None:
        self.accepted.add(tokens)
        ttft_s = first_token_or_wait_s(fate)
        if ttft_s is not None:
            self.ttft.add(ttft_s)
        if fate.tpot_s is not None:
            self.tpot.add(fate.tpot_s)

    def merge(self, other: Tally) -> None:
        """Add another group's counts."""
        self.offered.merge(other.offered)
        self.accepted.merge(other.accepted)
        self.served.merge(other.served)
        self.good.merge(other.good)
        self.refused.merge(other.refused)
        self.ttft.merge(other.ttft)
        self.tpot.merge(other.tpot)

    def row(self, name: str) -> Row:
        """What it comes to."""
        return Row(
            name=name,
            offered_requests=self.offered.requests,
            offered_tokens=self.offered.tokens,
            accepted_requests=self.accepted.requests,
            accepted_tokens=self.accepted.tokens,
            served_requests=self.served.requests,
            served_tokens=self.served.tokens,
            good_requests=self.good.requests,
            good_tokens=self.good.tokens,
            refused_requests=self.refused.requests,
            ttft_p50_s=self.ttft.quantile(0.5),
            ttft_p90_s=self.ttft.quantile(0.9),
            ttft_p95_s=self.ttft.quantile(0.95),
            ttft_p99_s=self.ttft.quantile(0.99),
            tpot_p50_s=self.tpot.quantile(0.5),
            tpot_p90_s=self.tpot.quantile(0.9),
            tpot_p95_s=self.tpot.quantile(0.95),
            tpot_p99_s=self.tpot.quantile(0.99),
        )


def first_token_or_wait_s(fate: Fate) -> float | None:
    """TTFT of an accepted request, or what a caller had waited that left without a token: leaving it out would flatter."""
    return fate.e2e_s if fate.ttft_s is None and fate.ending is Ending.IMPATIENT else fate.ttft_s
