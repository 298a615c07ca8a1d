"""What is going to be run, told to people in a line each: the engine, its capacity, the SLO, what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from admission.core.slo import SloConfig
from admission.simulation.engines import Calibration
from admission.simulation.survey import Survey, line_of
from admission.simulation.workload import Kind, Traffic
from admission.vocabulary import PriorityClass


def source_name(traffic: Traffic) -> str:
    """The source as people know it: a file without its folder."""
    if traffic.kind is Kind.SHIPPED:
        return traffic.name.removesuffix(".csv.gz")
    return Path(traffic.name).name if traffic.kind is Kind.TRACE else traffic.name


def too_large_line(traffic: Traffic, engine: Calibration, survey: Survey) -> str:
    """The first request that the KV of the engine can never hold, its row and its size."""
    assert survey.first_too_large is not None  # noqa: S101 - asked for only when there is one
    number, arrival = survey.first_too_large
    place = f"request {number}"
    if traffic.kind is Kind.TRACE and traffic.window is None and traffic.factor == 1.0:
        place = f"row {line_of(Path(traffic.name), number)}"
    return (
        f"{source_name(traffic)}: {place} needs {arrival.prompt_tokens:,} + {arrival.output_tokens:,} tokens, and {engine.name} "
        f"has KV for {engine.config.kv_capacity_tokens:,}; {survey.too_large:,} of {survey.requests:,} requests are too "
        f"large (--refuse-too-large simulates the rest)"
    )


def engine_line(engine: Calibration, replicas: int) -> str:
    """The engine for people."""
    config = engine.config
    what = ", ".join(text for text in (engine.model, engine.hardware) if text)
    return (
        f"{f'{replicas} engines' if replicas > 1 else 'engine'} {engine.name}{f' ({what})' if what else ''}: KV for {config.kv_capacity_tokens:,} tokens, "
        f"{config.max_num_seqs} sequences, {config.step_tokens:,} tokens a step"
    )


def capacity_line(capacity_per_s: float, survey: Survey) -> str:
    """What the engines could do at best, and what is asked of them."""
    if not capacity_per_s:
        return "at no rate can it keep to the TPOT target"
    share = survey.rate_per_s / capacity_per_s
    return (
        f"it can carry at most {capacity_per_s:.1f} such requests a second (no bursts, no queueing); "
        f"{share:.2g} times that is offered"
    )


def slo_line(slos: Mapping[PriorityClass, SloConfig]) -> str:
    """What a good answer is, for people."""
    slo = slos[PriorityClass.INTERACTIVE]
    first = "" if slo.ttft_s is None else f"first token within {slo.ttft_s:g} s"
    if first and slo.ttft_per_1k_s:
        first += f" + {slo.ttft_per_1k_s:g} s per 1,000 prompt tokens"
    return f"good: served whole, {first}{', ' if first else ''}then {1e3 * slo.tpot_s:g} ms a token at most"
