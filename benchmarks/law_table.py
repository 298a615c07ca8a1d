"""The comparison as tables: per scenario and policy against the best static limits, and one line for each policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from admission.simulation.scenarios import scenario
from benchmarks.law_runs import Figures
from benchmarks.law_statics import Best
from benchmarks.result import Result

NOISE = 0.02
LATE = 1.2
"""Accepted p99 TTFT over this many times the SLO is bad."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy in one scenario, over all seeds. Ratios are to the best static token budget of the same seeds."""

    scenario: str
    policy: str
    figures: Sequence[Figures]
    goodput: float
    tokens: float
    per_request_limit: float | None
    """Goodput over that of the best static request limit."""
    worst_seed: float
    noise: float
    """Half the spread of the ratio over the seeds."""
    ttft_slo_s: float

    @property
    def ttft_p99_s(self) -> float:
        """The worst seed's, outside of disturbances; infinite when nobody was served."""
        return max((_or_inf(one.ttft_p99_quiet_s) for one in self.figures), default=float("inf"))

    @property
    def late(self) -> bool:
        """Whether the mean over seeds of the accepted p99 TTFT is over 1.2 times the SLO."""
        return fmean(_or_inf(one.ttft_p99_quiet_s) for one in self.figures) > LATE * self.ttft_slo_s

    @property
    def recovery_s(self) -> float | None:
        """The slowest return after any disturbance; None without one, infinite when it did not return."""
        each = [_or_inf(s) for one in self.figures for s in one.recovery_s]
        return max(each, default=None)

    @property
    def quartiles(self) -> list[float]:
        """Served shares, the smallest requests first."""
        return [fmean(_or_zero(one.quartiles[no]) for one in self.figures) for no in range(4)]

    def mean(self, name: str) -> float:
        """The mean of a figure over seeds; none counts as 0."""
        return fmean(_or_zero(getattr(one, name)) for one in self.figures)


def cell(name: str, policy: str, by_seed: Mapping[int, Figures], tokens: Best, requests: Best | None) -> Cell:
    """Hold one policy's runs against the best static limits' with the same seeds."""
    seeds = sorted(by_seed)
    ratios = [_ratio(by_seed[seed].goodput, tokens.figures[seed].goodput) for seed in seeds]
    good_tokens = [
        _ratio(by_seed[seed].goodput_tokens, tokens.figures[seed].goodput_tokens) for seed in seeds
    ]
    return Cell(
        scenario=name,
        policy=policy,
        figures=[by_seed[seed] for seed in seeds],
        goodput=fmean(ratios),
        tokens=fmean(good_tokens),
        per_request_limit=(
            fmean(_ratio(by_seed[seed].goodput, requests.figures[seed].goodput) for seed in seeds)
            if requests
            else None
        ),
        worst_seed=min(ratios),
        ttft_slo_s=scenario(name).ttft_slo_s(),
        noise=(max(ratios) - min(ratios)) / 2,
    )


def summary(cells: Sequence[Cell]) -> dict[str, float]:
    """One policy over all scenarios."""
    ratios = [one.goodput for one in cells]
    per_request = [one.per_request_limit for one in cells if one.per_request_limit is not None]
    return {
        "mean": fmean(ratios),
        "min": min(ratios),
        "at_least_0.95": sum(ratio >= 0.95 for ratio in ratios),
        "at_least_0.97": sum(ratio >= 0.97 for ratio in ratios),
        "scenarios": len(cells),
        "late": sum(one.late for one in cells),
        "tokens": fmean(one.tokens for one in cells),
        "per_request_limit": fmean(per_request) if per_request else float("nan"),
        "accepted_ok": fmean(one.mean("accepted_ok") for one in cells),
        "ttft_p50_s": fmean(one.mean("ttft_p50_s") for one in cells),
    } | {f"served_q{no + 1}": fmean(one.quartiles[no] for one in cells) for no in range(4)}


def details(cells: Iterable[Cell]) -> Iterator[str]:
    """A Markdown table with a row for each scenario."""
    yield (
        "| scenario | goodput / best static tokens (worst seed) | good tokens / same | goodput / best static requests "
        "| goodput of offered | p99 TTFT s | accepted in SLO | recovery s | preemptions | served by size quartile |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for one in cells:
        recovery = "" if one.recovery_s is None else _seconds(one.recovery_s)
        yield (
            f"| {one.scenario} | {one.goodput:.3f} ({one.worst_seed:.3f}) | {one.tokens:.3f} | {_number(one.per_request_limit)} "
            f"| {one.mean('goodput'):.3f} | {_seconds(one.ttft_p99_s)}{' !' if one.late else ''} "
            f"| {one.mean('accepted_ok'):.2f} | {recovery} | {one.mean('preemptions'):.0f} "
            f"| {' '.join(f'{share:.2f}' for share in one.quartiles)} |"
        )


def summaries(by_policy: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """A Markdown table with a row for each policy."""
    yield (
        "| policy | mean | min | >= .95 | >= .97 | p99 late | good tokens | / best requests | accepted in SLO "
        "| p50 TTFT s | served by size quartile |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for policy, cells in by_policy.items():
        s = summary(cells)
        quartiles = " ".join(f"{s[f'served_q{no}']:.2f}" for no in range(1, 5))
        yield (
            f"| {policy} | {s['mean']:.3f} | {s['min']:.3f} | {s['at_least_0.95']:.0f}/{s['scenarios']:.0f} "
            f"| {s['at_least_0.97']:.0f}/{s['scenarios']:.0f} | {s['late']:.0f} | {s['tokens']:.3f} "
            f"| {s['per_request_limit']:.3f} | {s['accepted_ok']:.3f} | {s['ttft_p50_s']:.2f} | {quartiles} |"
        )


def side_by_side(by_policy: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """A Markdown table of goodput over the best static token budget: scenarios down, policies across."""
    policies = list(by_policy)
    yield "| scenario | " + " | ".join(policies) + " |"
    yield "|---|" + "--:|" * len(policies)
    for row in zip(*by_policy.values(), strict=True):
        each = " | ".join(f"{one.goodput:.2f}{'!' if one.late else ''}" for one in row)
        yield f"| {row[0].scenario} | {each} |"


def rivals(law: Sequence[Cell], others: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """Where another policy has more goodput than the law by more than the noise of seeds."""
    found = [
        f"- {ours.scenario}: {policy} {theirs.goodput:.3f}, the law {ours.goodput:.3f}"
        for policy, cells in others.items()
        for ours, theirs in zip(law, cells, strict=True)
        if theirs.goodput > ours.goodput + NOISE
    ]
    yield from found or ["Nowhere."]


def verdicts(results: Iterable[Result]) -> Iterator[str]:
    """A Markdown table of figures and the bars that they are held against."""
    yield "| what | figure | bar | |"
    yield "|---|--:|--:|---|"
    for one in results:
        yield f"| {one.name} | {one.value:.4g} | {one.bar} | {'' if one.met else 'missed'} |"


def _ratio(ours: float, theirs: float) -> float:
    """Where the best static limit gets nothing, nothing can be lost."""
    return ours / theirs if theirs else 1.0


def _or_inf(value: float | None) -> float:
    return float("inf") if value is None else value


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _seconds(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.2f}".rstrip("0").rstrip(".") or "0"
