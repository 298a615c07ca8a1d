"""Worlds on a test bench: a policy that writes down what it is told, a judge that keeps every fate, and easy arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from admission.core.model import Completion, Event, Reading, Rejected, Sample, Ticket, TicketId, Why
from admission.simulation.engine import EngineConfig
from admission.simulation.fate import Ending, Fate
from admission.simulation.policies.base import Policy
from admission.simulation.policies.none import AdmitAll
from admission.simulation.traces import Arrival
from admission.simulation.world import Callers, Member, Sight, World, WorldConfig
from admission.vocabulary import Outcome, Reason, SignalKind

ENGINE = EngineConfig()


class Tape(AdmitAll):
    """Admits all, or none, and remembers."""

    def __init__(self, *, refuses: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__()
        self.refuses = refuses
        self.retry_after_s = retry_after_s
        self.tickets: list[tuple[float, Ticket]] = []
        self.cancels: list[float] = []
        self.first_tokens: list[float] = []
        self.chunks: dict[TicketId, int] = {}
        self.ages: list[float] = []
        self.completions: list[tuple[float, Completion]] = []
        self.readings: list[Reading] = []
        self.samples: list[Sample] = []

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """Note it."""
        self.tickets.append((now, ticket))
        if self.refuses:
            return [Rejected(ticket, Reason.QUEUE_FULL, self.retry_after_s, Why())]
        return super().submit(ticket, now)

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Note it."""
        self.cancels.append(now)
        return super().cancel(id, now)

    def first_token(self, id: TicketId, now: float) -> list[Event]:
        """Note it."""
        self.first_tokens.append(now)
        return []

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """Note it."""
        for id, chunks, age_s in items:
            self.chunks[id] = self.chunks.get(id, 0) + chunks
            self.ages.append(age_s)
        return []

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """Note it."""
        self.completions.append((now, completion))
        self._tokens -= self._running.pop(id, 0)
        return []

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """Note it."""
        self.readings.append(reading)
        return []

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """Note it."""
        self.samples.append(sample)
        return []

    def of(self, kind: SignalKind, member: str = "m0") -> dict[float, float]:
        """Readings of a kind by their time."""
        return {one.at: one.value for one in self.readings if (one.kind, one.member) == (kind, member)}

    def outcomes(self) -> list[Outcome]:
        """How requests ended, in order."""
        return [completion.outcome for _, completion in self.completions]


class Bench:
    """A world, its tapes (or other policies) and all fates."""

    def __init__(self, policy: Callable[[int], Policy] | None = None, seed: int = 0, **config: Any) -> None:
        self.fates: list[Fate] = []
        self.tapes: list[Tape] = []
        self.world = World(WorldConfig(**config), policy or self._tape, self, seed)

    def _tape(self, _: int) -> Tape:
        self.tapes.append(Tape())
        return self.tapes[-1]

    def settle(self, fate: Fate) -> bool:
        """One request."""
        self.fates.append(fate)
        return fate.ending is Ending.SERVED

    def play(self, *arrivals: Arrival, until_s: float | None = None) -> list[Fate]:
        """All of these, and their fates in the order in which they were settled."""
        self.world.run(arrivals, until_s)
        return self.fates

    @property
    def tape(self) -> Tape:
        """The one policy."""
        return self.tapes[0]


def poisson(rate: float, until_s: float, seed: int = 1, **fields: Any) -> list[Arrival]:
    """Independent arrivals with log-normal lengths: about 740 prompt and 150 output tokens at the median."""
    random = Random(seed)
    arrivals: list[Arrival] = []
    at = random.expovariate(rate)
    while at < until_s:
        prompt = min(8_000, max(16, int(random.lognormvariate(6.6, 0.8))))
        output = min(1_500, max(4, int(random.lognormvariate(5.0, 0.7))))
        arrivals.append(Arrival(at, prompt, output, **fields))
        at += random.expovariate(rate)
    return arrivals


def one(**fields: Any) -> WorldConfig:
    """A world with one engine, whose settings are given by name."""
    return WorldConfig(members=(Member(engine=EngineConfig(**fields)),))


__all__ = ["ENGINE", "Bench", "Callers", "Member", "Sight", "Tape", "one", "poisson"]
