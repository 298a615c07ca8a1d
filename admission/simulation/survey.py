"""One pass over the traffic before anything runs: how much, how large, how fast, and what the engine can never hold."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from admission.simulation.engine import EngineConfig
from admission.simulation.histogram import Histogram
from admission.simulation.traces import Arrival
from admission.simulation.workload import Traffic


@dataclass(slots=True)
class Survey:
    """One pass over the requests, before anything is run."""

    requests: int = 0
    tokens: int = 0
    until_s: float = 0.0
    prompt: Histogram = field(default_factory=Histogram)
    output: Histogram = field(default_factory=Histogram)
    prefill: int = 0
    """Prompt tokens that the prefix cache does not serve."""
    answer: int = 0
    held: float = 0.0
    """Token steps that KV is occupied for: answer x (own prompt + half the answer)."""
    too_large: int = 0
    first_too_large: tuple[int, Arrival] | None = None
    """Its number among the requests, from 1."""

    @property
    def rate_per_s(self) -> float:
        """Requests a second on average."""
        return self.requests / self.until_s if self.until_s else float(self.requests)

    def add(self, arrival: Arrival, kv_tokens: int) -> None:
        """Count one."""
        self.requests += 1
        self.tokens += arrival.prompt_tokens + arrival.output_tokens
        self.until_s = arrival.at_s
        self.prefill += arrival.prompt_tokens - arrival.cached_tokens
        self.answer += arrival.output_tokens
        own = arrival.prompt_tokens - arrival.shared_tokens
        self.held += arrival.output_tokens * (own + arrival.output_tokens / 2)
        self.prompt.add(arrival.prompt_tokens)
        self.output.add(arrival.output_tokens)
        if arrival.prompt_tokens + arrival.output_tokens > kv_tokens:
            self.too_large += 1
            self.first_too_large = self.first_too_large or (self.requests, arrival)

    def capacity_per_s(self, engine: EngineConfig, tpot_s: float) -> float:
        """Such requests a second that one engine can carry at most, its steps within the TPOT target; 0: none.

        No queueing and no burst: what any admission can reach lies below it.
        """
        from admission.simulation.scenarios.capacity import Mean, work_bound  # noqa: PLC0415 - takes a while

        n = max(1, self.requests)
        return work_bound(engine, Mean(self.prefill / n, self.answer / n, self.held / n), tpot_s)

    def line(self, source: str) -> str:
        """For people."""
        return (
            f"{self.requests:,} requests in {self.until_s:,.0f} s ({self.rate_per_s:.1f}/s, {self.tokens / 1e6:.2f} M "
            f"tokens) of {source}: prompts p50 {_count(self.prompt, 0.5)}, p99 {_count(self.prompt, 0.99)}, "
            f"answers p50 {_count(self.output, 0.5)}, p99 {_count(self.output, 0.99)} tokens"
        )

    def as_json(self) -> dict[str, Any]:
        """For programs; quantiles within 1 %."""
        quantiles = {
            f"{name}_p{round(100 * q)}_tokens": round(one.quantile(q) or 0)
            for name, one in (("prompt", self.prompt), ("output", self.output))
            for q in (0.5, 0.9, 0.99)
        }
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "length_s": self.until_s,
            "rate_per_s": self.rate_per_s,
            "too_large_requests": self.too_large,
            **quantiles,
        }


def look(traffic: Traffic, engine: EngineConfig) -> Survey:
    """Read all requests once, as they are on seed 0 at load 1.

    Raises:
        TraceError: what is wrong with the recording, with file and row.
    """
    survey = Survey()
    for arrival in traffic.arrivals():
        survey.add(arrival, engine.kv_capacity_tokens)
    return survey


def _count(histogram: Histogram, q: float) -> str:
    return f"{histogram.quantile(q) or 0:,.0f}"


def line_of(trace: Path, number: int) -> int:
    """The line of a trace that its n-th request, counted from 1, is on."""
    with trace.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(trace) if packed else trace.open("rb") as lines:
        filled = ((no, line) for no, line in enumerate(lines, start=1) if line.strip())
        first, text = next(filled)
        if text.lstrip().startswith((b"{", b"[")):
            return first if number == 1 else next(islice(filled, number - 2, None))[0]
        return next(islice(filled, number - 1, None))[0]
