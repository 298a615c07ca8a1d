"""What a finished permit shows: TTFT, TPOT, tokens, and whether it was good."""

from __future__ import annotations

from typing import NamedTuple

from admission.core.ledger import Permit
from admission.core.model import Completion
from admission.core.target import Target
from admission.vocabulary import Outcome

_BAD = frozenset({Outcome.ERROR, Outcome.BUSY})


def silent_tpot_s(permit: Permit, output_tokens: int | None, rate: float, now: float) -> float | None:
    """TPOT of an answer in one piece: its time less what its prompt took at the measured rate. Seconds."""
    tokens = (output_tokens or 0) // max(1, permit.ticket.n)
    decode_s = now - permit.admitted_at - permit.ahead / rate
    if permit.ticket.stream or tokens < 16 or decode_s <= 0:
        return None
    return decode_s / (tokens - 1)


class Measured(NamedTuple):
    """Seconds and tokens, None where nobody saw it."""

    engine_ttft_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    output_tokens: int | None
    good: bool | None


def measure(permit: Permit, completion: Completion, target: Target, now: float) -> Measured:
    """Put together what we saw ourselves and what the holder told."""
    engine_ttft_s = completion.engine_ttft_s
    if permit.first_token_at is not None and (permit.ahead or not permit.reinstated):
        engine_ttft_s = permit.first_token_at - permit.admitted_at
    ttft_s = None if engine_ttft_s is None else permit.waited_s + engine_ttft_s
    tokens = completion.output_tokens
    if tokens is None and permit.chunks:
        tokens = round(target.tokens(permit))
    tpot_s = _tpot_s(permit, completion, tokens)
    good = _good(permit, completion, target, ttft_s, tpot_s, now)
    return Measured(engine_ttft_s, ttft_s, tpot_s, tokens, good)


def _tpot_s(permit: Permit, completion: Completion, tokens: int | None) -> float | None:
    if tokens is not None:
        tokens //= max(1, permit.ticket.n)
    if tokens is None or tokens < 2:
        return None
    if completion.decode_s is not None:
        return completion.decode_s / (tokens - 1)
    if (
        permit.first_token_at is None
        or permit.last_chunk_at is None
        or permit.last_chunk_at <= permit.first_token_at
    ):
        return None
    return (permit.last_chunk_at - permit.first_token_at) / (tokens - 1)


def _good(
    permit: Permit,
    completion: Completion,
    target: Target,
    ttft_s: float | None,
    tpot_s: float | None,
    now: float,
) -> bool | None:
    if completion.outcome in _BAD:
        return False
    if completion.outcome is not Outcome.OK:
        return None
    slo = target.class_config(permit.ticket.priority).slo
    if ttft_s is None and not permit.ticket.stream:
        # An answer in one piece: the whole of it came at once, so its end is its first token.
        ttft_s = permit.waited_s + now - permit.admitted_at
    return slo.met(completion.prompt_tokens or permit.cost.prompt, ttft_s, tpot_s)
