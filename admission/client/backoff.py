"""When a caller that was refused should come back, and when not at all."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """Full jitter under a growing bound, never earlier than the server asked, and few retries in all.

    The bound on retries is a budget over attempts (Finagle's rule): a storm of refusals must not double the load.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    attempts: int = 5
    """Tries of one request in all."""
    longest_asked_s: float = 300.0
    """A server that asks for more than this is not waited for."""

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.longest_s or self.attempts < 1:
            raise ValueError("backoff: need 0 < first_s <= longest_s and attempts >= 1")

    def delay_s(
        self,
        attempt: int,
        status: int,
        headers: Mapping[str, str],
        spread: Callable[[], float] = random.random,
    ) -> float | None:
        """Seconds to wait after try number `attempt` (from 1) was answered; None: do not come back.

        Header names are looked up in lower case. `spread` returns 0 to 1.
        """
        if attempt >= self.attempts or status not in _RETRIED or headers.get("x-should-retry") == "false":
            return None
        bound = min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 32))
        asked = asked_delay_s(headers)
        if asked is None:
            return bound * spread()
        if asked > self.longest_asked_s:
            return None
        return asked + bound * 0.2 * spread()


class RetryBudget:
    """Lets retries through as a share of requests (default one in five), so that clients do not feed a storm."""

    def __init__(self, ratio: float = 0.2, reserve: float = 10.0) -> None:
        if ratio < 0 or reserve < 1:
            raise ValueError("retry budget: need ratio >= 0 and reserve >= 1")
        self._ratio, self._reserve = ratio, reserve
        self._balance = reserve

    def request(self) -> None:
        """A first try was made."""
        self._balance = min(self._reserve, self._balance + self._ratio)

    def take(self) -> bool:
        """May one more retry be made?"""
        if self._balance < 1:
            return False
        self._balance -= 1
        return True


def asked_delay_s(headers: Mapping[str, str]) -> float | None:
    """What `retry-after-ms` or `retry-after` (seconds) asks for; None when absent, not a number, or negative."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            value = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(value) and value >= 0:
            return value
    return None
