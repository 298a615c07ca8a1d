"""One controller in front of one engine model under simulated time: the core as it is, the world as it could be."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from admission.core.controller import Controller, ControllerConfig
from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    LimitChanged,
    Reading,
    Rejected,
    Shed,
    Ticket,
    TicketId,
)
from admission.simulation.engine import Engine, EngineConfig, Sequence
from admission.vocabulary import Mode, Outcome, PriorityClass, SignalKind, Source

PROGRESS_S = 0.25
SCRAPE_S = 1.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that will come. Seconds and tokens."""

    at: float
    prompt_tokens: int
    output_tokens: int
    priority: PriorityClass = PriorityClass.INTERACTIVE
    stream: bool = True


@dataclass(slots=True)
class Served:
    """What became of one request."""

    arrival: Arrival
    admitted_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    outcome: str = "waiting"
    good: bool = False


@dataclass(slots=True)
class Result:
    """What a run showed."""

    requests: list[Served] = field(default_factory=list)
    limits: list[tuple[float, int, str]] = field(default_factory=list)

    def goodput(self, since: float = 0.0, until: float = float("inf")) -> float:
        """Good over offered, of the requests that arrived in the span."""
        asked = [one for one in self.requests if since <= one.arrival.at < until]
        return sum(one.good for one in asked) / max(1, len(asked))

    def refused(self, since: float = 0.0, until: float = float("inf")) -> float:
        """Refused over offered."""
        asked = [one for one in self.requests if since <= one.arrival.at < until]
        return sum(one.outcome == "refused" for one in asked) / max(1, len(asked))

    def ttft_s(self, quantile: float) -> float:
        """A quantile of TTFT over the served."""
        seen = sorted(
            one.first_token_at - one.arrival.at for one in self.requests if one.first_token_at is not None
        )
        return seen[int(quantile * (len(seen) - 1))] if seen else float("nan")

    def limit_at(self, at: float) -> int:
        """The limit at an instant."""
        return [limit for when, limit, _ in self.limits if when <= at][-1]


class _What(IntEnum):
    STEP = 0
    ARRIVAL = 1
    PROGRESS = 2
    SCRAPE = 3
    GIVE_UP = 4
    ENFORCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """The world around the controller."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    patience_s: float = 10.0
    """A caller leaves after so long without a first token."""
    scrape: bool = True
    own_events: bool = True
    """First tokens and progress are reported."""
    slow: tuple[tuple[float, float], ...] = ()
    """(from when, how many times slower)."""
    chunk_tokens: int = 1
    """Tokens in one streamed chunk."""
    enforce_at: float | None = None
    """Switch from the configured mode to enforce then."""
    bypass: float = 0.0
    """Share of requests that go to the engine without asking."""


class World:
    """Runs arrivals to their end. Deterministic for a seed."""

    def __init__(self, config: WorldConfig, controller: ControllerConfig, seed: int = 0) -> None:
        self._config = config
        self._random = random.Random(seed)  # noqa: S311 - simulation
        self.now = 0.0
        self.engine = Engine(config.engine)
        self.core = Controller(controller, random=self._random, now=0.0)
        self.result = Result(limits=[(0.0, self.core.target.limit.value, "start")])
        self._served: dict[TicketId, Served] = {}
        self._sequences: dict[TicketId, Sequence] = {}
        self._reported: dict[TicketId, int] = {}
        self._heap: list[tuple[float, int, int, TicketId | None]] = []
        self._sequence = 0
        self._stepping = False
        self._last_arrival = 0.0

    def _slowness(self) -> float:
        factor = 1.0
        for since, slower in self._config.slow:
            if self.now >= since:
                factor = slower
        return factor

    def run(self, arrivals: Iterable[Arrival], until: float) -> Result:
        """Play the arrivals up to an instant."""
        for no, arrival in enumerate(arrivals):
            id = TicketId("client" if self._random.random() >= self._config.bypass else "bypass", no)
            self._served[id] = Served(arrival)
            self.result.requests.append(self._served[id])
            self._at(arrival.at, _What.ARRIVAL, id)
        self._at(PROGRESS_S, _What.PROGRESS)
        self._at(SCRAPE_S, _What.SCRAPE)
        if self._config.enforce_at is not None:
            self._at(self._config.enforce_at, _What.ENFORCE)
        for at in self._instants(until):
            self.now = at
        return self.result

    def _instants(self, until: float) -> Iterator[float]:
        while self._heap:
            wake = self.core.next_wakeup()
            at, _, what, id = self._heap[0]
            if wake is not None and wake < at:
                self.now = wake
                self._take(self.core.wake(wake))
                yield wake
                continue
            if at > until:
                return
            heapq.heappop(self._heap)
            self.now = at
            self._happen(_What(what), id)
            yield at

    def _at(self, at: float, what: _What, id: TicketId | None = None) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, what, id))

    def _happen(self, what: _What, id: TicketId | None) -> None:
        match what:
            case _What.STEP:
                self._step()
            case _What.PROGRESS:
                self._progress()
            case _What.SCRAPE:
                self._scrape()
            case _What.ENFORCE:
                self._take(self.core.set_mode(Mode.ENFORCE, self.now))
            case _What.ARRIVAL if id is not None:
                self._arrive(id)
            case _What.GIVE_UP if id is not None:
                self._give_up(id)
            case _:
                raise AssertionError(what)

    def _arrive(self, id: TicketId) -> None:
        arrival = self._served[id].arrival
        if id.owner == "bypass":
            self._start(id)
            return
        ticket = Ticket(
            id,
            arrival.priority,
            prompt_tokens=arrival.prompt_tokens,
            max_tokens=2_048,
            stream=arrival.stream,
        )
        self._at(self.now + self._config.patience_s, _What.GIVE_UP, id)
        self._take(self.core.submit(ticket, self.now))

    def _start(self, id: TicketId) -> None:
        served = self._served[id]
        served.admitted_at = self.now
        served.outcome = "running"
        arrival = served.arrival
        self._sequences[id] = self.engine.submit(id, arrival.prompt_tokens, arrival.output_tokens, self.now)
        self._kick()

    def _kick(self) -> None:
        if not self._stepping:
            self.engine.slow = self._slowness()
            ends_at = self.engine.begin(self.now)
            if ends_at is not None:
                self._stepping = True
                self._at(ends_at, _What.STEP)

    def _step(self) -> None:
        self._stepping = False
        step = self.engine.complete(self.now)
        for sequence in step.first:
            assert isinstance(sequence.id, TicketId)  # noqa: S101 - narrows a type
            self._served[sequence.id].first_token_at = self.now
            if self._config.own_events and self._served[sequence.id].arrival.stream:
                self._take(self.core.first_token(sequence.id, self.now))
        for sequence in step.finished:
            assert isinstance(sequence.id, TicketId)  # noqa: S101 - narrows a type
            self._finish(sequence.id)
        self._kick()

    def _finish(self, id: TicketId) -> None:
        served = self._served[id]
        served.ended_at, served.outcome = self.now, "served"
        served.good = self._is_good(served)
        if self._config.own_events:
            self._report([id])
        output = served.arrival.output_tokens if self._config.own_events else None
        self._take(
            self.core.finish(id, Completion(Outcome.OK, served.arrival.prompt_tokens, None, output), self.now)
        )

    def _is_good(self, served: Served) -> bool:
        slo = self.core.target.class_config(served.arrival.priority).slo
        if served.first_token_at is None or served.ended_at is None:
            return False
        tokens = served.arrival.output_tokens
        tpot_s = (served.ended_at - served.first_token_at) / (tokens - 1) if tokens > 1 else None
        ttft_s = served.first_token_at - served.arrival.at
        return bool(slo.met(served.arrival.prompt_tokens, ttft_s, tpot_s))

    def _give_up(self, id: TicketId) -> None:
        served = self._served[id]
        if served.first_token_at is not None or served.outcome not in ("waiting", "running"):
            return
        if self.engine.abort(id):
            self._kick()
        served.outcome = "gave up"
        self._take(self.core.cancel(id, self.now))

    def _progress(self) -> None:
        self._at(self.now + PROGRESS_S, _What.PROGRESS)
        if self._config.own_events:
            self._report(list(self.core.target.ledger.permits))

    def _report(self, ids: list[TicketId]) -> None:
        """New chunks of these since the last report, in one message as a client sends them."""
        items = []
        for id in ids:
            served = self._served[id]
            if served.first_token_at is None or not served.arrival.stream:
                continue
            made = -(-self.engine.generated(self._sequences[id]) // self._config.chunk_tokens)
            new = made - self._reported.get(id, 0)
            if new > 0:
                self._reported[id] = made
                items.append((id, new, 0.0))
        if items:
            self._take(self.core.progress(items, self.now))

    def _scrape(self) -> None:
        self._at(self.now + SCRAPE_S, _What.SCRAPE)
        if not self._config.scrape:
            return
        engine = self.engine
        for kind, value in (
            (SignalKind.ENGINE_UP, 1.0),
            (SignalKind.KV_CAPACITY_TOKENS, self._config.engine.kv_capacity_tokens),
            (SignalKind.RUNNING, engine.running),
            (SignalKind.KV_USAGE_RATIO, engine.kv_usage_ratio),
            (SignalKind.WAITING, engine.waiting),
            (SignalKind.PREEMPTIONS_TOTAL, engine.preemptions_total),
            (SignalKind.GENERATION_TOKENS_TOTAL, engine.generation_tokens_total),
        ):
            self._take(self.core.observe(Reading(kind, float(value), self.now, Source.SCRAPE), self.now))

    def _take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Admitted(ticket=ticket):
                    self._start(ticket.id)
                case Rejected(ticket=ticket) | Shed(ticket=ticket):
                    if self._served[ticket.id].outcome == "waiting":
                        self._served[ticket.id].outcome = "refused"
                case LimitChanged(new=new, why=why):
                    self.result.limits.append((self.now, new, why.source.value))
                case Finished():
                    pass
