"""The sentence says the gravest thing that is true, why, and since when."""

from __future__ import annotations

import pytest

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard.causes import Facts
from dashboard.picture import History, Line, Picture
from dashboard.rates import Rates
from dashboard.scenes import SCENES
from dashboard.verdict import Level, judge, judge_nothing, worst
from tests.dashboard.night import facts_of


@pytest.mark.parametrize(
    ("scene", "level", "says"),
    [
        ("healthy", Level.OK, "Healthy: nobody is refused, nobody waits"),
        ("overload", Level.ACTING, "Refusing batch and interactive: "),
        ("shadow", Level.ACTING, "Shadow: nobody is refused. Enforcing would refuse batch and interactive: "),
        ("kv_critical", Level.CRITICAL, "Admission is stopped: KV usage 0.98 over critical 0.97"),
        ("gpu_lost", Level.CRITICAL, "GPU lost: H100 80GB GPU-9e21c0de…"),
        ("stale", Level.WARN, "The limit is frozen: KV usage is stale for 48 s"),
        ("starting", Level.UNKNOWN, "The engine has not answered yet"),
        ("outage", Level.CRITICAL, "The engine does not serve: all requests are refused"),
        ("off", Level.WARN, "Off: every request passes, nothing is protected"),
        ("two_targets", Level.OK, "Healthy"),
    ],
)
def test_each_state_has_its_sentence(scene: str, level: Level, says: str) -> None:
    """An operator at 3 am reads one line."""
    verdict = judge(facts_of(scene))

    assert verdict.headline.startswith(says)
    assert verdict.level == level


def test_every_scripted_state_is_judged_here() -> None:
    """A new scene without an expected sentence would go unseen."""
    judged = {case[0] for mark in test_each_state_has_its_sentence.pytestmark for case in mark.args[1]}  # type: ignore[attr-defined]
    assert judged == set(SCENES)


def test_refusals_are_told_with_numbers_cause_and_duration() -> None:
    """What, how much, why, since when, and how those admitted fare."""
    verdict = judge(facts_of("overload"))

    assert verdict.headline.split(": ")[1].endswith(" requests/s")
    assert verdict.detail.startswith("TPOT is 1.02x its SLO, which holds the limit down. Queue full ")
    assert "For 4 min." in verdict.detail
    assert "Within SLO: interactive 9" in verdict.detail


def test_silence_outranks_everything_that_was_last_seen() -> None:
    """Old good news is no news."""
    verdict = judge(facts_of("healthy", away="nobody answers at x", age_s=42.0))

    assert verdict.level == Level.CRITICAL
    assert verdict.headline == "No word from the sidecar for 42 s"
    assert "All values below are old" in verdict.detail


@pytest.mark.parametrize(("away", "level"), [("nobody answers at x", Level.CRITICAL), ("", Level.UNKNOWN)])
def test_nothing_to_look_at_says_what_to_check(away: str, level: Level) -> None:
    """The first minute of a newcomer."""
    verdict = judge_nothing(Picture(None, 0.0, away, "x"))

    assert verdict.level == level
    assert ("TIDEGATE_CONTROL_ADDRESS" in verdict.detail) is bool(away)


def _alter(_scene: str = "healthy", **changes: object) -> Facts:
    def touch(snapshot: monitor.Snapshot) -> None:
        for name, value in changes.items():
            setattr(snapshot.targets[0], name, value)

    return facts_of(_scene, touch=touch)


def test_draining_says_what_is_still_in_flight() -> None:
    """The operator waits for that number."""
    assert (
        judge(_alter(draining=True, in_flight=7)).headline
        == "Draining: new requests are refused, 7 in flight finish"
    )


def test_an_outage_in_shadow_refuses_nobody() -> None:
    """Shadow never claims an effect that it did not have."""
    verdict = judge(_alter("shadow", engine_state="outage"))

    assert verdict.headline == "Shadow: nobody is refused. Enforcing, all requests would be refused"


def test_waiting_without_refusals_is_acting_not_alarm() -> None:
    """A queue is what the sidecar is for."""

    def touch(snapshot: monitor.Snapshot) -> None:
        snapshot.targets[0].queued = 12
        snapshot.targets[0].classes[1].queued = 12
        snapshot.targets[0].used_tokens = snapshot.targets[0].limit_tokens

    verdict = judge(facts_of("healthy", touch=touch))

    assert verdict.level == Level.ACTING
    assert verdict.headline == "12 requests wait their turn, nobody is refused"
    assert verdict.detail.startswith("12 batch. The limit is full: 64k of 64k tokens")


def test_slow_without_refusals_is_a_warning() -> None:
    """We protect too little, or the SLO is too tight: a person must look."""
    facts = facts_of("healthy")
    facts.target.classes[0].ttft.p95 = 3.4
    slow = Facts(
        facts.picture, facts.target, Rates(window_s=10, admitted={"interactive": 1.0}), facts.history
    )

    verdict = judge(slow)

    assert (verdict.level, verdict.headline) == (Level.WARN, "Slow: interactive TTFT p95 3.40 s over 2.00 s")


def test_one_slow_request_among_good_ones_is_not_slow() -> None:
    """The TTFT SLO grows with the prompt: what counts is the share within SLO."""
    facts = facts_of("healthy")
    facts.target.classes[0].ttft.p95 = 3.4

    assert judge(facts).level == Level.OK


def test_a_signal_that_stopped_is_named_and_one_that_never_came_is_not() -> None:
    """A site without spans is not half blind every night."""

    def stop(snapshot: monitor.Snapshot) -> None:
        snapshot.signals[3].state = "stale"
        snapshot.signals[3].age.FromSeconds(30)

    def never(snapshot: monitor.Snapshot) -> None:
        snapshot.signals[3].state = "missing"
        snapshot.signals[3].count = 0

    assert (
        judge(facts_of("healthy", touch=stop)).headline == "requests stale for 30 s: working with less sight"
    )
    assert judge(facts_of("healthy", touch=never)).level == Level.OK


def test_signals_that_fail_together_are_told_together() -> None:
    """Seven readings of one GPU have one cause."""

    def stop(snapshot: monitor.Snapshot) -> None:
        for number, name in enumerate(("vram_used_bytes", "vram_free_bytes", "gpu_power_w")):
            signal = snapshot.signals.add(
                name=f"{name} @GPU-c41d2a90-77aa", source="nvml", state="stale", target="default"
            )
            signal.age.FromSeconds(4 + number)
        snapshot.signals.add(
            name="kv_usage_ratio @worker-2", source="scrape", state="stale", target="default"
        )

    headline = judge(facts_of("healthy", touch=stop)).headline

    assert headline.startswith(
        "3 nvml signals of GPU-c41d2a90… stale for 6 s, KV usage ratio of worker-2 stale: "
    )


def test_idle_is_said() -> None:
    """No requests is neither healthy nor ill."""
    facts = _alter(in_flight=0)
    idle = Facts(facts.picture, facts.target, Rates(window_s=10.0), facts.history)

    assert judge(idle).headline == "Idle: no requests now"


def test_at_rest_the_slowness_of_a_minute_ago_is_over() -> None:
    """Percentiles outlive the burst that they tell of."""
    facts = _alter("healthy", in_flight=0)
    facts.target.classes[0].ttft.p95 = 9.7

    assert judge(Facts(facts.picture, facts.target, Rates(window_s=10.0), facts.history)).level == Level.OK


def test_in_shadow_a_quiet_time_says_that_nothing_would_be_refused() -> None:
    """That is what one looks for before enforcing."""
    assert "enforcing would refuse nobody now" in judge(_alter(mode=types.MODE_SHADOW)).detail


@pytest.mark.parametrize(
    ("reason", "changes", "says"),
    [
        ("QUEUE_FULL", {"tpot_ratio": 1.3}, "TPOT is 1.30x its SLO"),
        ("TTFT_FORECAST", {"pending_prompt_tokens": 11_900}, "prefill is the bottleneck: 11.9k of 12k"),
        ("QUEUE_FULL", {"slots": 16, "in_flight": 16}, "all 16 sequence slots"),
        ("DEADLINE", {"used_tokens": 63_000}, "the limit is full: 63k of 64k tokens"),
        ("QUEUE_TOKENS", {}, "more prompt tokens wait than can be prefilled in time"),
        ("DEADLINE", {}, "no place was free within their patience"),
        ("NEWER_REASON", {}, "newer reason"),
        ("NEVER_FITS", {"tpot_ratio": 1.3}, "prompts larger"),
        ("NEVER_FITS", {}, "prompts larger than the engine can hold"),
        ("UNAUTHORIZED", {}, "callers without permission"),
        ("WATERMARK_VRAM", {}, "watermark VRAM"),
    ],
)
def test_the_cause_of_refusals_is_the_bottleneck(reason: str, changes: dict[str, object], says: str) -> None:
    """`Queue full` is a symptom; the page names what fills it."""
    facts = _alter("healthy", **changes)
    rates = Rates(refused={("batch", reason): 3.0}, admitted={"batch": 1.0}, window_s=10.0)

    verdict = judge(Facts(facts.picture, facts.target, rates, History()))

    assert verdict.headline == "Refusing batch: 3.0 of 4.0 requests/s"
    assert verdict.detail.lower().startswith(says.lower())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0, 0, 0, 1, 1, 1], "For 40 s"),
        ([1, 1, 1, 1, 1, 1], "For more than 101 s"),
        ([0, 1, 0, 0, 1, 1], "For 20 s"),
        ([0, 0, 0, 0, 0, 0], ""),
    ],
)
def test_since_is_the_start_of_the_present_run(values: list[float], says: str) -> None:
    """A refusal an hour ago is another story."""
    facts = facts_of("overload")
    now = facts.picture.unix_now
    line = Line([now - 20 * back for back in range(5, -1, -1)], values)
    verdict = judge(Facts(facts.picture, facts.target, facts.rates, History({"refused_per_s": line})))

    assert (
        (says.replace("101 s", "2 min").split("For ")[-1] + "." in verdict.detail)
        if says
        else "For " not in verdict.detail
    )


def test_the_worst_target_is_shown_first() -> None:
    """Of fifty targets one is on fire."""
    assert worst({"a": Level.OK, "b": Level.CRITICAL, "c": Level.WARN}) == "b"
    assert worst({"a": Level.OK, "b": Level.OK}) == "a"


@pytest.mark.parametrize("scene", sorted(SCENES))
@pytest.mark.parametrize("at", [0.0, 1.0, 361.0, 600.0, 4000.0])
def test_no_moment_is_without_a_sentence(scene: str, at: float) -> None:
    """A page that raises at 3 am shows nothing."""
    if scene == "kv_critical" and at < 361:
        return
    verdict = judge(facts_of(scene, at))

    assert verdict.headline
    assert ".." not in verdict.detail
