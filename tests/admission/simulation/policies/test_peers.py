"""What holds for every published limiter behind the front queue, whatever its rule."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Queued,
    Reading,
    Rejected,
    Shed,
    Ticket,
    TicketId,
)
from admission.core.slo import SloConfig
from admission.simulation import policies
from admission.simulation.policies import Policy, PolicySpec
from admission.simulation.policies.queued import QueuedLimiter
from admission.vocabulary import Outcome, PriorityClass, SignalKind, Source

PEERS = ("aimd_requests", "envoy_gradient", "gradient2", "saturation", "vector_arc", "vegas")


class Night:
    """An hour of everything that can happen, drawn by a seed, with the books kept."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.policy = policy
        self.random = Random(seed)
        self.now = 0.0
        self.waiting: set[TicketId] = set()
        self.running: dict[TicketId, bool] = {}
        self.answered: list[tuple[TicketId, str]] = []
        self.limits: list[float] = []

    def play(self, steps: int) -> None:
        """So many things, one after the other."""
        for no in range(steps):
            self._wake_until(self.now + self.random.expovariate(20.0))
            self.take(self._something(no))
            self.limits.append(self.policy.look(self.now).limit)

    def take(self, events: list[Event]) -> None:
        """Keep the books."""
        for event in events:
            match event:
                case Admitted(ticket=ticket):
                    self.waiting.discard(ticket.id)
                    self.running[ticket.id] = False
                    assert len(self.running) <= self.policy.look(self.now).limit
                    self.answered.append((ticket.id, "admitted"))
                case Rejected(ticket=ticket) | Shed(ticket=ticket):
                    self.waiting.discard(ticket.id)
                    self.answered.append((ticket.id, "refused"))
                case Queued(ticket=ticket):
                    self.waiting.add(ticket.id)
                case _:
                    pass

    def _wake_until(self, at: float) -> None:
        wake = self.policy.next_wakeup()
        while wake is not None and wake <= at:
            self.now = max(self.now, wake)
            self.take(self.policy.wake(self.now))
            following = self.policy.next_wakeup()
            assert following is None or following > self.now
            wake = following
        self.now = at

    def _something(self, no: int) -> list[Event]:
        draw = self.random.random()
        if draw < 0.4:
            return self.policy.submit(Ticket(TicketId("client", no), prompt_tokens=100), self.now)
        if draw < 0.55:
            return self._scrape()
        if draw < 0.6 and self.waiting:
            return self.policy.cancel(min(self.waiting), self.now)
        if self.running:
            return self._with_one_that_runs(self.random.choice(list(self.running)))
        return self.policy.wake(self.now)

    def _with_one_that_runs(self, id: TicketId) -> list[Event]:
        if not self.running[id]:
            self.running[id] = True
            return self.policy.first_token(id, self.now)
        del self.running[id]
        outcome = Outcome.OK if self.random.random() < 0.95 else Outcome.ERROR
        return self.policy.finish(id, Completion(outcome, output_tokens=20), self.now)

    def _scrape(self) -> list[Event]:
        said = []
        for kind, value in (
            (SignalKind.ENGINE_UP, 1.0),
            (SignalKind.KV_USAGE_RATIO, self.random.random()),
            (SignalKind.WAITING, float(self.random.randrange(8))),
        ):
            said += self.policy.observe(Reading(kind, value, self.now, Source.SCRAPE), self.now)
        return said


@cache
def night(name: str, again: int = 0) -> Night:
    """One such hour; played anew for another `again`."""
    seed = 0
    played = Night(policies.build(PolicySpec(name), seed=seed, now=0.0), seed)
    played.play(3_000)
    return played


def test_every_peer_is_found_by_name() -> None:
    """A new peer is one new file, and these are there."""
    assert set(PEERS) <= set(policies.names())


@pytest.mark.parametrize("name", PEERS)
def test_each_request_is_answered_once_and_the_limit_is_kept(name: str) -> None:
    """Nobody waits for ever, nobody is answered twice, and nobody is let in over the limit."""
    played = night(name)
    answered = [id for id, _ in played.answered]
    assert len(answered) == len(set(answered)) > 250
    look = played.policy.look(played.now)
    assert (look.in_flight, look.queued) == (len(played.running), len(played.waiting))


@pytest.mark.parametrize("name", PEERS)
def test_the_same_seed_gives_the_same_answers(name: str) -> None:
    """A comparison that cannot be repeated proves nothing."""
    assert night(name).answered == night(name, again=1).answered


@pytest.mark.parametrize("name", PEERS)
def test_its_limit_moves(name: str) -> None:
    """A limiter that stands still in an hour of trouble hears nothing."""
    assert len(set(night(name).limits)) > 1


@pytest.mark.parametrize("name", PEERS)
def test_its_queue_follows_the_targets_that_it_is_built_with(name: str) -> None:
    """Another TTFT target is another deadline, as for the product."""
    slos = {PriorityClass.INTERACTIVE: SloConfig(ttft_s=4.0)}
    policy = policies.build(PolicySpec(name), seed=0, now=0.0, slos=slos)
    assert isinstance(policy, QueuedLimiter)
    assert policy._patience_s == 3.0
