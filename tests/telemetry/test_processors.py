"""Seen, lateness, primaries and binding, each on its own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.config import TargetBinding
from telemetry.processors.binding import MAX_CACHED, Binder
from telemetry.processors.dedupe import Seen
from telemetry.processors.lateness import MAX_SENDERS, Lateness
from telemetry.processors.primary import Primaries


def test_a_key_is_remembered_for_its_time_to_live() -> None:
    """Retries come within minutes; a key that was forgotten sooner would count twice."""
    seen = Seen(ttl_s=150.0)
    assert seen.add("a", 0.0)
    assert not seen.add("a", 149.0)
    assert not seen.add("a", 299.0)
    assert seen.add("a", 1000.0)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 10)), max_size=200))
def test_within_the_time_to_live_nothing_is_new_twice(steps: list[tuple[int, float]]) -> None:
    """Whatever the order and the pauses."""
    seen, now = Seen(ttl_s=20.0, capacity=1000), 0.0
    added: dict[int, float] = {}
    for key, pause in steps:
        now += pause
        new = seen.add(key, now)
        if key in added and now - added[key] < 20.0:
            assert not new
        if new:
            added[key] = now


def test_a_flood_of_keys_does_not_grow_the_set() -> None:
    """Memory is bounded before the time to live is."""
    seen = Seen(ttl_s=150.0, capacity=1000)
    for number in range(10_000):
        seen.add(number, 0.0)
    assert len(seen) <= 1000
    assert not seen.add(9_999, 0.0)


def test_lateness_is_a_cumulative_histogram() -> None:
    """Its largest bucket counts every span, as Prometheus wants it."""
    lateness = Lateness()
    for late_s in (0.01, 0.3, 4.0, 1000.0):
        lateness.judge("a", late_s, 0.0)
    counters = lateness.counters()
    assert counters["span_lateness_le_0.05"] == 1
    assert counters["span_lateness_le_0.5"] == 2
    assert counters["span_lateness_le_5"] == 3
    assert counters["span_lateness_le_inf"] == 4


@pytest.mark.parametrize(
    ("late_s", "word"), [(-0.04, ""), (-0.06, "ahead"), (0.0, ""), (9.0, ""), (11.0, "behind")]
)
def test_a_sender_whose_clock_is_off_is_named(late_s: float, word: str) -> None:
    """Its floor of lateness over a minute is the offset plus the shortest path."""
    lateness = Lateness()
    lateness.judge("a", late_s, 0.0)
    lateness.judge("a", late_s + 3.0, 1.0)
    warnings = lateness.warnings(2.0)
    assert [word in line and "spans of a" in line for line in warnings] == ([True] if word else [])


def test_one_punctual_span_clears_a_backlog() -> None:
    """A backlog after an outage is late; the first punctual span shows that no clock is."""
    lateness = Lateness()
    lateness.judge("a", 300.0, 0.0)
    lateness.judge("a", 0.2, 1.0)
    assert lateness.warnings(1.0) == []


def test_a_clock_that_was_corrected_is_forgiven() -> None:
    """Two minutes later the warning is gone."""
    lateness = Lateness()
    lateness.judge("a", -5.0, 0.0)
    for now in (61.0, 122.0):
        lateness.judge("a", 0.1, now)
    assert lateness.warnings(122.0) == []


def test_senders_are_bounded() -> None:
    """Instance ids are new with every process."""
    lateness = Lateness()
    for number in range(2 * MAX_SENDERS):
        lateness.judge(str(number), -1.0, 0.0)
    assert len(lateness.warnings(0.0)) == MAX_SENDERS


def test_of_two_equals_the_first_speaks() -> None:
    """Alternating between two emitters of one rank would count each request twice."""
    primaries = Primaries(silence_s=60.0)
    assert primaries.speaks("t", "vllm", 1, 0.0)
    assert not primaries.speaks("t", "sglang", 1, 1.0)
    assert primaries.speaks("other", "sglang", 1, 1.0)
    assert primaries.speaks("t", "sglang", 1, 61.0)


def bind(targets: tuple[TargetBinding, ...], resource: Mapping[str, str], model: str = "") -> str:
    """The target of a span."""
    return Binder(targets).bind(repr(resource), resource, model)


A = TargetBinding(name="a", spans={"service.name": "vllm-a"})
A2 = TargetBinding(name="a2", spans={"service.name": "vllm-a", "service.instance.id": "2"})
BY_MODEL = TargetBinding(name="m", spans={"model": "llama*"})
LLAMA = TargetBinding(name="llama", models=("llama-*",))
QWEN = TargetBinding(name="qwen", models=("qwen-*",))
ANY = TargetBinding(name="any")


@pytest.mark.parametrize(
    ("targets", "resource", "model", "target"),
    [
        ((ANY,), {}, "", "any"),
        ((A,), {"service.name": "vllm-a"}, "", "a"),
        ((A,), {"service.name": "other"}, "", ""),
        ((A, A2), {"service.name": "vllm-a", "service.instance.id": "2"}, "", "a2"),
        ((A, A2), {"service.name": "vllm-a", "service.instance.id": "3"}, "", "a"),
        ((BY_MODEL, A), {}, "llama-8b", "m"),
        ((BY_MODEL, A), {"model": "llama-8b"}, "", "m"),
        ((LLAMA, QWEN), {}, "qwen-3", "qwen"),
        ((LLAMA, QWEN), {"model": "llama-8b"}, "", "llama"),
        ((LLAMA, QWEN), {}, "", ""),
        ((LLAMA, TargetBinding(name="8b", models=("*-8b",))), {}, "llama-8b", ""),
        ((LLAMA, ANY), {}, "qwen-3", ""),
        ((A, LLAMA), {"service.name": "edge"}, "llama-8b", "llama"),
    ],
)
def test_a_span_belongs_to_at_most_one_target(
    targets: tuple[TargetBinding, ...], resource: dict[str, str], model: str, target: str
) -> None:
    """Attributes that were configured decide, then the model; what could be anybody's is nobody's."""
    assert bind(targets, resource, model) == target


def test_the_cache_of_bindings_is_bounded() -> None:
    """Models come from spans."""
    binder = Binder((LLAMA, QWEN))
    for number in range(2 * MAX_CACHED):
        binder.bind("s", {}, f"qwen-{number}")
    assert len(binder._cache) == MAX_CACHED
