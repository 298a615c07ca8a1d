"""The saturation detector scores as published."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.model import Reading
from admission.simulation.policies.saturation import Saturation, SaturationConfig
from admission.vocabulary import SignalKind, Source

AT = 100.0
"""Now, in the published cases."""


def told(pods: list[tuple[float, float, float]], **settings: Any) -> Saturation:
    """Members by (queue, KV share, age of their last word in seconds); thresholds of the published cases: 5, 0.9, 100 ms."""
    settings = {"kv_ratio": 0.9, "stale_s": 0.1, **settings}
    detector = Saturation(SaturationConfig(**settings))
    for no, (waiting, kv_ratio, age_s) in enumerate(pods):
        say(detector, AT - age_s, waiting, kv_ratio, f"pod{no}")
    return detector


def say(detector: Saturation, at: float, waiting: float, kv_ratio: float, member: str = "") -> None:
    """One scrape of one member."""
    detector.on_reading(Reading(SignalKind.WAITING, waiting, at, Source.SCRAPE, member))
    detector.on_reading(Reading(SignalKind.KV_USAGE_RATIO, kv_ratio, at, Source.SCRAPE, member))


@pytest.mark.parametrize(
    ("pods", "fullness"),
    [
        ([], 1.0),
        ([(2, 0.5, 0.0)], 0.5 / 0.9),
        ([(1, 0.1, 0.2)], 1.0),
        ([(10, 0.1, 0.0)], 2.0),
        ([(1, 0.95, 0.0)], 0.95 / 0.9),
        ([(1, 0.1, 0.0), (0, 0.2, 0.0)], (0.2 + 0.2 / 0.9) / 2),
        ([(1, 0.1, 0.0), (0, 0.2, 0.3)], 0.6),
        ([(1, 0.1, 0.0), (15, 0.2, 0.0)], 1.6),
        ([(1, 0.1, 0.2), (20, 0.2, 0.0), (1, 0.99, 0.0)], (1.0 + 4.0 + 1.1) / 3),
        ([(5, 0.1, 0.0)], 1.0),
        ([(1, 0.1, 0.101)], 1.0),
    ],
)
def test_fullness_is_as_published(pods: list[tuple[float, float, float]], fullness: float) -> None:
    """TestDetector_Saturation of llm-d/llm-d-inference-scheduler
    pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization/detector_test.go.
    """
    assert told(pods).fullness(AT) == pytest.approx(fullness, abs=1e-4)


def test_the_defaults_are_the_published_ones() -> None:
    """README.md beside that file: 5 waiting, 0.8 of the KV cache, 200 ms."""
    config = SaturationConfig()
    assert (config.queue_depth, config.kv_ratio, config.stale_s) == (5, 0.8, 0.2)


@pytest.mark.parametrize(
    ("waiting", "kv_ratio", "is_open"), [(4, 0.5, True), (5, 0.5, False), (0, 0.8, False)]
)
def test_the_gate_is_open_below_one_and_shut_at_it(waiting: float, kv_ratio: float, is_open: bool) -> None:
    """Head-of-line blocking of pkg/epp/flowcontrol/controller/internal/processor.go: nothing goes at 1 and above."""
    detector = told([(waiting, kv_ratio, 0.0)], kv_ratio=0.8)
    detector.on_tick(AT)
    assert (detector.limit > 0) is is_open


def test_an_answer_after_silence_opens_the_gate_again() -> None:
    """Stale is not for ever: the next scrape counts."""
    detector = told([(0, 0.1, 0.2)])
    assert detector.fullness(AT) == 1.0
    say(detector, AT, 0, 0.1, "pod0")
    assert detector.fullness(AT) < 1.0


def test_news_ask_for_a_look_and_time_alone_does_not() -> None:
    """The gate opens by what the engine says; it must be looked at once the whole scrape was read."""
    detector = told([(0, 0.1, 0.0)])
    assert detector.next_at() == AT
    detector.on_tick(AT)
    assert detector.next_at() is None


def test_a_member_that_left_does_not_count_for_ever() -> None:
    """One that was lost a minute ago is no candidate any more."""
    detector = told([(0, 0.1, 0.0), (0, 0.1, 70.0)])
    assert detector.fullness(AT) < 0.2


@pytest.mark.parametrize(
    "settings",
    [{"queue_depth": 0}, {"kv_ratio": 0.0}, {"kv_ratio": 1.5}, {"stale_s": 0.0}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """TestUtilizationDetectorFactory of the published file refuses the same; its headroom is the router's, not the gate's."""
    with pytest.raises(ValueError, match="must"):
        SaturationConfig(**settings)
