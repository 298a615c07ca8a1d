"""Engines that prefill whole prompts in steps of their own, as lightllm and S-LoRA do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.simulation.engine import Engine, EngineConfig, Step
from tests.admission.simulation.test_engine_runs import SMALL, Happening, compare, happening

EVERY = 10
APART = EngineConfig(
    base_s=0.01,
    prefill_s_per_token=1e-4,
    decode_s_per_sequence=1e-3,
    kv_s_per_token=1e-5,
    kv_capacity_tokens=10_000,
    max_num_seqs=50,
    step_tokens=100,
    never_preempts=True,
    prefill_every=EVERY,
)


class Bench:
    """One engine, step by step, and the steps that it took."""

    def __init__(self, config: EngineConfig = APART) -> None:
        self.engine = Engine(config)
        self.steps: list[Step] = []
        self.decoding: list[int] = []
        """Sequences that could have decoded in each."""
        self.now = 0.0

    def run(self, steps: int) -> None:
        """So many, or until it is idle."""
        for _ in range(steps):
            decoding = self.engine.decoding
            ends_at = self.engine.begin(self.now)
            if ends_at is None:
                return
            self.decoding.append(decoding)
            self.now = ends_at
            self.steps.append(self.engine.complete(ends_at).step)


@settings(max_examples=100, deadline=None)
@given(st.lists(happening, max_size=30), st.integers(1, 12), st.booleans())
def test_a_run_is_its_steps(happenings: list[Happening], every: int, never_preempts: bool) -> None:
    """A run must stop where the next prefill is due, and nowhere else."""
    compare(replace(SMALL, prefill_every=every, never_preempts=never_preempts), happenings, None)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=20)
)
def test_prompts_are_read_whole_in_steps_of_their_own(arrivals: list[tuple[int, int, int]]) -> None:
    """No decode shares such a step, no prompt is split over two, and between two of them ten decode steps are taken."""
    bench = Bench()
    for no, (steps, prompt, output) in enumerate(arrivals):
        bench.run(steps)
        bench.engine.submit(no, prompt, output, bench.now)
    bench.run(10_000)
    decodes = 0
    for step, decoding in zip(bench.steps, bench.decoding, strict=True):
        assert not (step.chunks and step.decode_seqs)
        if step.chunks:
            assert step.prefill_tokens == sum(one.prompt_tokens for one in step.chunks)
            assert decodes >= EVERY or not decoding
        decodes = 0 if step.chunks else decodes + 1
    assert bench.engine.running == bench.engine.waiting == bench.engine.preemptions_total == 0


def test_who_comes_while_others_decode_waits_for_the_tenth_step() -> None:
    """This is what a first token costs on an engine that is busy but not full."""
    bench = Bench()
    bench.engine.submit("first", 50, 100, 0.0)
    bench.run(1 + 3)
    late = bench.engine.submit("late", 50, 5, bench.now)
    bench.run(EVERY - 3)
    assert late.first_token_at is None
    bench.run(1)
    assert late.first_token_at == bench.now
    assert [len(step.chunks) for step in bench.steps] == [1, *[0] * EVERY, 1]


def test_after_ten_steps_without_anybody_the_next_goes_at_once() -> None:
    """The ten are a least distance, no clock."""
    bench = Bench()
    bench.engine.submit("first", 50, 100, 0.0)
    bench.run(1 + 25)
    bench.engine.submit("late", 50, 5, bench.now)
    bench.run(1)
    assert bench.steps[-1].prefill_tokens == 50


def test_a_prefill_step_costs_its_own_prompts_only() -> None:
    """Decodes stand still meanwhile: neither their number nor their KV counts, and they get no token."""
    bench = Bench()
    one = bench.engine.submit("first", 90, 100, 0.0)
    bench.run(1 + EVERY)
    before = bench.engine.generated(one)
    bench.engine.submit("late", 50, 5, bench.now)
    bench.run(1)
    assert bench.engine.generated(one) == before
    assert bench.steps[-1].first_s == pytest.approx(APART.step_s(50, 0, 50))


def test_a_prompt_larger_than_a_step_is_read_in_pieces() -> None:
    """It could never be read at once; decodes wait until it is."""
    bench = Bench()
    bench.engine.submit("decodes", 10, 100, 0.0)
    bench.run(1 + EVERY)
    bench.engine.submit("large", 250, 5, bench.now)
    bench.run(3)
    assert [step.prefill_tokens for step in bench.steps[-3:]] == [100, 100, 50]


def test_the_distance_cannot_be_negative() -> None:
    """Bad input is one clear line."""
    with pytest.raises(ValueError, match="prefill_every must not be negative"):
        replace(APART, prefill_every=-1)
