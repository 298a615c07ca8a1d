"""Samples as a limiter hears them, with everything that a test does not care about filled in."""

from __future__ import annotations

from typing import Any

from admission.simulation.policies.limiter import LimiterSample


def sample(
    rtt_s: float, in_flight: int, *, now: float = 0.0, dropped: bool = False, **fields: Any
) -> LimiterSample:
    """One request that took `rtt_s` and found `in_flight` requests on the engine, itself included."""
    fields.setdefault("began_at", now - rtt_s)
    return LimiterSample(now=now, rtt_s=rtt_s, in_flight=in_flight, dropped=dropped, **fields)
