"""Turns the journal of a real sidecar back into the traffic that it saw: who asked when, and how long it became."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from admission.core.cost import CostConfig, CostModel
from admission.core.model import Completion, Held, Ticket, TicketId
from admission.runtime import records, segments
from admission.runtime.inputs import Op
from admission.simulation.inputs.arrival import DEFAULT_MAX_TOKENS, Arrival, TraceError
from admission.vocabulary import Outcome, PriorityClass

HORIZON_S = 600.0
"""A request whose end has not been seen for so long is told with a learned length, to keep memory flat."""
_CLOCK_JUMP_S = 300.0
_WINDOW = 200
_INITIAL_OUTPUT = CostConfig().initial_output_tokens
_ABOUT_REQUESTS = frozenset({Op.SUBMIT, Op.FINISH, Op.PROGRESS, Op.CANCEL, Op.REINSTATE})


@dataclass(slots=True)
class JournalReport:
    """What was found, and how much of it had to be guessed. All counts are requests."""

    segments: int = 0
    requests: int = 0
    known: int = 0
    """The answer's length is the engine's own count."""
    counted: int = 0
    """The answer's length is the number of streamed chunks."""
    learned: int = 0
    """The answer was never seen whole (refused, shed, left, failed, unfinished): its length is one of those seen lately."""
    refused: int = 0
    """Of `requests`: refused on arrival. They count as offered."""
    prompts_learned: int = 0
    """The prompt's tokens were never counted: told from its bytes, else from the mean of its class."""
    invalid: int = 0
    """Left out: the engine itself called them invalid."""
    foreign_ends: int = 0
    """Ends of requests that began before the journal does: left out."""
    targets: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """Segments that could not be read to their end, and why."""


class _Row(NamedTuple):
    target: str
    op: Op
    now: float
    args: tuple[Any, ...]
    kinds: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Asked:
    """A request whose end is not known yet, or whose turn to be told has not come."""

    at_s: float
    target: str
    ticket: Ticket
    chunks: int = 0
    settled: bool = False
    invalid: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int | None = None
    """None: to be learned."""


class JournalTrace:
    """The requests of a journal folder, or of one segment of it. Read `report` when they have all been taken.

    A journal holds counts of tokens, classes, hashed tenants and times; no prompts. Retries of callers are requests of
    their own in it: simulate it with callers that do not retry. `target` chooses one target of several; without it
    each request names its target in `model`.
    """

    def __init__(self, path: Path, target: str | None = None, seed: int = 0) -> None:
        self._path = path
        self._target = target
        self._lengths = _Lengths(seed)
        self._clock = _Clock()
        self._open: dict[tuple[str, TicketId], _Asked] = {}
        self._order: list[tuple[float, int, _Asked]] = []
        self._told_s = 0.0
        self._taken = 0
        self.report = JournalReport()

    def arrivals(self) -> Iterator[Arrival]:
        """In time order, seconds from the first recorded input; one at a time.

        Raises:
            TraceError: there is no journal, it has no request, or not of the target.
        """
        found = self._segments()
        for path in found:
            yield from self._segment(path)
        yield from self._told(float("inf"))
        if not self.report.requests:
            why = f" ({self.report.unreadable[0]})" if self.report.unreadable else ""
            of = f" for target {self._target!r}" if self._target else ""
            raise TraceError(f"{self._path.name}: no requests in the journal{of}{why}")

    def _segments(self) -> list[Path]:
        try:
            found = segments.segments(self._path)
        except OSError as error:
            raise TraceError(f"{self._path.name}: cannot be read ({error.strerror})") from error
        if not found:
            raise TraceError(f"{self._path.name}: no journal: no {segments.SUFFIX} files in it")
        return found

    def _segment(self, path: Path) -> Iterator[Arrival]:
        self.report.segments += 1
        try:
            for row in self._rows(path):
                at_s = self._clock.at(row.now)
                if row.op in _ABOUT_REQUESTS and self._target in {None, row.target}:
                    self._take(row, at_s)
                yield from self._told(at_s - HORIZON_S)
        except (segments.JournalError, OSError) as error:
            self.report.unreadable.append(f"{path.name}: {getattr(error, 'strerror', None) or error}")

    def _rows(self, path: Path) -> Iterator[_Row]:
        for kind, payload in segments.frames(path):
            if kind == segments.SNAPSHOT:
                self._snapshot(payload)
                continue
            for batch in segments.decode(payload):
                for raw in batch:
                    yield _row(raw)

    def _snapshot(self, payload: bytes) -> None:
        try:
            (snapshot,) = segments.decode(payload)
            self._clock.began(float(snapshot["at_unix_s"]))
            for target, controller in snapshot["controllers"].items():
                self._lengths.learned_before(target, controller.target.cost)
        except (segments.JournalError, AttributeError, KeyError, TypeError, ValueError):
            # Of another version, whose state is not ours. The inputs are plain values and can still be read.
            return

    def _take(self, row: _Row, at_s: float) -> None:
        if row.op is Op.SUBMIT:
            asked = self._asked(row.target, row.args[0], at_s)
            if any(kind % 16 == records.REJECTED for kind in row.kinds):
                self.report.refused += 1
                self._settle(asked)
        elif row.op is Op.REINSTATE:
            for held in row.args[0]:
                self._announced(row.target, held, at_s)
        elif row.op is Op.PROGRESS:
            for id, chunks, _ in row.args[0]:
                if running := self._open.get((row.target, id)):
                    running.chunks += chunks
        else:
            self._ended(row)

    def _asked(self, target: str, ticket: Ticket, at_s: float) -> _Asked:
        known = self._open.get((target, ticket.id))
        if known:
            # Asked again, such as after its connection broke.
            return known
        asked = self._open[target, ticket.id] = _Asked(at_s, target, ticket)
        self._taken += 1
        heapq.heappush(self._order, (at_s, self._taken, asked))
        return asked

    def _announced(self, target: str, held: Held, at_s: float) -> None:
        """A permit that we have not seen asked for: granted before a restart, or by the client itself."""
        began_s = max(0.0, self._told_s, at_s - max(0.0, held.age_s))
        asked = self._asked(target, held.ticket, began_s)
        asked.chunks = max(asked.chunks, held.chunks)

    def _ended(self, row: _Row) -> None:
        asked = self._open.get((row.target, row.args[0]))
        if asked is None:
            self.report.foreign_ends += row.op is Op.FINISH
        elif row.op is Op.CANCEL:
            self._settle(asked)
        else:
            self._finished(asked, row.args[1])

    def _finished(self, asked: _Asked, done: Completion) -> None:
        asked.prompt_tokens = done.prompt_tokens or 0
        asked.cached_tokens = done.cached_tokens or 0
        asked.invalid = done.outcome is Outcome.INVALID
        if done.outcome is Outcome.OK:
            if done.output_tokens:
                asked.output_tokens = done.output_tokens
                self.report.known += 1
            elif asked.chunks:
                asked.output_tokens = asked.chunks
                self.report.counted += 1
            elif done.prompt_tokens:
                # The engine counted the prompt and no answer: an embedding.
                asked.output_tokens = 0
                self.report.known += 1
            self._lengths.learn(asked)
        elif done.output_tokens:
            asked.chunks = max(asked.chunks, done.output_tokens)
        self._settle(asked)

    def _settle(self, asked: _Asked) -> None:
        asked.settled = True
        self._open.pop((asked.target, asked.ticket.id), None)

    def _told(self, before_s: float) -> Iterator[Arrival]:
        """Those at the head whose end is known, or who came before that moment."""
        while self._order and (self._order[0][2].settled or self._order[0][0] < before_s):
            _, _, asked = heapq.heappop(self._order)
            self._settle(asked)
            self._told_s = asked.at_s
            if asked.invalid:
                self.report.invalid += 1
            else:
                yield self._arrival(asked)

    def _arrival(self, asked: _Asked) -> Arrival:
        ticket, report = asked.ticket, self.report
        report.requests += 1
        report.targets[asked.target] = report.targets.get(asked.target, 0) + 1
        prompt = asked.prompt_tokens or ticket.prompt_tokens
        if not prompt:
            prompt = self._lengths.prompt(asked)
            report.prompts_learned += 1
        output = asked.output_tokens
        if output is None:
            output = self._lengths.output(asked)
            report.learned += 1
        flow = ticket.flow
        return Arrival(
            asked.at_s,
            max(1, prompt),
            output,
            ticket.priority,
            "" if flow.tenant == "anonymous" else flow.tenant,
            model="" if self._target else asked.target,
            max_tokens=max(ticket.max_tokens or DEFAULT_MAX_TOKENS, output),
            stream=ticket.stream,
            cached_tokens=max(0, min(asked.cached_tokens, prompt - 1)),
        )


def _row(raw: Any) -> _Row:
    try:
        target, number, now, plain, _, kinds = raw
        op = Op(number)
        args = records.input_in(op, plain) if op in _ABOUT_REQUESTS else ()
    except (TypeError, ValueError) as error:
        raise segments.JournalError(f"a batch has something else than inputs ({error})") from error
    return _Row(target, op, now, args, kinds)


class _Clock:
    """Monotonic times of several segments as seconds from the first input; across a reboot the wall clock helps."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._now = 0.0
        self._unix_s: float | None = None
        """When the segment began, until its first input."""
        self._first = self._before = (0.0, 0.0)
        """First input and beginning (wall clock) of the first segment, and of the one before."""

    def began(self, unix_s: float) -> None:
        """A segment began then."""
        self._unix_s = unix_s

    def at(self, now: float) -> float:
        """The second of an input; never before an earlier one."""
        if self._offset is None:
            self._offset = -now
            self._first = self._before = (now, self._unix_s or 0.0)
        elif now < self._now or self._jumped(now):
            passed_s = self._unix_s - self._first[1] if self._unix_s is not None else 0.0
            self._offset = max(passed_s, self._now + self._offset) - now
        if self._unix_s is not None:
            self._before, self._unix_s = (now, self._unix_s), None
        self._now = now
        return now + self._offset

    def _jumped(self, now: float) -> bool:
        if self._unix_s is None or not self._before[1]:
            return False
        drift_s = (now - self._before[0]) - (self._unix_s - self._before[1])
        return abs(drift_s) > _CLOCK_JUMP_S


class _Lengths:
    """What answers and prompts have been like lately, by target, model, endpoint and class."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"journal-{seed}")  # noqa: S311 - to be repeatable
        self._outputs: dict[tuple[Any, ...], deque[int]] = defaultdict(lambda: deque(maxlen=_WINDOW))
        self._costs: dict[str, CostModel] = {}

    def learned_before(self, target: str, cost: CostModel) -> None:
        """What the sidecar itself had learned when the first segment began."""
        if target in self._costs:
            return
        saved = cost.saved()
        self._costs[target] = CostModel(CostConfig())
        self._costs[target].restore(saved)
        for model, by_rank in saved.items():
            for rank, lengths in zip(PriorityClass, by_rank, strict=False):
                self._outputs[target, model, rank].extend(int(each) for each in lengths)

    def learn(self, asked: _Asked) -> None:
        """A request that was served whole."""
        ticket = asked.ticket
        self._cost(asked).learn(ticket, asked.prompt_tokens, asked.output_tokens, asked.chunks)
        if asked.output_tokens is not None:
            for key in self._keys(asked):
                self._outputs[key].append(asked.output_tokens)

    def output(self, asked: _Asked) -> int:
        """A length for an answer that nobody saw, not under what came of it.

        Drawn from those seen lately, not their median: a median for every refused request would take out of the
        traffic the long answers that fill an engine.
        """
        lengths = next((self._outputs[key] for key in self._keys(asked) if self._outputs.get(key)), None)
        drawn = self._random.choice(lengths) if lengths else _INITIAL_OUTPUT
        most = asked.ticket.max_tokens or drawn
        return max(asked.chunks, min(drawn, most))

    def prompt(self, asked: _Asked) -> int:
        """Tokens of a prompt of which only the bytes are known, or nothing."""
        return self._cost(asked).predict(asked.ticket).prompt

    def _cost(self, asked: _Asked) -> CostModel:
        found = self._costs.get(asked.target)
        if found is None:
            found = self._costs[asked.target] = CostModel(CostConfig())
        return found

    def _keys(self, asked: _Asked) -> tuple[tuple[Any, ...], ...]:
        target, (_, model, endpoint), rank = asked.target, asked.ticket.flow, asked.ticket.priority
        return (target, model, endpoint, rank), (target, model, rank)
