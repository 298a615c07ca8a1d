"""Chatbot Arena's log on an A10G: the simulator against seven measured policies, and the product against the best of them.

python -m benchmarks arena              # the figures, each held against what was measured
python -m benchmarks arena --table      # all of it as a Markdown table
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

from benchmarks.arena_runs import MEASURED, Figures, figures, measured, simulated
from benchmarks.result import Result

MOST_OFF = 0.15
LAW = "tidegate"
OURS = {
    LAW: LAW,
    **{
        f"{LAW}, order {order}": f"{LAW}:classes.interactive.order={order}"
        for order in ("fit", "newest", "slack", "cost")
    },
}
STATIC = {
    **{
        f"static, {most:,} tokens": f"fixed_tokens:limit_tokens={most},guards=false"
        for most in range(8_000, 15_000, 1_000)
    },
    **{
        f"static, {most} requests": f"fixed_requests:limit_requests={most},guards=false"
        for most in range(12, 33, 4)
    },
}
"""Static limits behind the product's queue and without its other budgets. Which is best is known only in hindsight."""
LIMITERS = {
    "saturation": "saturation",
    "AIMD on requests": "aimd_requests",
    "Vegas, by TTFT": "vegas:latency=ttft",
    "Gradient2, by TTFT": "gradient2:latency=ttft",
    "Vector ARC, by TTFT": "vector_arc:latency=ttft",
    "Envoy gradient": "envoy_gradient",
}
HEAD = (
    "| policy | measured, requests/s | simulated | error | good tokens/s, measured | simulated | TTFT p50, p90 s, measured "
    "| simulated | good / offered by size, smallest quarter first | worst client / median |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def run() -> Iterator[Result]:
    """Requests a second whose first token came within 2 s."""
    real = {name: figures(rows) for name, rows in measured().items()}
    for name, there in real.items():
        rate, off = published(name).requests_per_s, error(name, there)
        bar = f"measured {there.requests_per_s:.3f}, off {off:+.1%}"
        yield Result(f"arena, {name}, first token within 2 s", rate, "requests/s", bar, abs(off) <= MOST_OFF)
    best = max(real.values(), key=lambda one: one.requests_per_s)
    most_tokens = max(one.tokens_per_s for one in real.values())
    for name, policy in OURS.items():
        here = alone(policy)
        bar = f"over {best.requests_per_s:.3f}, the best measured"
        met = here.requests_per_s > best.requests_per_s
        yield Result(f"arena, {name}, first token within 2 s", here.requests_per_s, "requests/s", bar, met)
        bar = f"over {most_tokens:.0f}, the most measured"
        yield Result(
            f"arena, {name}, their tokens",
            here.tokens_per_s,
            "tokens/s",
            bar,
            here.tokens_per_s > most_tokens,
        )


def command(arguments: list[str]) -> int:
    """`--table`: everything as Markdown."""
    if arguments != ["--table"]:
        print("usage: python -m benchmarks arena [--table | --json]", file=sys.stderr)
        return 2
    print(HEAD)
    for name, rows in measured().items():
        print(compared(name, figures(rows), published(name)))
    for unit in ("tokens", "requests"):
        name, here = best_static(unit)
        print(line(f"best {name}, in hindsight", here))
    for name, policy in {**LIMITERS, **OURS}.items():
        print(line(name, alone(policy)))
    print(line(f"{LAW}, told each answer's length", figures(simulated(LAW, told=True))))
    return 0


@cache
def published(name: str) -> Figures:
    """The simulator's word on a measured policy, whose engine was told the length of each answer."""
    return figures(simulated(MEASURED[name], told=True))


@cache
def alone(policy: str) -> Figures:
    """What only the simulator can tell, of a policy that is not told how long answers will be."""
    return figures(simulated(policy))


def best_static(unit: str) -> tuple[str, Figures]:
    """The limit in that unit with the most requests in time."""
    runs = {name: alone(policy) for name, policy in STATIC.items() if name.endswith(unit)}
    return max(runs.items(), key=lambda run: run[1].requests_per_s)


def error(name: str, there: Figures) -> float:
    """How far the simulator is off, as a share of what was measured."""
    return published(name).requests_per_s / there.requests_per_s - 1.0


def compared(name: str, there: Figures, here: Figures) -> str:
    """A line of the table with both."""
    return (
        f"| {name} | {there.requests_per_s:.3f} | {here.requests_per_s:.3f} | {error(name, there):+.1%} "
        f"| {there.tokens_per_s:.0f} | {here.tokens_per_s:.0f} | {_ttft(there)} | {_ttft(here)} | {_rest(here)} |"
    )


def line(name: str, here: Figures) -> str:
    """A line of the table for what nobody has measured."""
    return f"| {name} | | {here.requests_per_s:.3f} | | | {here.tokens_per_s:.0f} | | {_ttft(here)} | {_rest(here)} |"


def _ttft(one: Figures) -> str:
    return f"{one.ttft_p50_s:.2f}, {one.ttft_p90_s:.2f}"


def _rest(one: Figures) -> str:
    return f"{' '.join(f'{share:.2f}' for share in one.good_by_size)} | {one.worst_over_median:.2f}"
