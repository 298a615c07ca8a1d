"""Continuous batching as a discrete model: which sequences share a step, how long it takes, what it yields.

Time is an argument. The caller begins a step, waits until it ends (in simulated or in real time) and completes it:

    ends_at = engine.begin(now)      # None: nothing to do
    result = engine.complete(ends_at)

Pure decode steps cost O(1): every decoding sequence gains one token a step, so one counter serves them all.
`extend` goes further: it makes the step under way a run of all decode steps until the batch can change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop
from itertools import count

from admission.simulation.batch import Batch
from admission.simulation.prefixes import Prefixes
from admission.simulation.sequences import EngineConfig, Phase, Sequence, Step, StepResult

__all__ = ["Engine", "EngineConfig", "Phase", "Sequence", "Step", "StepResult"]

NOISY_STEPS = 64
"""With step noise a run is no longer than this: each of its steps is drawn before it begins."""


class Engine(Batch):
    """FIFO admission, chunked prefill under a token budget shared with the decodes, last-admitted preempted.

    Args:
        config: costs and bounds.
        noise: factor on each step's duration, drawn once a step; None means none.
    """

    def __init__(self, config: EngineConfig, noise: Callable[[], float] | None = None) -> None:
        super().__init__(config)
        self.slow = 1.0
        self.stalled_until = float("-inf")
        self.busy_s = 0.0
        self.steps_total = 0
        self.token_at = float("-inf")
        """When the last step ended that is accounted for: all that decode got their newest token then."""
        self._noise = noise
        self._drawn: deque[float] = deque()
        self._numbers = count()
        self._step: Step | None = None
        self._prefilled_at = 0
        """Decode steps there had been when prompts were last prefilled, where that takes a step of its own."""

    def reset(self) -> list[Sequence]:
        """Lose everything, as a restart does; totals stay. Returns what was lost."""
        lost = list(self._sequences.values())
        for sequence in lost:
            sequence.phase = Phase.ABORTED
        self._sequences.clear()
        self._prefixes = Prefixes()
        self._prefixes.flush()
        self._empty()
        self._step = None
        return lost

    def flush(self) -> None:
        """Make every named prefix cold."""
        self._prefixes.flush()

    @property
    def step(self) -> Step | None:
        """The step under way."""
        return self._step

    def next_wakeup(self) -> float | None:
        """When the step (or run) under way ends, None when there is none."""
        return None if self._step is None else self._step.ends_at

    def submit(
        self,
        id: Hashable,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
        *,
        cached_tokens: int = 0,
        shared_tokens: int = 0,
        prefix: str = "",
    ) -> Sequence:
        """Put a sequence at the end of the waiting queue.

        Args:
            id: names it for `abort`.
            prompt_tokens: length of its prompt.
            output_tokens: length of its answer.
            now: seconds.
            cached_tokens: leading prompt tokens that need no prefill while `prefix` is warm; one is always computed.
            shared_tokens: of those, the ones that all sequences with this prefix hold together.
            prefix: name of what is cached; empty: always warm.

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
        if cached_tokens:
            sequence.cached_tokens = min(cached_tokens, prompt_tokens - 1)
            sequence.shared_tokens = min(shared_tokens, sequence.cached_tokens)
        sequence.prefix = prefix
        if not self._waiting and len(self._running) < self.config.max_num_seqs:
            # It may join the next step.
            self.cut(now)
        if self.config.ahead and self._step is not None:
            sequence.ready = self._batches + 2
        self._sequences[id] = sequence
        self._waiting[sequence.no] = sequence
        return sequence

    def abort(self, id: Hashable, now: float = float("-inf")) -> bool:
        """Drop a sequence; its KV is free at once, or at the end of the step under way. False: unknown.

        `now` is needed when runs are used (`extend`): the run ends with its step of then.
        """
        sequence = self._sequences.pop(id, None)
        if sequence is None:
            return False
        self.cut(now)
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
        self._batches += 1
        chunks: list[Sequence] = []
        if self.config.prefill_every:
            prefill_tokens = self._prefill_apart(chunks, now)
            if chunks:
                # Prompts read nobody's KV but their own.
                return self._start(now, Step(now, now, prefill_tokens, 0, chunks, []), prefill_tokens)
        decode_seqs = self._decoding
        preempted: list[Sequence] = []
        if self._held + decode_seqs > self.config.kv_capacity_tokens:
            preempted = self._make_room()
            decode_seqs = self._decoding
        self._held += decode_seqs
        self._written += decode_seqs
        budget = left = self.config.step_tokens - decode_seqs
        if not self.config.prefill_every:
            if self._prefilling:
                left = self._continue_prefill(left, chunks)
            if self._waiting and not preempted:
                left = self._admit(left, chunks, now)
        if not chunks and not decode_seqs:
            return None
        return self._start(now, Step(now, now, budget - left, decode_seqs, chunks, preempted), self._written)

    def _prefill_apart(self, chunks: list[Sequence], now: float) -> int:
        """Whole prompts for a step of their own, if one is due; returns their tokens."""
        if self._decoding and not self._prefilling and self._until_prefill() > 0:
            return 0
        budget = left = self.config.step_tokens
        if self._prefilling:
            left = self._continue_prefill(left, chunks)
        if self._waiting:
            left = self._admit(left, chunks, now)
        if chunks:
            self._prefilled_at = self.decode_steps
        return budget - left

    def _until_prefill(self) -> int:
        """Decode steps that must still come before prompts get a step."""
        return self.config.prefill_every - (self.decode_steps - self._prefilled_at)

    def _start(self, now: float, step: Step, kv_tokens: int) -> float:
        step.first_s = duration = self._duration(step.prefill_tokens, step.decode_seqs, kv_tokens)
        self.busy_s += duration
        step.ends_at = max(now, self.stalled_until) + duration
        self._step = step
        return step.ends_at

    def extend(self) -> float | None:
        """Make the step under way a run of decode steps until the batch can change; returns when that ends.

        What changes the batch meanwhile (`submit`, `abort`, `cut`) ends the run with the step under way then.
        """
        step = self._step
        if step is None:
            return None
        changes = step.chunks or step.preempted or self._aborting or step.steps > 1
        if changes or step.started_at < self.stalled_until or self._may_admit_soon():
            return step.ends_at
        free = self.config.kv_capacity_tokens - self._held
        steps = min(self._steps_to_finish(), 1 + free // step.decode_seqs)
        if self.config.prefill_every and self._waiting and (left := self._until_prefill()) > 0:
            steps = min(steps, left)
        if steps > 1:
            self._run_on(step, steps)
        return step.ends_at

    def _may_admit_soon(self) -> bool:
        """May time alone let the head of the queue in, without an end that makes room?"""
        if not self._waiting:
            return False
        # The peak with the head in it sinks with each step that the others are ahead of it.
        return self.config.never_preempts or next(iter(self._waiting.values())).ready > self._batches

    def _steps_to_finish(self) -> int:
        ends = self._ends
        while True:
            at, _, sequence = ends[0]
            if sequence.phase is Phase.DECODE and sequence.ends == at:
                return at - self.decode_steps
            heappop(ends)

    def _run_on(self, step: Step, steps: int) -> None:
        if self._noise is None:
            step.steps = steps
            step.growth_s = self.slow * self.config.kv_s_per_token * step.decode_seqs
            step.ends_at = step.end_of(steps)
            return
        step.steps = min(steps, NOISY_STEPS)
        step.ends = [step.ends_at]
        while len(self._drawn) < step.steps - 1:
            self._drawn.append(self._noise())
        for later in range(1, step.steps):
            held = self._written + later * step.decode_seqs
            cost_s = self.slow * self.config.step_s(0, step.decode_seqs, held)
            step.ends.append(step.ends[-1] + cost_s * self._drawn[later - 1])
        step.ends_at = step.ends[-1]

    def catch_up(self, now: float) -> None:
        """Account for the steps of a run that have ended by now: tokens, KV and time are as of then."""
        step = self._step
        if step is None or step.steps == 1 or now < step.started_at + step.first_s:
            return
        done = step.ended_by(now)
        if done:
            self._account(step, done)

    def _account(self, step: Step, done: int) -> None:
        """Take `done` ended steps off the front of a run; the one after them is under way."""
        tokens = done * step.decode_seqs
        self._batches += done
        self.decode_steps += done
        self.steps_total += done
        self.generation_tokens_total += tokens
        self._held += tokens
        self._written += tokens
        ended_at = step.end_of(done)
        self.busy_s += ended_at - step.started_at - step.first_s
        if step.ends is not None:
            step.ends = step.ends[done:]
            for _ in range(done):
                self._drawn.popleft()
            step.first_s = step.ends[0] - ended_at
        else:
            step.first_s += done * step.growth_s
        self.busy_s += step.first_s
        step.started_at = self.token_at = ended_at
        step.steps -= done

    def cut(self, now: float) -> float | None:
        """End the run under way with its step of now, whose length stays as it is; returns when that ends."""
        step = self._step
        if step is None:
            return None
        if step.steps > 1:
            self.catch_up(now)
            step.ends_at = step.end_of(1)
            step.steps = 1
        return step.ends_at

    def complete(self, now: float) -> StepResult:
        """End the step (or run) under way: tokens leave, answers end, KV of the finished is free.

        Raises:
            ValueError: no step is under way.
        """
        step = self._step
        if step is None:
            raise ValueError("no step is under way")
        if step.steps > 1:
            self._account(step, step.steps - 1)
        self._step = None
        self.token_at = now
        self.steps_total += 1
        if step.decode_seqs:
            self.decode_steps += 1
        self.generation_tokens_total += step.decode_seqs
        if self._aborting:
            for sequence in self._aborting:
                self._release(sequence, Phase.ABORTED)
            self._aborting.clear()
        result = StepResult(now, step, [], [], [])
        if self._ends and self._ends[0][0] <= self.decode_steps:
            self._finish_decodes(result)
        for sequence in step.chunks:
            if sequence.phase is Phase.PREFILL and sequence.prefilled == sequence.to_prefill:
                self._end_prefill(sequence, result)
        return result

    def _duration(self, prefill_tokens: int, decode_seqs: int, kv_tokens: int) -> float:
        cost_s = self.slow * self.config.step_s(prefill_tokens, decode_seqs, kv_tokens)
        if self._noise is None:
            return cost_s
        return cost_s * (self._drawn.popleft() if self._drawn else self._noise())
