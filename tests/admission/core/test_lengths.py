"""Answers' lengths, also while the long ones run still."""

from __future__ import annotations

import pytest

from admission.core.lengths import Lengths

EVEN = [(no + 0.5) / 200 for no in range(200)]


def test_nothing_is_drawn_before_some_have_ended() -> None:
    """A guess from two answers is worse than the configured one."""
    lengths = Lengths()
    lengths.made(0, 500)
    assert lengths.draw(0, 0.5) is None


def test_draws_are_spread_as_what_ended() -> None:
    """The mean decides how long what is admitted holds its place."""
    lengths = Lengths()
    for no in range(200):
        tokens = 50 if no % 2 else 450
        for before in range(0, tokens, 10):
            lengths.made(before, before + 10)
        lengths.ended(tokens)
    drawn = [lengths.draw(0, share) or 0.0 for share in EVEN]
    assert sum(drawn) / len(drawn) == pytest.approx(250, rel=0.2)
    assert sum(length < 100 for length in drawn) / len(drawn) == pytest.approx(0.5, abs=0.1)


def test_those_that_run_still_lengthen_the_draw() -> None:
    """When only the short half has ended, the mean of what ended is far too low."""
    lengths = Lengths()
    for no in range(100):
        tokens = 50 if no % 2 else 400
        for before in range(0, tokens, 10):
            lengths.made(before, before + 10)
        if no % 2:
            lengths.ended(tokens)
    drawn = [lengths.draw(0, share) or 0.0 for share in EVEN]
    assert sum(length > 100 for length in drawn) / len(drawn) == pytest.approx(0.5, abs=0.1)


def test_what_was_made_already_is_never_undone() -> None:
    """A draw for one under way is over what it has, also past all that was ever seen."""
    lengths = Lengths()
    for _ in range(20):
        lengths.made(0, 100)
        lengths.ended(100)
    assert all((lengths.draw(made, 0.3) or 0.0) > made for made in (0, 60, 99, 5_000))
