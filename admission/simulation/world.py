"""Policies in front of engine models under simulated time: callers with their habits, sight with its gaps, and mishaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop

from admission.core.model import TicketId
from admission.simulation.attempts import Desk, Judging, Watch
from admission.simulation.callers import Callers, Retry
from admission.simulation.disturbances import Disturbance, Flush, Lost, Restart, Slow, Stall
from admission.simulation.fleet import Member, Node
from admission.simulation.policies.base import Policy
from admission.simulation.sequences import Phase
from admission.simulation.serving import Serving
from admission.simulation.sight import Sight
from admission.simulation.surroundings import WorldConfig
from admission.simulation.timeline import State, Timeline
from admission.simulation.traces import Arrival

__all__ = [
    "Callers",
    "Disturbance",
    "Flush",
    "Lost",
    "Member",
    "Restart",
    "Retry",
    "Sight",
    "Slow",
    "Stall",
    "World",
    "WorldConfig",
]

LOOK_S = 1.0


class World(Serving):
    """Runs arrivals to their end. The same arguments give the same run, to the last bit.

    Args:
        config: what is around the policies.
        policy: builds the policy of the sidecar of that number.
        judge: told of each request once, when it is settled.
        seed: of callers' choices and step noise.
        timeline: looks at policies and engines once a second.
        watch: told of every event of a policy: (sidecar, seconds, event).

    Raises:
        ValueError: members that cannot work together, or a disturbance of a member that is not there.
    """

    def __init__(
        self,
        config: WorldConfig,
        policy: Callable[[int], Policy],
        judge: Judging,
        seed: int = 0,
        timeline: Timeline | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(config, policy, judge, seed, timeline, watch)
        self._arrivals: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self._next_at = math.inf

    def run(self, arrivals: Iterable[Arrival], until_s: float | None = None) -> None:
        """Play arrivals, in time order, until all are settled or until an instant; what is open then is settled as such.

        Raises:
            ValueError: an arrival earlier than the one before it.
        """
        self._arrivals = iter(arrivals)
        self._expect_next()
        self._start_rounds()
        self._play(math.inf if until_s is None else until_s)
        for call in list(self._open):
            self._settle(call, *call.last)

    def _play(self, until: float) -> None:
        heap, touched = self._heap, self._touched
        node, desk = self.fleet.nodes[0], self._desks[0]
        alone = len(self.fleet.nodes) == len(self._desks) == 1
        while self._next is not None or self._open:
            if not alone:
                node, desk = self._first_to_end(), self._first_to_wake()
            elif desk.stale:
                desk.ask()
            timer_at = heap[0][0] if heap else math.inf
            at = min(node.ends_at, timer_at, self._next_at, desk.wake_at)
            if at > until or at == math.inf:
                return
            self.now = at = max(at, self.now)
            # What happens at one instant happens in this order.
            if node.ends_at <= at:
                self._step(node)
            elif timer_at <= at:
                _, _, happening, what = heappop(heap)
                happening(what)
            elif self._next_at <= at:
                self._take_next()
            else:
                self._said(desk, desk.policy.wake(at))
            if touched:
                for one in touched:
                    one.kick(at)
                touched.clear()

    def _first_to_end(self) -> Node:
        return min(self.fleet.nodes, key=_ends_at)

    def _first_to_wake(self) -> Desk:
        for desk in self._desks:
            if desk.stale:
                desk.ask()
        return min(self._desks, key=_wake_at)

    def _take_next(self) -> None:
        arrival = self._next
        self._expect_next()
        if arrival is not None:
            self._arrive(arrival)

    def _expect_next(self) -> None:
        before_s = self._next_at if self._next is not None else 0.0
        self._next = arrival = next(self._arrivals, None)
        self._next_at = math.inf if arrival is None else arrival.at_s
        if self._next_at < before_s:
            raise ValueError(f"an arrival at {self._next_at} s comes after one at {before_s} s")

    # Rounds

    def _start_rounds(self) -> None:
        sight, count = self.config.sight, len(self._desks)
        if self._tells_progress:
            self._at(sight.progress_s, self._report_all)
        if sight.scrape_s is not None:
            for no, desk in enumerate(self._desks):
                # Sidecars are not in step with one another.
                self._at(sight.scrape_s * (1.0 + no / count), self._scrape, desk)
        if self._timeline is not None:
            self._at(0.5 * LOOK_S, self._look)

    def _report_all(self, _: None) -> None:
        sight = self.config.sight
        self._at(self.now + sight.progress_s, self._report_all)
        for node in self.fleet.nodes:
            node.engine.catch_up(self.now)
        for desk in self._desks:
            if desk.streaming:
                self._report(desk)

    def _report(self, desk: Desk) -> None:
        now, chunk_tokens = self.now, self.config.sight.chunk_tokens
        items: list[tuple[TicketId, int, float]] = []
        for call in desk.streaming:
            sequence, node, id = call.sequence, call.node, call.id
            if sequence is None or node is None or id is None:
                continue
            engine = node.engine
            # As `call.chunks`, without its calls: this line runs for each stream four times a second.
            made = call.elsewhere + sequence.generated_before
            if sequence.phase is Phase.DECODE:
                made += engine.decode_steps - sequence.joined
            if chunk_tokens > 1:
                made = -(-made // chunk_tokens)
            if made > call.told:
                items.append((id, made - call.told, now - engine.token_at))
                call.told = made
        if items:
            self._said(desk, desk.policy.progress(items, now))

    def _scrape(self, desk: Desk) -> None:
        sight = self.config.sight
        self._at(self.now + (sight.scrape_s or math.inf), self._scrape, desk)
        for node in self.fleet.nodes:
            node.engine.catch_up(self.now)
            for reading in sight.readings(node, self.now):
                self._said(desk, desk.policy.observe(reading, self.now))

    def _look(self, _: None) -> None:
        self._at(self.now + LOOK_S, self._look)
        nodes = self.fleet.nodes
        for node in nodes:
            node.engine.catch_up(self.now)
        looks = [policy.look(self.now) for policy in self.policies]
        state = State(
            limit=sum(look.limit for look in looks),
            used=sum(look.used for look in looks),
            in_flight=sum(look.in_flight for look in looks),
            queued=sum(look.queued for look in looks),
            engine_running=sum(node.engine.running for node in nodes),
            engine_waiting=sum(node.engine.waiting for node in nodes),
            kv_ratio=max(node.engine.kv_usage_ratio for node in nodes),
        )
        if self._timeline is not None:
            self._timeline.look(self.now, state)


def _ends_at(node: Node) -> float:
    return node.ends_at


def _wake_at(desk: Desk) -> float:
    return desk.wake_at
