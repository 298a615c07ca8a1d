"""The answer in sentences is the answer in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from admission.simulation.saying import document, sentences
from admission.simulation.study import BEST_STATIC, Findings
from admission.simulation.sweep import Score, Sweep


@dataclass
class Verdict:
    """A report with nothing but what the sentences look at."""

    goodput_requests_ratio: float
    goodput_tokens_ratio: float = 0.5

    def as_json(self) -> dict[str, float]:
        """As a report does."""
        return {"goodput_requests_ratio": self.goodput_requests_ratio}


@dataclass
class Ran:
    """A run."""

    label: str
    report: Verdict
    load: float = 1.0
    seed: int = 0
    timeline: None = None


def found(sweeps: Any = (), seeds: tuple[int, ...] = (0,), **ratios: tuple[float, ...]) -> Findings:
    """Findings of these ratios by policy, one for each seed."""
    runs: Any = tuple(
        Ran(label.replace("_", " "), Verdict(value), seed=seed)
        for label, values in ratios.items()
        for seed, value in zip(seeds, values, strict=True)
    )
    return Findings(runs, seeds, (1.0,), dict(sweeps))


def test_what_it_would_have_been_worth() -> None:
    """The question of the SRE, in points."""
    (said,) = sentences(found(none=(0.25,), tidegate=(0.75,)), None)

    assert said == "With Tidegate 75.0 % of the requests are good, without it 25.0 % (+50.0 points)."


def test_no_difference_is_called_so() -> None:
    """An engine with room does not need us, and must not be sold something."""
    (said,) = sentences(found(none=(0.999,), tidegate=(0.997,)), None)

    assert "no difference" in said


def test_hindsight_is_told_with_the_share_that_each_reached() -> None:
    """One budget for all seeds, and how near everybody came."""
    sweeps = {1.0: Sweep({1_000: Score(0.4, 0.4), 2_000: Score(0.8, 0.8), 4_000: Score(0.5, 0.5)}, 2_000)}
    findings = found(sweeps, (0, 1), vegas=(0.3, 0.5), best_static=(0.8, 0.8))
    (said,) = sentences(findings, None)

    assert BEST_STATIC in findings.labels()
    assert "best of 3 static budgets in hindsight is 2,000 tokens, one for all 2 seeds" in said
    assert said.endswith("vegas 0.500.")
    assert "largest" not in said


def test_a_best_at_the_edge_is_told() -> None:
    """Then the size hardly matters, and nobody should copy the figure."""
    sweeps = {1.0: Sweep({1_000: Score(0.4, 0.4), 2_000: Score(0.8, 0.8)}, 2_000)}
    (said,) = sentences(found(sweeps, vegas=(0.4,), best_static=(0.8,)), None)

    assert "largest tried" in said


def test_nothing_good_in_hindsight_divides_by_nothing() -> None:
    """An engine that no budget can save is an answer too."""
    sweeps = {1.0: Sweep({1_000: Score(0.0, 0.0), 2_000: Score(0.0, 0.0)}, 1_000)}
    (said,) = sentences(found(sweeps, vegas=(0.0,), best_static=(0.0,)), None)

    assert said.endswith("1,000 tokens.")


def test_rivals_are_compared_in_requests_and_in_tokens() -> None:
    """A gain in requests that is paid in tokens must be seen."""
    findings = found(seeds=(0, 1, 2), a=(0.5, 0.6, 0.7), b=(0.6, 0.71, 0.79))
    said = list(sentences(findings, ("a", "b")))

    assert said[0].startswith("b is better than a: goodput in requests 70.0 % with b, 60.0 % with a")
    assert said[1].startswith("No difference beyond the noise over 3 seeds: goodput in tokens")


def test_the_document_has_every_figure_once() -> None:
    """Programs read this; a key that moves breaks them."""
    findings = found(seeds=(0, 1), a=(0.5, 0.6), b=(0.6, 0.7))
    shown = document(findings, {"engine": "x"}, ("a", "b"))

    assert shown["about"] == {"engine": "x"}
    assert [run["policy"] for run in shown["runs"]] == ["a", "a", "b", "b"]
    assert shown["seeds"] == [0, 1]
    assert shown["comparisons"][0]["difference"] > 0
    assert len(shown["sentences"]) == 2
    assert shown["sweeps"] == []
