"""How much a client may admit by itself while no sidecar answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from admission.v1.types_pb2 import Ticket

_BYTES_PER_TOKEN = 4
_UNSTATED_OUTPUT_TOKENS = 256
_PEAK_S = 60.0
_BUCKET_S = 10.0
_GROW_EVERY_S = 1.0
_GROW_AFTER_S = 60.0
"""A crash or an upgrade is over by then: until then nobody may add to what the sidecar had let in."""


@dataclass(slots=True)
class Load:
    """What is held, three ways. The token figures are only ever compared with each other, so rough ones serve."""

    count: int = 0
    cost: int = 0
    prompt: int = 0

    def add(self, ticket: Ticket, sign: int = 1) -> None:
        """Counts a ticket in, or out with sign -1."""
        prompt = prompt_estimate(ticket)
        self.count += sign
        self.prompt += sign * prompt
        self.cost += sign * (prompt + output_estimate(ticket))

    def capped(self, count: int) -> Load:
        """At most so many, with their part of the tokens."""
        if self.count <= count:
            return self
        return Load(count, self.cost * count // self.count, self.prompt * count // self.count)

    def copy(self) -> Load:
        """The same figures, apart from this object."""
        return Load(self.count, self.cost, self.prompt)

    def most(self, other: Load) -> Load:
        """The larger of each figure."""
        return Load(max(self.count, other.count), max(self.cost, other.cost), max(self.prompt, other.prompt))


class Peak:
    """The most that was held in the last minute, to within ten seconds, from looks that come often."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, Load]] = deque(maxlen=round(_PEAK_S / _BUCKET_S) + 1)

    def see(self, held: Load, now: float) -> None:
        """This is held now, monotonic seconds."""
        if not self._buckets or now >= self._buckets[-1][0] + _BUCKET_S:
            self._buckets.append((now, held.copy()))
        else:
            since, most = self._buckets[-1]
            self._buckets[-1] = (since, most.most(held))

    def of(self, now: float) -> Load:
        """The larger of each figure; nothing when nobody looked."""
        peak = Load()
        for since, most in self._buckets:
            if since > now - _PEAK_S - _BUCKET_S:
                peak = peak.most(most)
        return peak


class LocalLimit:
    """Before the first contact a count; after a break what was held, at least one; after a minute alone slowly more.

    What was held at the break alone would leave a client that happened to be idle with one request for as long as the
    sidecar is dead: so its recent peak counts too, and after a minute the bound grows by one each second that it binds.
    Neither goes beyond `most`.
    """

    def __init__(self, most: int) -> None:
        self.bound = Load(most)
        self._most = most
        self._by_cost = False
        self._grown_at = float("-inf")

    def remember(self, held: Load, peak: Load, now: float) -> None:
        """The sidecar went away while `held` was held, after a minute with `peak`."""
        self.bound = held.most(peak.capped(self._most))
        self._by_cost = True
        self._grown_at = now + _GROW_AFTER_S - _GROW_EVERY_S

    def grow(self, held: Load, ticket: Ticket, now: float) -> bool:
        """The bound binds: makes room for this ticket, one a second. Returns False when it may not."""
        bound = self.bound.most(held)
        if now < self._grown_at + _GROW_EVERY_S or bound.count >= self._most:
            return False
        bound.add(ticket)
        self.bound, self._grown_at = bound, now
        return True

    def fits(self, held: Load, ticket: Ticket) -> bool:
        """May this ticket run beside what is held?"""
        if held.count == 0:
            return True
        if held.count >= self.bound.count:
            return False
        if not self._by_cost:
            return True
        prompt = prompt_estimate(ticket)
        cost = prompt + output_estimate(ticket)
        return held.cost + cost <= self.bound.cost and held.prompt + prompt <= self.bound.prompt


def prompt_estimate(ticket: Ticket) -> int:
    """Prompt tokens, roughly."""
    return ticket.prompt_tokens or ticket.prompt_bytes // _BYTES_PER_TOKEN


def output_estimate(ticket: Ticket) -> int:
    """Output tokens at most, roughly."""
    return max(1, ticket.n) * (ticket.max_tokens or _UNSTATED_OUTPUT_TOKENS)
