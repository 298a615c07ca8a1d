"""How much a client may admit by itself while no sidecar answers."""

from __future__ import annotations

from dataclasses import dataclass

from admission.v1.types_pb2 import Ticket

_BYTES_PER_TOKEN = 4
_UNSTATED_OUTPUT_TOKENS = 256


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

    def copy(self) -> Load:
        """The same figures, apart from this object."""
        return Load(self.count, self.cost, self.prompt)

    def most(self, other: Load) -> Load:
        """The larger of each figure."""
        return Load(
            max(self.count, other.count), max(self.cost, other.cost), max(self.prompt, other.prompt)
        )


class LocalLimit:
    """Before the first contact a count; after a break, what was held when it happened (at least one ticket)."""

    def __init__(self, never_attached: int) -> None:
        self.bound = Load(never_attached)
        self._by_cost = False

    def remember(self, held: Load) -> None:
        """The sidecar went away while this was held."""
        self.bound = held.copy()
        self._by_cost = True

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
