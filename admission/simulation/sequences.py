"""What an engine model is made of: its costs and bounds, a sequence in it, and the steps that it takes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from math import sqrt


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
    never_preempts: bool = False
    """Admit only what fits at the peak that the batch will reach, as lightllm does, instead of preempting later."""
    prefill_every: int = 0
    """Prompts are prefilled whole in steps that no decode shares, at the earliest after so many decode steps, as in lightllm
    and S-LoRA (10); 0: in chunks that share their steps with decodes."""
    ahead: bool = False
    """A batch is composed while the one before runs (vLLM's async scheduling): who comes during a step waits one more."""
    overhead_s: float = 0.0
    """From a request's arrival at the server to its place in the queue (HTTP, tokenizer): its driver submits that much later."""

    def __post_init__(self) -> None:
        """Raise ValueError when no step could ever run."""
        if self.base_s <= 0 or min(self.prefill_s_per_token, self.decode_s_per_sequence) < 0:
            raise ValueError("base_s must be positive, and no cost negative")
        if self.kv_s_per_token < 0 or self.kv_capacity_tokens < 1:
            raise ValueError("kv_s_per_token must not be negative and kv_capacity_tokens at least 1")
        if min(self.overhead_s, self.prefill_every) < 0:
            raise ValueError("overhead_s and prefill_every must not be negative")
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
    cached_tokens: int = 0
    """Leading prompt tokens that a warm prefix cache serves."""
    shared_tokens: int = 0
    """Of those, the ones that a warm cache holds for all who share the prefix."""
    prefix: str = ""
    prefilled: int = 0
    shared: int = 0
    """Tokens of its context that it holds together with others, now that it runs."""
    hit_tokens: int = 0
    """What the prefix cache served when it was first admitted."""
    generated_before: int = 0
    joined: int = 0
    ends: int = 0
    ready: int = 0
    """Number of the first batch that may take it in."""
    phase: Phase = Phase.WAITING
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    preemptions: int = 0


@dataclass(slots=True)
class Step:
    """A batch under way: one step, or a run of `steps` pure decode steps, each `growth_s` longer than the last.

    `first_s` is how long the first of them takes. With step noise `ends` has the end of each instead.
    """

    started_at: float
    ends_at: float
    prefill_tokens: int
    decode_seqs: int
    chunks: list[Sequence]
    preempted: list[Sequence]
    first_s: float = 0.0
    steps: int = 1
    growth_s: float = 0.0
    ends: list[float] | None = None

    def end_of(self, steps: int) -> float:
        """When that many steps of the run have ended."""
        if self.ends is not None:
            return self.ends[steps - 1]
        return self.started_at + steps * self.first_s + self.growth_s * (steps * (steps - 1) * 0.5)

    def ended_by(self, now: float) -> int:
        """Steps of the run that have ended by then, the last one never counted."""
        done = self._guess(now)
        # The guess may be one off at a boundary: floats decide by the same sum that tells the ends.
        while done < self.steps - 1 and self.end_of(done + 1) <= now:
            done += 1
        while done > 0 and self.end_of(done) > now:
            done -= 1
        return done

    def _guess(self, now: float) -> int:
        elapsed_s = now - self.started_at
        if self.ends is not None or elapsed_s <= 0:
            return 0
        slope = self.first_s - 0.5 * self.growth_s
        steps = 2.0 * elapsed_s / (slope + sqrt(slope * slope + 2.0 * self.growth_s * elapsed_s))
        return min(int(steps), self.steps - 1)


@dataclass(slots=True)
class StepResult:
    """What a step yielded. `first` and `resumed` got a token from their prefill, all that decode got one each."""

    at: float
    step: Step
    first: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)
