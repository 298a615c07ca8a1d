"""A limit that nobody moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.core.limits.base import Load
from admission.core.limits.fixed import Fixed, FixedConfig
from admission.core.model import Admitted, Queued
from admission.vocabulary import PriorityClass
from tests.admission.core.bench import Bench, only, some


def test_only_an_operator_moves_it() -> None:
    """That is the point of it."""
    fixed = Fixed(FixedConfig(limit_tokens=10))
    fixed.after_outage()
    assert fixed.value == 10
    fixed.override(0)
    assert fixed.value == 1
    assert fixed.on_tick(Load(frozen=True), 1.0) is None
    why = fixed.on_tick(Load(), 2.0)
    assert why is not None
    assert fixed.value == 10
    assert fixed.on_tick(Load(), 3.0) is None
    fixed.reconfigure(FixedConfig(limit_tokens=7))
    assert fixed.value == 7


def test_what_is_saved_is_what_was_chosen() -> None:
    """An operator's other value ends with the process."""
    fixed = Fixed(FixedConfig(limit_tokens=10))
    fixed.override(99)
    assert fixed.good == 10


def test_zero_is_refused() -> None:
    """A limit of zero can never recover."""
    with pytest.raises(ValueError, match="limit_tokens"):
        FixedConfig(limit_tokens=0)
    with pytest.raises(ValueError, match="limit_requests"):
        FixedConfig(limit_requests=0)


def test_a_limit_in_requests_counts_them_whatever_they_cost() -> None:
    """Three tiny ones fill it, a fourth waits until one has ended, and new settings count at once."""
    bench = Bench(limit=FixedConfig(limit_tokens=1_000_000, limit_requests=3))
    running = [bench.admit(prompt_tokens=1, max_tokens=1) for _ in range(3)]
    waiting = only(Queued, bench.submit(prompt_tokens=1, max_tokens=1)).ticket
    assert some(Admitted, bench.finish(running[0]))[0].ticket is waiting
    bench.core.reconfigure(replace(bench.config, limit=FixedConfig(limit_requests=4)), bench.now)
    bench.admit(prompt_tokens=1, max_tokens=1)


def test_a_less_urgent_class_leaves_room_in_requests_too() -> None:
    """Of ten places batch takes seven, as it takes seven tenths of the tokens; of one place it takes that one."""
    bench = Bench(limit=FixedConfig(limit_tokens=1_000_000, limit_requests=10))
    for _ in range(7):
        bench.admit(priority=PriorityClass.BATCH, prompt_tokens=1, max_tokens=1)
    only(Queued, bench.submit(priority=PriorityClass.BATCH, prompt_tokens=1, max_tokens=1))
    bench.admit(prompt_tokens=1, max_tokens=1)
    alone = Bench(limit=FixedConfig(limit_requests=1))
    alone.admit(priority=PriorityClass.INTERNAL, prompt_tokens=1, max_tokens=1)
