"""A limit that nobody moves."""

from __future__ import annotations

import pytest

from admission.core.limits.base import Load
from admission.core.limits.fixed import Fixed, FixedConfig


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
