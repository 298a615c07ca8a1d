"""Drives the engine model with recorded arrivals, and keeps what the cost of each step is made of."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.simulation.calibrating.measured import CalibrationError, Clock, Measured
from admission.simulation.engine import Engine, EngineConfig
from admission.simulation.engine import Sequence as Simulated

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Work:
    """What one engine worked: steps, prefilled tokens, decoding sequences and KV tokens read, summed up to each mark.

    The cost of a step is linear in these four.
    """

    marks: Floats
    sums: Floats

    def between(self, since: Floats, until: Floats) -> Floats:
        """Work between pairs of times: one row of four for each."""
        columns = [np.interp(until, self.marks, c) - np.interp(since, self.marks, c) for c in self.sums.T]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class Driven:
    """When each request came, entered the queue, got its first and its last token; simulated seconds.

    `stepped` is when the step began that was under way as it came due; where the engine was idle, when it entered.
    """

    arrived: Floats
    stepped: Floats
    entered: Floats
    first: Floats
    last: Floats
    engine_of: Numbers
    work: tuple[Work, ...]
    preemptions: int

    def work_between(self, of: Numbers, since: Floats, until: Floats) -> Floats:
        """What the engines of those requests worked between these times of theirs."""
        rows = np.zeros((len(of), 4))
        for number, work in enumerate(self.work):
            here = self.engine_of[of] == number
            rows[here] = work.between(since[of][here], until[of][here])
        return rows

    def ttft(self, clock: Clock) -> Floats:
        """Seconds to the first token by that clock."""
        return self.first - (self.entered if clock is Clock.QUEUE else self.arrived)

    def decode(self) -> Floats:
        """Seconds from the first token to the last."""
        return self.last - self.first


def drive(config: EngineConfig, requests: Sequence[Measured], engines: int = 1) -> Driven:
    """Run `engines` such models over these arrivals until all are answered; each goes to the least loaded.

    Raises:
        CalibrationError: a request can never fit in KV.
    """
    _check_fit(config, requests)
    nodes = [_Node(config) for _ in range(engines)]
    of = []
    for number, request in enumerate(requests):
        due_s = request.at_s + config.overhead_s
        for node in nodes:
            node.advance(due_s)
        chosen = min(range(engines), key=lambda each: nodes[each].load)
        nodes[chosen].submit(number, request, due_s)
        of.append(chosen)
    for node in nodes:
        node.advance(float("inf"))
    return _driven(requests, nodes, of)


def _check_fit(config: EngineConfig, requests: Sequence[Measured]) -> None:
    largest = max((request.prompt_tokens + request.output_tokens for request in requests), default=0)
    if largest > config.kv_capacity_tokens:
        raise CalibrationError(
            f"a request of {largest} tokens was served: the KV capacity must be more than {config.kv_capacity_tokens}"
        )


class _Node:
    """One engine under the recording's time."""

    def __init__(self, config: EngineConfig) -> None:
        self.engine = Engine(config)
        self.sequences: list[Simulated] = []
        self.stepped = array("d")
        self.entered = array("d")
        self._marks = array("d", [0.0])
        self._sums = array("d", [0.0] * 4)
        self._so_far = (0, 0, 0, 0)

    @property
    def load(self) -> int:
        return self.engine.running + self.engine.waiting

    def advance(self, until: float) -> None:
        while (step := self.engine.step) is not None and step.ends_at <= until:
            self.engine.complete(step.ends_at)
            self._mark(step.ends_at)
            self._begin(step.ends_at)

    def submit(self, number: int, request: Measured, due_s: float) -> None:
        step = self.engine.step
        sequence = self.engine.submit(
            number,
            request.prompt_tokens,
            max(1, request.output_tokens),
            due_s,
            cached_tokens=request.cached_tokens,
        )
        self.sequences.append(sequence)
        self.stepped.append(due_s if step is None else step.started_at)
        self.entered.append(due_s if step is None else step.ends_at)
        if step is None:
            self._mark(due_s)  # it was idle until now
            self._begin(due_s)

    def _begin(self, now: float) -> None:
        if self.engine.begin(now) is None or (step := self.engine.step) is None:
            return
        steps, prefill, decode, kv = self._so_far
        self._so_far = (
            steps + 1,
            prefill + step.prefill_tokens,
            decode + step.decode_seqs,
            kv + self.engine.written_tokens,
        )

    def _mark(self, at: float) -> None:
        self._marks.append(at)
        self._sums.extend(self._so_far)

    def work(self) -> Work:
        return Work(np.array(self._marks), np.array(self._sums).reshape(-1, 4))


def _driven(requests: Sequence[Measured], nodes: Sequence[_Node], of: Sequence[int]) -> Driven:
    stepped, entered, first, last = (np.zeros(len(of)) for _ in range(4))
    engine_of = np.array(of, dtype=np.int64)
    for number, node in enumerate(nodes):
        here = engine_of == number
        stepped[here], entered[here] = node.stepped, node.entered
        first[here] = [sequence.first_token_at or 0.0 for sequence in node.sequences]
        last[here] = [sequence.finished_at or 0.0 for sequence in node.sequences]
    arrived = np.array([request.at_s for request in requests])
    preemptions = sum(node.engine.preemptions_total for node in nodes)
    work = tuple(node.work() for node in nodes)
    return Driven(arrived, stepped, entered, first, last, engine_of, work, preemptions)
