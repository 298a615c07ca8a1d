"""The work bound: the rate at which an engine's steps take as long as the TPOT target allows.

With requests of p prompt and o answer tokens at rate r, and steps of t seconds, Little's law gives r*o*t sequences that
decode and r*t*o*(p + o/2) KV tokens held, hence

    t = a + t*r*w        with w = b*E[p] + c*E[o] + d*E[o*(p + o/2)], the engine's work for one request.

The bound is the largest r for which t meets the target, the KV fits, and sequences and step tokens stay under
the engine's own bounds. No queueing and no burst: what any admission can reach lies below it, by 10 to 25 % in practice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from admission.simulation.engine import EngineConfig
from admission.simulation.traces import Arrival

KV_SHARE = 0.92
"""Of the KV that can be held without preemptions: the set point of the KV forecast."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Means over requests. `held` is the KV token steps that one occupies: o * (p + o/2)."""

    prompt: float
    """Tokens that need prefill: those that the prefix cache serves do not."""
    output: float
    held: float

    @staticmethod
    def of(sizes: Iterable[Arrival]) -> Mean:
        """Over requests.

        Raises:
            StatisticsError: there are none.
        """
        rows = list(sizes)
        return Mean(
            fmean(one.prompt_tokens - one.cached_tokens for one in rows),
            fmean(one.output_tokens for one in rows),
            fmean(map(_held, rows)),
        )


def _held(one: Arrival) -> float:
    return one.output_tokens * (one.prompt_tokens - one.shared_tokens + one.output_tokens / 2)


def work_bound(engine: EngineConfig, mean: Mean, tpot_s: float) -> float:
    """Requests a second that one engine can carry at most."""
    base = engine.base_s
    work = (
        engine.prefill_s_per_token * mean.prompt
        + engine.decode_s_per_sequence * mean.output
        + engine.kv_s_per_token * mean.held
    )
    # t(r) = base / (1 - r*work) in r*t*x <= y, solved for r.
    bounds: Sequence[tuple[float, float]] = (
        (mean.held, KV_SHARE * engine.kv_capacity_tokens),
        (mean.output, engine.max_num_seqs),
        (mean.prompt + mean.output, engine.step_tokens),
    )
    slow = (1.0 - base / tpot_s) / work
    return max(0.0, min(slow, *(most / (base * each + work * most) for each, most in bounds)))


def prefill_bound(engine: EngineConfig, mean: Mean) -> float:
    """Requests a second whose prompts an engine can read that does nothing else."""
    return engine.step_tokens / engine.step_s(engine.step_tokens, 0, 0) / mean.prompt
