"""The virtual token counter: whoever has been served least goes first, as soon as the engine would start one.

Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2, as its artifact implements it
(Ying1123/VTC-artifact at `192c2e2`): there it is the order of the engine's own queue. Here it stands in front of an
engine that never preempts and holds requests until their KV fits at the peak of the batch, which it foresees as the
engine does. It refuses nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Queued,
    Reading,
    Sample,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.simulation.policies.base import Look, policy
from admission.vocabulary import Reason, SignalKind


@dataclass(frozen=True, slots=True, kw_only=True)
class VtcConfig:
    """What service costs; the defaults are the paper's."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    prompt_weight: float = 1.0
    output_weight: float = 2.0
    kv_capacity_tokens: int | None = None
    """Of the engine; None: as its metrics say, and one request at a time until they have."""

    def __post_init__(self) -> None:
        if not (self.prompt_weight >= 0 and self.output_weight >= 0):
            raise ValueError("prompt_weight and output_weight must not be negative")
        if self.kv_capacity_tokens is not None and self.kv_capacity_tokens < 1:
            raise ValueError(f"kv_capacity_tokens must be at least 1, not {self.kv_capacity_tokens}")


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: Ticket
    arrived_at: float


@dataclass(slots=True, eq=False)
class _Running:
    client: str
    prompt_tokens: int
    most_output: int
    """What it may answer at most: what an engine that never preempts keeps room for."""
    generated: int = 0


class Vtc:
    """A `Policy`: one queue for each client, and a counter of the service that it got."""

    def __init__(self, config: VtcConfig) -> None:
        self._config = config
        self._capacity = config.kv_capacity_tokens
        self._queues: dict[str, deque[_Waiter]] = {}
        self._served: dict[str, float] = {}
        self._running: dict[TicketId, _Running] = {}

    # Inputs

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """It waits behind its client's other requests; a client that had none waiting is lifted."""
        client = ticket.flow.tenant
        queue = self._queues.setdefault(client, deque())
        if not queue:
            self._lift(client)
        queue.append(_Waiter(ticket, now))
        admitted = self._pump(now)
        if queue and queue[-1].ticket is ticket:
            return [Queued(ticket, len(queue) - 1, 0.0), *admitted]
        return admitted

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Its caller left, whether it waited or ran."""
        self._running.pop(id, None)
        shed: list[Event] = []
        for queue in self._queues.values():
            for waiter in [each for each in queue if each.ticket.id == id]:
                queue.remove(waiter)
                why = Why("its caller left")
                shed.append(Shed(waiter.ticket, Reason.CANCELLED, None, why, now - waiter.arrived_at))
        return [*shed, *self._pump(now)]

    def first_token(self, id: TicketId, now: float) -> list[Event]:
        """It comes with its prompt, and costs nothing of its own."""
        return []

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """New output chunks, one token each: they are service."""
        for id, chunks, _ in items:
            if id in self._running:
                self._generate(self._running[id], chunks)
        return self._pump(now)

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """An admitted ticket ended; what was not seen of its answer is charged now."""
        one = self._running.pop(id, None)
        if one is not None and completion.output_tokens is not None:
            self._generate(one, completion.output_tokens - one.generated)
        return self._pump(now)

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """The engine's capacity, unless it is configured."""
        if reading.kind is SignalKind.KV_CAPACITY_TOKENS and self._config.kv_capacity_tokens is None:
            self._capacity = int(reading.value)
        return self._pump(now)

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """Nothing follows."""
        return []

    def wake(self, now: float) -> list[Event]:
        """Nothing follows from time alone."""
        return []

    def next_wakeup(self) -> float | None:
        """Never."""
        return None

    def look(self, now: float) -> Look:
        """Limit and use in KV tokens: what is held now."""
        used = sum(one.prompt_tokens + one.generated for one in self._running.values())
        queued = sum(map(len, self._queues.values()))
        return Look(float(self._capacity or 0), float(used), len(self._running), queued)

    def served(self, client: str) -> float:
        """The client's counter."""
        return self._served.get(client, 0.0)

    # The rule

    def _lift(self, client: str) -> None:
        """Whoever was away saved nothing up: it comes back level with the least served that waits."""
        waiting = [self.served(other) for other, queue in self._queues.items() if queue and other != client]
        self._served[client] = max(self.served(client), min(waiting, default=0.0))

    def _generate(self, one: _Running, tokens: int) -> None:
        one.generated += tokens
        self._served[one.client] += self._config.output_weight * tokens

    def _pump(self, now: float) -> list[Event]:
        admitted: list[Event] = []
        while waiting := [client for client, queue in self._queues.items() if queue]:
            client = min(waiting, key=self.served)
            waiter = self._queues[client][0]
            one = _Running(client, waiter.ticket.prompt_tokens, max(1, waiter.ticket.max_tokens))
            if self._running and not self._fits(one):
                break
            self._queues[client].popleft()
            self._running[waiter.ticket.id] = one
            self._served[client] += self._config.prompt_weight * one.prompt_tokens
            cost = one.prompt_tokens + one.most_output
            admitted.append(Admitted(waiter.ticket, now - waiter.arrived_at, cost))
        return admitted

    def _fits(self, head: _Running) -> bool:
        """Would the engine start it now? The batch holds most just before one of its members ends."""
        batch = sorted([*self._running.values(), head], key=_left, reverse=True)
        held = peak = 0
        for count, one in enumerate(batch, start=1):
            held += one.prompt_tokens + one.generated
            peak = max(peak, held + _left(one) * count)
        return self._capacity is not None and peak <= self._capacity


def _left(one: _Running) -> int:
    return max(0, one.most_output - one.generated)


@policy("vtc", VtcConfig)
def vtc(config: VtcConfig, seed: int, now: float) -> Vtc:  # noqa: ARG001 - every builder takes them
    """The policy."""
    return Vtc(config)
