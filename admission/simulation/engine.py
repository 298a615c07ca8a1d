"""Continuous batching as a discrete model: which sequences share a step, how long it takes, what it yields.

Time is an argument. The caller begins a step, waits until it ends (in simulated or in real time) and completes it:

    ends_at = engine.begin(now)      # None: nothing to do
    result = engine.complete(ends_at)

Pure decode steps cost O(1): every decoding sequence gains one token a step, so one counter serves them all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import count


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """The engine's cost of a step and its bounds: step = base + prefill + decode + KV read, in seconds.

    The defaults are those of Llama-3-8B on one H100 (see `engines`). KV is counted in tokens.
    """

    base_s: float = 7.79e-3
    prefill_s_per_token: float = 2.55e-5
    decode_s_per_sequence: float = 4.88e-5
    kv_s_per_token: float = 5.77e-8
    kv_capacity_tokens: int = 460_000
    max_num_seqs: int = 256
    step_tokens: int = 2048

    def __post_init__(self) -> None:
        """Raise ValueError when no step could ever run."""
        if self.base_s <= 0 or min(self.prefill_s_per_token, self.decode_s_per_sequence) < 0:
            raise ValueError("base_s must be positive, and no cost negative")
        if self.kv_s_per_token < 0 or self.kv_capacity_tokens < 1:
            raise ValueError("kv_s_per_token must not be negative and kv_capacity_tokens at least 1")
        if not 1 <= self.max_num_seqs < self.step_tokens:
            raise ValueError("max_num_seqs must be at least 1 and below step_tokens, or prefill starves")

    def step_s(self, prefill_tokens: int, decode_seqs: int, kv_tokens: int) -> float:
        """Seconds of one step with that many tokens prefilled, sequences decoded and KV tokens held."""
        return (
            self.base_s
            + self.prefill_s_per_token * prefill_tokens
            + self.decode_s_per_sequence * decode_seqs
            + self.kv_s_per_token * kv_tokens
        )


class Phase(Enum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and its answer. `generated_before` counts output tokens up to the last time it began to decode."""

    id: Hashable
    no: int
    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    to_prefill: int
    prefilled: int = 0
    generated_before: int = 0
    joined: int = 0
    ends: int = 0
    phase: Phase = Phase.WAITING
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    preemptions: int = 0


@dataclass(slots=True)
class Step:
    """A batch under way."""

    started_at: float
    ends_at: float
    prefill_tokens: int
    decode_seqs: int
    chunks: list[Sequence]
    preempted: list[Sequence]


@dataclass(slots=True)
class StepResult:
    """What a step yielded. `first` and `resumed` got a token from their prefill, all that decode got one each."""

    at: float
    step: Step
    first: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)


class Engine:
    """FIFO admission, chunked prefill under a token budget shared with the decodes, last-admitted preempted.

    Args:
        config: costs and bounds.
        noise: factor on each step's duration, drawn once a step; None means none.
    """

    def __init__(self, config: EngineConfig, noise: Callable[[], float] | None = None) -> None:
        self.config = config
        self.slow = 1.0
        self.stalled_until = float("-inf")
        self.preemptions_total = 0
        self.prompt_tokens_total = 0
        self.generation_tokens_total = 0
        self.busy_s = 0.0
        self._noise = noise
        self._numbers = count()
        self._sequences: dict[Hashable, Sequence] = {}
        self.reset()

    def reset(self) -> list[Sequence]:
        """Lose everything, as a restart does; totals stay. Returns what was lost."""
        lost = list(self._sequences.values())
        for sequence in lost:
            sequence.phase = Phase.ABORTED
        self._sequences.clear()
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._running: dict[int, Sequence] = {}
        self._prefilling: dict[int, Sequence] = {}
        self._aborting: list[Sequence] = []
        self._ends: list[tuple[int, int, Sequence]] = []
        self._decoding = 0
        self._decode_steps = 0
        self._held = 0
        self._written = 0
        self._step: Step | None = None
        return lost

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a place or for KV, preempted ones included."""
        return len(self._waiting)

    @property
    def decoding(self) -> int:
        """Sequences past their prefill."""
        return self._decoding

    @property
    def kv_tokens(self) -> int:
        """KV tokens held; a prompt's are held from its admission."""
        return self._held

    @property
    def kv_usage_ratio(self) -> float:
        """KV held over capacity."""
        return self._held / self.config.kv_capacity_tokens

    @property
    def step(self) -> Step | None:
        """The step under way."""
        return self._step

    def next_wakeup(self) -> float | None:
        """When the step under way ends, None when there is none."""
        return None if self._step is None else self._step.ends_at

    def generated(self, sequence: Sequence) -> int:
        """Output tokens that have left the engine so far."""
        if sequence.phase is Phase.DECODE:
            return sequence.generated_before + self._decode_steps - sequence.joined
        return sequence.generated_before

    def submit(self, id: Hashable, prompt_tokens: int, output_tokens: int, now: float) -> Sequence:
        """Put a sequence at the end of the waiting queue.

        Raises:
            ValueError: a known id, a length below 1, or a sequence that can never fit in KV.
        """
        if id in self._sequences:
            raise ValueError(f"sequence {id!r} is known")
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError("prompt_tokens and output_tokens must be at least 1")
        if prompt_tokens + output_tokens > self.config.kv_capacity_tokens:
            raise ValueError(
                f"{prompt_tokens} + {output_tokens} tokens exceed the KV capacity of {self.config.kv_capacity_tokens}"
            )
        sequence = Sequence(id, next(self._numbers), prompt_tokens, output_tokens, now, prompt_tokens)
        self._sequences[id] = sequence
        self._waiting[sequence.no] = sequence
        return sequence

    def abort(self, id: Hashable) -> bool:
        """Drop a sequence; its KV is free at once, or at the end of the step under way. False: unknown."""
        sequence = self._sequences.pop(id, None)
        if sequence is None:
            return False
        if sequence.phase is Phase.WAITING:
            del self._waiting[sequence.no]
            sequence.phase = Phase.ABORTED
        elif self._step is None:
            self._release(sequence, Phase.ABORTED)
        else:
            self._aborting.append(sequence)
        return True

    def begin(self, now: float) -> float | None:
        """Compose a batch and start it; returns when it ends, or None when there is nothing to do.

        Raises:
            ValueError: a step is under way.
        """
        if self._step is not None:
            raise ValueError("a step is under way")
        preempted = self._make_room()
        decode_seqs = self._decoding
        self._held += decode_seqs
        self._written += decode_seqs
        chunks: list[Sequence] = []
        budget = self.config.step_tokens - decode_seqs
        left = self._continue_prefill(budget, chunks)
        if not preempted:
            left = self._admit(left, chunks, now)
        if not chunks and not decode_seqs:
            return None
        prefill_tokens = budget - left
        duration = self._duration(prefill_tokens, decode_seqs)
        self.busy_s += duration
        ends_at = max(now, self.stalled_until) + duration
        self._step = Step(now, ends_at, prefill_tokens, decode_seqs, chunks, preempted)
        return ends_at

    def complete(self, now: float) -> StepResult:
        """End the step under way: tokens leave, answers end, KV of the finished is free.

        Raises:
            ValueError: no step is under way.
        """
        step = self._step
        if step is None:
            raise ValueError("no step is under way")
        self._step = None
        self._decode_steps += 1
        self.generation_tokens_total += step.decode_seqs
        for sequence in self._aborting:
            self._release(sequence, Phase.ABORTED)
        self._aborting.clear()
        result = StepResult(now, step)
        self._finish_decodes(result)
        for sequence in step.chunks:
            if sequence.phase is Phase.PREFILL and sequence.prefilled == sequence.to_prefill:
                self._end_prefill(sequence, result)
        return result

    def _duration(self, prefill_tokens: int, decode_seqs: int) -> float:
        noise = 1.0 if self._noise is None else self._noise()
        return self.slow * noise * self.config.step_s(prefill_tokens, decode_seqs, self._written)

    def _make_room(self) -> list[Sequence]:
        """Preempt the last admitted until each decoding sequence can take one more token."""
        preempted = []
        while self._held + self._decoding > self.config.kv_capacity_tokens:
            victim = next(reversed(self._running.values()))
            generated = self.generated(victim)
            self._release(victim, Phase.WAITING)
            victim.generated_before = generated
            victim.to_prefill = victim.prompt_tokens + generated
            victim.prefilled = 0
            victim.preemptions += 1
            self._sequences[victim.id] = victim
            self._waiting[victim.no] = victim
            self._waiting.move_to_end(victim.no, last=False)
            self.preemptions_total += 1
            preempted.append(victim)
        return preempted

    def _continue_prefill(self, budget: int, chunks: list[Sequence]) -> int:
        for sequence in self._prefilling.values():
            if budget == 0:
                break
            budget = self._prefill(sequence, budget, chunks)
        return budget

    def _admit(self, budget: int, chunks: list[Sequence], now: float) -> int:
        capacity = self.config.kv_capacity_tokens
        while budget and self._waiting and len(self._running) < self.config.max_num_seqs:
            head = next(iter(self._waiting.values()))
            if self._held + head.to_prefill > capacity:
                break
            del self._waiting[head.no]
            head.phase = Phase.PREFILL
            if head.scheduled_at is None:
                head.scheduled_at = max(now, head.arrived_at)
            self._running[head.no] = head
            self._prefilling[head.no] = head
            self._held += head.to_prefill
            budget = self._prefill(head, budget, chunks)
        return budget

    def _prefill(self, sequence: Sequence, budget: int, chunks: list[Sequence]) -> int:
        tokens = min(budget, sequence.to_prefill - sequence.prefilled)
        sequence.prefilled += tokens
        self._written += tokens
        chunks.append(sequence)
        return budget - tokens

    def _end_prefill(self, sequence: Sequence, result: StepResult) -> None:
        """A prefill yields one token: the first, or the next one of a sequence that was preempted."""
        del self._prefilling[sequence.no]
        sequence.phase = Phase.DECODE
        sequence.generated_before += 1
        sequence.joined = self._decode_steps
        sequence.ends = self._decode_steps + sequence.output_tokens - sequence.generated_before
        self._decoding += 1
        self.generation_tokens_total += 1
        if sequence.first_token_at is None:
            sequence.first_token_at = result.at
            self.prompt_tokens_total += sequence.prompt_tokens
            result.first.append(sequence)
        else:
            result.resumed.append(sequence)
        if sequence.ends == self._decode_steps:
            self._finish(sequence, result)
        else:
            heappush(self._ends, (sequence.ends, sequence.no, sequence))

    def _finish_decodes(self, result: StepResult) -> None:
        while self._ends and self._ends[0][0] <= self._decode_steps:
            ends, _, sequence = heappop(self._ends)
            # An entry outlives its sequence's abort or preemption: only the current one counts.
            if sequence.phase is Phase.DECODE and sequence.ends == ends:
                self._finish(sequence, result)

    def _finish(self, sequence: Sequence, result: StepResult) -> None:
        self._release(sequence, Phase.FINISHED)
        sequence.generated_before = sequence.output_tokens
        sequence.finished_at = result.at
        self._sequences.pop(sequence.id, None)
        result.finished.append(sequence)

    def _release(self, sequence: Sequence, phase: Phase) -> None:
        """Take a running sequence out of the batch and give its KV back."""
        del self._running[sequence.no]
        if sequence.phase is Phase.DECODE:
            held = sequence.to_prefill + self._decode_steps - sequence.joined
            self._decoding -= 1
            self._held -= held
            self._written -= held
        else:
            del self._prefilling[sequence.no]
            self._held -= sequence.to_prefill
            self._written -= sequence.prefilled
        sequence.phase = phase
