"""What good means."""

from __future__ import annotations

import pytest

from admission.core.slo import BACKGROUND_SLO, INTERACTIVE_SLO, SloConfig


def test_the_ttft_target_grows_with_the_prompt() -> None:
    """A long prompt takes longer on an idle engine too."""
    assert INTERACTIVE_SLO.ttft_for(4_000) == 3.0


@pytest.mark.parametrize(
    ("ttft", "tpot", "met"),
    [(1.0, 0.05, True), (2.5, 0.05, False), (1.0, 0.09, False), (None, 0.05, None), (1.0, None, True)],
)
def test_both_targets_must_be_met(ttft: float | None, tpot: float | None, met: bool | None) -> None:
    """An unseen TTFT is unknown, not good; an answer of one token has no TPOT."""
    assert INTERACTIVE_SLO.met(0, ttft, tpot) is met


def test_a_class_without_ttft_target_is_judged_by_tpot_alone() -> None:
    """Batch has no first token to wait for."""
    assert BACKGROUND_SLO.met(100, None, 0.1) is True


@pytest.mark.parametrize("bad", [{"ttft_s": 0.0}, {"ttft_per_1k_s": -1.0}, {"tpot_s": 0.0}])
def test_an_impossible_target_is_refused(bad: dict[str, float]) -> None:
    """A target of zero would refuse everything."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        SloConfig(**bad)
