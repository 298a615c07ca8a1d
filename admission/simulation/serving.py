"""The engines' side of a world: requests reach a member, get tokens, are handed over, end, or are lost with it."""

from __future__ import annotations

import math
from collections.abc import Callable

from admission.core.model import Completion
from admission.simulation.attempts import Attempts, Judging, Watch
from admission.simulation.callers import Call, Stage
from admission.simulation.disturbances import Disturbance, Flush, Lost, Restart, Slow, Stall
from admission.simulation.fate import Ending
from admission.simulation.fleet import Fleet, Node
from admission.simulation.policies.base import Policy
from admission.simulation.surroundings import WorldConfig
from admission.simulation.timeline import Timeline
from admission.vocabulary import Outcome


class Serving(Attempts):
    """What engines do with requests, and what happens to engines."""

    def __init__(
        self,
        config: WorldConfig,
        policy: Callable[[int], Policy],
        judge: Judging,
        seed: int,
        timeline: Timeline | None,
        watch: Watch | None,
    ) -> None:
        super().__init__(config, policy, judge, seed, timeline, watch)
        self.fleet = Fleet(config.members, config.noise, seed, runs=not config.single_steps)
        self._tells_first_tokens = config.sight.sees_first_tokens
        self._tells_progress = config.sight.sees_progress
        self._touched: dict[Node, None] = {}
        """Engines that may have something new to do, once all that happens at this instant has been said."""
        self._schedule_mishaps()

    @property
    def preemptions_total(self) -> int:
        """How often the engines threw work away."""
        return sum(node.engine.preemptions_total for node in self.fleet.nodes)

    # Requests

    def _start(self, call: Call) -> None:
        call.stage = Stage.RUNNING
        call.admitted_at = self.now
        call.node = node = self.fleet.for_prompt()
        if node is None:
            self._at(self.now, self._fail, call)
        elif node.engine.config.overhead_s:
            self._at(self.now + node.engine.config.overhead_s, self._reach, call)
        else:
            self._reach(call)

    def _reach(self, call: Call) -> None:
        """The request is at the engine."""
        node, arrival = call.node, call.arrival
        if node is None or call.stage is Stage.OVER:
            return
        output_tokens = arrival.output_tokens or 1
        if node.downs:
            self._at(self.now, self._fail, call)
        elif arrival.prompt_tokens + output_tokens > node.engine.config.kv_capacity_tokens:
            self._at(self.now, self._turn_away, call)
        else:
            call.hands_over = node.role == "prefill" and output_tokens > 1
            call.sequence = node.engine.submit(
                call,
                arrival.prompt_tokens,
                1 if call.hands_over else output_tokens,
                self.now,
                cached_tokens=arrival.cached_tokens,
                shared_tokens=arrival.shared_tokens,
                prefix=arrival.prefix,
            )
            node.in_flight += 1
            self._touched[node] = None

    def _step(self, node: Node) -> None:
        result = node.engine.complete(self.now)
        self._touched[node] = None
        for sequence in result.first:
            call = sequence.id
            assert isinstance(call, Call)  # noqa: S101 - narrows a type
            if call.stage is not Stage.OVER and call.first_token_at is None:
                call.hit_tokens = sequence.hit_tokens
                self._first_token(call)
        for sequence in result.finished:
            call = sequence.id
            assert isinstance(call, Call)  # noqa: S101 - narrows a type
            node.in_flight -= 1
            if call.stage is not Stage.OVER:
                self._finished(call)

    def _first_token(self, call: Call) -> None:
        call.first_token_at = self.now
        if call.leaves:
            within_s = self.config.callers.leave_within_s
            self._at(self.now + self._random.uniform(0.0, within_s), self._leave_as_meant, call)
        if call.id is None or not call.stream:
            return
        desk = self._desks[call.desk]
        if self._tells_progress:
            desk.streaming[call] = None
        if self._tells_first_tokens:
            self._said(desk, desk.policy.first_token(call.id, self.now))

    def _finished(self, call: Call) -> None:
        if call.hands_over and not call.elsewhere:
            self._hand_over(call)
            return
        desk = self._forget(call)
        self._end(call, Ending.SERVED)
        if desk is None or call.id is None:
            return
        sight, policy = self.config.sight, desk.policy
        if call.stream and self._tells_progress:
            new = call.chunks(sight.chunk_tokens) - call.told
            if new > 0:
                self._said(desk, policy.progress([(call.id, new, 0.0)], self.now))
        if sight.spans:
            self._said(desk, policy.sample(sight.span(call, self.now), self.now))
        self._said(desk, policy.finish(call.id, sight.completion(call, self.now), self.now))

    def _hand_over(self, call: Call) -> None:
        """A prefill member is done: the KV travels to a decode member."""
        config = self.config
        call.elsewhere, call.sequence = 1, None
        transfer_s = config.hand_over_s + config.hand_over_s_per_token * call.arrival.prompt_tokens
        self._at(self.now + transfer_s, self._go_on, call)

    def _go_on(self, call: Call) -> None:
        if call.stage is Stage.OVER:
            return
        call.node = node = self.fleet.for_answer()
        if node is None:
            self._fail(call)
            return
        # The first token is part of the context by now; all before it came with the transfer.
        prompt_tokens = call.arrival.prompt_tokens
        call.sequence = node.engine.submit(
            call,
            prompt_tokens + 1,
            call.arrival.output_tokens - 1,
            self.now,
            cached_tokens=prompt_tokens,
        )
        node.in_flight += 1
        self._touched[node] = None

    def _abort(self, call: Call) -> None:
        node = call.node
        if node is not None and call.sequence is not None and node.engine.abort(call, self.now):
            node.in_flight -= 1
            self._touched[node] = None

    def _fail(self, call: Call) -> None:
        self._break_off(call, Ending.FAILED, Outcome.ERROR)

    def _turn_away(self, call: Call) -> None:
        self._break_off(call, Ending.INVALID, Outcome.INVALID)

    def _break_off(self, call: Call, ending: Ending, outcome: Outcome) -> None:
        if call.stage is Stage.OVER:
            return
        desk = self._forget(call)
        self._end(call, ending, "engine")
        if desk is not None and call.id is not None:
            self._said(desk, desk.policy.finish(call.id, Completion(outcome), self.now))

    # Mishaps

    def _schedule_mishaps(self) -> None:
        for one in self.config.disturbances:
            start_s, end_s = one.span
            for node in self.fleet.named(one.member):
                self._at(start_s, self._begin_mishap, (one, node))
                if end_s < math.inf:
                    self._at(end_s, self._end_mishap, (one, node))

    def _begin_mishap(self, what: tuple[Disturbance, Node]) -> None:
        one, node = what
        match one:
            case Slow(factor=factor):
                node.slow_by(factor, self.now)
            case Stall(for_s=for_s):
                node.cut(self.now)
                node.engine.stalled_until = self.now + for_s
            case Restart() | Lost():
                self._go_down(node)
            case Flush():
                node.engine.flush()

    def _end_mishap(self, what: tuple[Disturbance, Node]) -> None:
        one, node = what
        if isinstance(one, Slow):
            node.slow_no_more(one.factor, self.now)
        elif isinstance(one, Restart | Lost):
            node.downs -= 1

    def _go_down(self, node: Node) -> None:
        node.downs += 1
        node.in_flight = 0
        lost = node.engine.reset()
        node.ends_at = math.inf
        for sequence in lost:
            assert isinstance(sequence.id, Call)  # noqa: S101 - narrows a type
            self._fail(sequence.id)
