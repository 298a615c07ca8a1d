"""Every limit algorithm that is found keeps the same promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.limits.base import Algorithm, Load, discovered
from admission.core.model import Why

ALGORITHMS = list(discovered().values())
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.name)

loads = st.builds(
    Load,
    used=st.integers(0, 10**7),
    in_flight=st.integers(0, 2_000),
    untracked=st.integers(0, 10**6),
    refused_for_limit=st.booleans(),
    refused_for_other=st.booleans(),
    excess=st.one_of(st.none(), st.floats(-100.0, 1.0)),
    congested=st.one_of(st.none(), st.just(Why("busy"))),
    kv_hot=st.booleans(),
    mean_cost=st.floats(1.0, 1e5),
    frozen=st.booleans(),
)


def test_the_default_and_the_static_limit_are_found() -> None:
    """Discovery works without a list of names."""
    assert {"aimd", "fixed"} <= set(discovered())


@every_algorithm
def test_it_builds_without_settings_and_names_itself(algorithm: Algorithm) -> None:
    """Empty configuration works; the name is what configuration says."""
    limit = algorithm.build(algorithm.config())
    assert limit.name == algorithm.name == algorithm.config().algorithm
    assert limit.value >= 1


@every_algorithm
@given(history=st.lists(loads, max_size=60))
def test_it_is_never_below_one_and_every_move_has_a_reason(algorithm: Algorithm, history: list[Load]) -> None:
    """A limit of zero never recovers; a silent change cannot be explained to anybody."""
    limit = algorithm.build(algorithm.config())
    for second, load in enumerate(history):
        before = limit.value
        why = limit.on_tick(load, float(second))
        assert limit.value >= 1
        assert (why is not None) == (limit.value != before)


@every_algorithm
@given(load=loads)
def test_frozen_means_still(algorithm: Algorithm, load: Load) -> None:
    """Without a signal, or when shadow and reality differ, nothing moves."""
    limit = algorithm.build(algorithm.config())
    load.frozen = True
    before = limit.value
    assert limit.on_tick(load, 1.0) is None
    assert limit.value == before


@every_algorithm
@given(value=st.integers(-5, 10**15))
def test_an_override_leaves_it_at_least_one(algorithm: Algorithm, value: int) -> None:
    """Operators mistype."""
    limit = algorithm.build(algorithm.config())
    limit.override(value)
    limit.after_outage()
    limit.reconfigure(algorithm.config())
    assert limit.value >= 1
