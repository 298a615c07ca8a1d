"""Runs of decode steps against the same steps taken one by one, and the prefix cache's KV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.simulation.engine import Engine, EngineConfig, Phase, Sequence

SMALL = EngineConfig(
    base_s=0.01,
    prefill_s_per_token=1e-4,
    decode_s_per_sequence=1e-3,
    kv_s_per_token=1e-5,
    kv_capacity_tokens=120,
    max_num_seqs=4,
    step_tokens=32,
)
ODD_S = sqrt(2.0) * 1e-3
"""No sum of step costs is a multiple of it: nothing happens at the very end of a step."""

Happening = tuple[int, str, int, int]
"""After how many ODD_S since the one before, what, and two numbers."""

happening = st.one_of(
    st.tuples(st.integers(0, 200), st.just("submit"), st.integers(1, 60), st.integers(1, 50)),
    st.tuples(st.integers(0, 200), st.just("abort"), st.integers(0, 12), st.just(0)),
    st.tuples(st.integers(0, 200), st.just("slow"), st.integers(1, 4), st.just(0)),
    st.tuples(st.integers(0, 200), st.just("stall"), st.integers(0, 40), st.just(0)),
    st.tuples(st.integers(0, 200), st.just("look"), st.just(0), st.just(0)),
)


class Drive:
    """One engine and what happens to it, step by step or in runs."""

    def __init__(self, engine: Engine, *, runs: bool) -> None:
        self.engine = engine
        self.runs = runs
        self.now = 0.0
        self.sequences: list[Sequence] = []
        self.looks: list[tuple[int, int, int, int]] = []
        self.completed = 0

    def play(self, happenings: list[Happening]) -> Drive:
        """All of it, and on until the engine is idle."""
        at = 0.0
        for gap, what, first, second in happenings:
            at += gap * ODD_S
            self.until(at)
            self.happen(what, first, second)
        self.until(float("inf"))
        return self

    def until(self, at: float) -> None:
        """Steps that end by then."""
        while (ends_at := self.begin()) is not None and ends_at <= at:
            self.now = ends_at
            self.engine.complete(ends_at)
            self.completed += 1
        if at < float("inf"):
            self.now = at

    def begin(self) -> float | None:
        """When the step under way ends, a new one when there is none."""
        ends_at = self.engine.next_wakeup()
        if ends_at is None:
            ends_at = self.engine.begin(self.now)
            if self.runs:
                ends_at = self.engine.extend()
        return ends_at

    def happen(self, what: str, first: int, second: int) -> None:
        """One thing, now."""
        engine = self.engine
        if what == "submit":
            self.sequences.append(engine.submit(len(self.sequences), first, second, self.now))
        elif what == "abort":
            engine.abort(first, self.now)
        elif what == "slow":
            engine.cut(self.now)
            engine.slow = float(first)
        elif what == "stall":
            engine.cut(self.now)
            engine.stalled_until = self.now + first * ODD_S
        engine.catch_up(self.now)
        tokens = sum(map(engine.generated, self.sequences))
        self.looks.append((engine.kv_tokens, engine.running, engine.generation_tokens_total, tokens))


def seen(drive: Drive) -> list[tuple[float | None, ...]]:
    """What each request saw."""
    return [(one.first_token_at, one.finished_at, float(one.preemptions)) for one in drive.sequences]


def compare(
    config: EngineConfig, happenings: list[Happening], noise: Callable[[], Callable[[], float]] | None
) -> None:
    """Both ways of it."""
    steps = Drive(Engine(config, noise and noise()), runs=False).play(happenings)
    runs = Drive(Engine(config, noise and noise()), runs=True).play(happenings)
    assert runs.looks == steps.looks
    assert len(seen(runs)) == len(seen(steps))
    for one, other in zip(seen(runs), seen(steps), strict=True):
        assert one == pytest.approx(other, abs=1e-9)
    assert runs.engine.steps_total == steps.engine.steps_total == steps.completed
    assert runs.engine.preemptions_total == steps.engine.preemptions_total
    assert runs.engine.busy_s == pytest.approx(steps.engine.busy_s, abs=1e-9)
    assert not (config.never_preempts and runs.engine.preemptions_total)
    assert runs.engine.kv_tokens == runs.engine.running == runs.engine.waiting == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(happening, max_size=30), st.booleans(), st.booleans())
def test_a_run_is_its_steps(happenings: list[Happening], ahead: bool, never_preempts: bool) -> None:
    """The whole speed of the simulator rests on it: same tokens at the same times, whatever comes in between."""
    compare(replace(SMALL, ahead=ahead, never_preempts=never_preempts), happenings, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(happening, max_size=30), st.integers(0, 99))
def test_a_noisy_run_is_its_steps(happenings: list[Happening], seed: int) -> None:
    """Noise is drawn once a step in either case, so that a run that is cut short gives its draws back."""

    def noise() -> Callable[[], float]:
        random = Random(seed)
        return lambda: random.uniform(0.5, 3.0)

    compare(SMALL, happenings, noise)


def test_a_run_takes_one_event_for_many_steps() -> None:
    """Else it would be exact and useless: 500 tokens are two events."""
    config = EngineConfig()
    happenings: list[Happening] = [(0, "submit", 1_000, 501)]
    assert Drive(Engine(config), runs=True).play(happenings).completed == 2
    assert Drive(Engine(config), runs=False).play(happenings).completed == 501


def test_an_engine_that_never_preempts_waits_for_room_at_the_peak() -> None:
    """Where the other one admits and preempts later: lightllm's rule for the same two requests."""
    two: list[Happening] = [(0, "submit", 40, 40), (0, "submit", 40, 40)]
    plain = Drive(Engine(SMALL), runs=True).play(two)
    careful = Drive(Engine(replace(SMALL, never_preempts=True)), runs=True).play(two)
    assert (plain.engine.preemptions_total, careful.engine.preemptions_total) == (1, 0)
    (early,), (late,) = ([one.sequences[1].scheduled_at] for one in (plain, careful))
    assert early is not None
    assert late is not None
    assert late > early


def test_a_careful_engine_counts_that_early_ends_make_room() -> None:
    """30 + 60 and 20 + 5: at the short one's end 35 + 25 are held, at the long one's 90: both fit in 120."""
    happenings: list[Happening] = [(0, "submit", 30, 60), (0, "submit", 20, 5)]
    plain = Drive(Engine(SMALL), runs=True).play(happenings)
    careful = Drive(Engine(replace(SMALL, never_preempts=True)), runs=True).play(happenings)
    assert careful.sequences[1].scheduled_at == plain.sequences[1].scheduled_at
    assert plain.engine.preemptions_total == 0


def cached(engine: Engine, id: str, now: float, prompt: int = 30) -> Sequence:
    """A request of which 20 tokens are a shared prefix."""
    return engine.submit(id, prompt, 10, now, cached_tokens=20, shared_tokens=20, prefix="system")


def test_a_cached_prefix_costs_no_prefill_and_is_held_once() -> None:
    """Three requests that share 20 of 30 tokens: 30 tokens of prefill, 50 of KV; attention reads all 90."""
    engine = Engine(SMALL)
    for name in "abc":
        cached(engine, name, 0.0)
    engine.begin(0.0)
    step = engine.step
    assert step is not None
    assert step.prefill_tokens == 30
    assert engine.kv_tokens == 50
    assert engine.written_tokens == 90
    engine.complete(1.0)
    for name in "abc":
        engine.abort(name)
    assert (engine.kv_tokens, engine.written_tokens) == (0, 0)


def test_one_token_is_computed_even_when_all_are_cached() -> None:
    """The first output token comes of the last prompt token's step."""
    engine = Engine(SMALL)
    sequence = engine.submit("a", 30, 2, 0.0, cached_tokens=30)
    engine.begin(0.0)
    assert engine.step is not None
    assert engine.step.prefill_tokens == 1
    assert sequence.hit_tokens == 29


def test_a_flushed_prefix_is_cold_until_it_has_been_prefilled_once() -> None:
    """The storm after a flush: those that come together all pay, those that come later do not."""
    engine = Engine(replace(SMALL, kv_capacity_tokens=1_000, step_tokens=300))
    engine.flush()
    early = [cached(engine, name, 0.0) for name in "ab"]
    engine.begin(0.0)
    engine.complete(1.0)
    late = cached(engine, "c", 1.0)
    other = engine.submit("d", 30, 2, 1.0, cached_tokens=20, prefix="another")
    engine.begin(1.0)
    assert [one.hit_tokens for one in (*early, late, other)] == [0, 0, 20, 0]
    assert engine.kv_tokens == 2 * 31 + 30 + 30


def test_a_restart_makes_prefixes_cold() -> None:
    """The cache was in the memory that is gone."""
    engine = Engine(SMALL)
    engine.reset()
    sequence = cached(engine, "a", 0.0)
    engine.begin(0.0)
    assert sequence.hit_tokens == 0


sharing = st.one_of(
    st.tuples(
        st.just("submit"), st.integers(1, 40), st.integers(1, 30), st.integers(0, 30), st.sampled_from("xy")
    ),
    st.tuples(st.just("abort"), st.integers(0, 20), st.just(0), st.just(0), st.just("")),
    st.tuples(st.just("step"), st.integers(1, 8), st.just(0), st.just(0), st.just("")),
    st.tuples(st.just("flush"), st.just(0), st.just(0), st.just(0), st.just("")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(sharing, max_size=50))
def test_shared_kv_is_conserved(operations: list[tuple[str, int, int, int, str]]) -> None:
    """For any mixture: KV is what each holds alone plus each shared prefix once, and all of it comes back."""
    engine = Engine(SMALL)
    known: list[Sequence] = []
    now = 0.0
    for what, first, second, shared, prefix in operations:
        if what == "submit":
            # One length for each prefix, as a system prompt has.
            length = min(20 if prefix == "x" else 7, shared, first - 1) if first > 20 else 0
            length = length if length in (20, 7) else 0
            known.append(
                engine.submit(
                    len(known), first, second, now, cached_tokens=length, shared_tokens=length, prefix=prefix
                )
            )
        elif what == "abort":
            engine.abort(first)
        elif what == "flush":
            engine.flush()
        for _ in range(first if what == "step" else 0):
            ends_at = engine.begin(now)
            if ends_at is not None:
                now = ends_at
                engine.complete(now)
        assert engine.kv_tokens == held(engine, known) <= SMALL.kv_capacity_tokens
    while (ends_at := engine.begin(now)) is not None:
        now = ends_at
        engine.complete(now)
    assert (engine.kv_tokens, engine.written_tokens, engine.running, engine.waiting) == (0, 0, 0, 0)


def held(engine: Engine, known: list[Sequence]) -> int:
    """Recounted from the sequences."""
    running = [one for one in known if one.phase in (Phase.PREFILL, Phase.DECODE)]
    alone = sum(
        (one.to_prefill if one.phase is Phase.PREFILL else one.prompt_tokens + engine.generated(one) - 1)
        - one.shared
        for one in running
    )
    return alone + sum({one.prefix: one.shared for one in running if one.shared}.values())
