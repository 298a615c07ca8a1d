"""What a study found, in sentences: did it help, how near to the best in hindsight, and which of two is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from admission.simulation.comparing import Difference, sentence
from admission.simulation.report.document import document as report_document
from admission.simulation.study import BEST_STATIC, Findings

GOODPUT = "goodput_requests_ratio"
FIGURES = {GOODPUT: "goodput in requests", "goodput_tokens_ratio": "goodput in tokens"}
NOTHING_POINTS = 0.5
"""Fewer points than this between two single runs are called no difference."""


def sentences(findings: Findings, rivals: tuple[str, str] | None) -> Iterator[str]:
    """For each load; `rivals` are the labels of two configurations to compare."""
    for load in findings.loads:
        at = f"Load x{load:g}: " if len(findings.loads) > 1 or load != 1.0 else ""
        if rivals:
            for difference in differences(findings, rivals, load):
                yield at + sentence(difference, *rivals)
            continue
        for said in (_helped(findings, load), _hindsight(findings, load)):
            if said:
                yield at + said


def differences(findings: Findings, rivals: tuple[str, str], load: float) -> list[Difference]:
    """B - A, paired over seeds, of each figure that counts."""
    return [findings.difference(*rivals, load, figure, name) for figure, name in FIGURES.items()]


def _helped(findings: Findings, load: float) -> str:
    if not {"none", "tidegate"} <= set(findings.labels()):
        return ""
    without, with_ = _mean(findings, "none", load), _mean(findings, "tidegate", load)
    points = 100 * (with_ - without)
    if abs(points) < NOTHING_POINTS:
        return f"Tidegate makes no difference to this traffic: {100 * with_:.1f} % of the requests are good either way."
    return (
        f"With Tidegate {100 * with_:.1f} % of the requests are good, without it {100 * without:.1f} % "
        f"({points:+.1f} points)."
    )


def _hindsight(findings: Findings, load: float) -> str:
    swept = findings.sweeps.get(load)
    if swept is None:
        return ""
    said = f"The best of {len(swept.scores)} static budgets in hindsight is {swept.best_tokens:,} tokens"
    if len(findings.seeds) > 1:
        said += f", one for all {len(findings.seeds)} seeds"
    if swept.at_the_edge:
        said += " (the largest tried: its size hardly matters here)"
    best = swept.best.goodput_requests_ratio
    labels = [label for label in findings.labels() if label != BEST_STATIC]
    parts = [f"{label} {_mean(findings, label, load) / best:.3f}" for label in labels] if best else []
    return said + (f". Of its goodput in requests: {', '.join(parts)}." if parts else ".")


def _mean(findings: Findings, label: str, load: float) -> float:
    return fmean(getattr(run.report, GOODPUT) for run in findings.of(label, load))


def document(findings: Findings, facts: Mapping[str, Any], rivals: tuple[str, str] | None) -> dict[str, Any]:
    """Everything with exact figures, for programs; the same input gives the same document."""
    shown = report_document(findings.runs, facts)
    shown |= {"seeds": list(findings.seeds), "loads": list(findings.loads)}
    shown["sweeps"] = [{"load": load, **swept.as_json()} for load, swept in findings.sweeps.items()]
    shown["comparisons"] = _comparisons(findings, rivals) if rivals else []
    return shown | {"sentences": list(sentences(findings, rivals))}


def _comparisons(findings: Findings, rivals: tuple[str, str]) -> list[dict[str, Any]]:
    names = {"a": rivals[0], "b": rivals[1]}
    return [
        {"load": load, **names, **difference.as_json()}
        for load in findings.loads
        for difference in differences(findings, rivals, load)
    ]
