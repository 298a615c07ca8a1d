"""Reads an engine's bounds off its own figures: how many sequences it runs at most, and how much KV it has."""

from __future__ import annotations

from statistics import median

from admission.simulation.calibrating.measured import CalibrationError, Measured, Recording

LEAST_RATIO, MOST_RATIO = 0.2, 0.9
"""Below, a moment says little of the capacity; above, sequences may have been preempted and hold nothing."""
LEAST_MOMENTS = 5
_FULL_KV = 0.9


def kv_capacity(recording: Recording) -> int:
    """KV tokens of each engine: as it says itself, else what its requests held over the share that was in use.

    Raises:
        CalibrationError: neither can be told.
    """
    if recording.kv_capacity_tokens:
        return recording.kv_capacity_tokens
    found = []
    for moment in recording.series:
        ratio = moment.kv_ratio
        if ratio is not None and LEAST_RATIO <= ratio <= MOST_RATIO:
            held = sum(_held(request, moment.at_s) for request in recording.requests)
            found.append(held / ratio)
    if len(found) < LEAST_MOMENTS:
        raise CalibrationError(
            f"{recording.name}: nothing tells the KV capacity; give --kv-capacity (vLLM logs `GPU KV cache size`)"
        )
    return round(median(found) / recording.engines)


def max_num_seqs(recording: Recording) -> int | None:
    """Sequences that each engine runs at most; None: the recording never came to that bound.

    It is the number that ran again and again while others waited and KV was not full.
    """
    if recording.max_num_seqs:
        return recording.max_num_seqs
    blocked = [
        moment.running
        for moment in recording.series
        if moment.waiting > 0 and (moment.kv_ratio is None or moment.kv_ratio < _FULL_KV)
    ]
    most = max(blocked, default=0)
    return most // recording.engines if blocked.count(most) >= LEAST_MOMENTS else None


def _held(request: Measured, at_s: float) -> float:
    """KV tokens that a request held then, as its times tell: the prompt from its arrival on, the answer as it grew."""
    if request.ttft_s is None or request.decode_s is None:
        return 0.0
    since_first_s = at_s - request.at_s - request.ttft_s
    if at_s < request.at_s or since_first_s < 0 or since_first_s > request.decode_s:
        return 0.0
    return request.prompt_tokens + request.output_tokens * since_first_s / max(request.decode_s, 1e-9)
