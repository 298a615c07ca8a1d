"""Binding of plain values to dataclasses of every shape that a component may declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from admission.config.bind import WRONG, Binder
from admission.config.document import Document


class Colour(StrEnum):
    """A closed set of texts."""

    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Checks itself, and names its fields in both usual ways."""

    low: float = 0.1
    high: float = 0.9

    def __post_init__(self) -> None:
        if self.low < 0:
            raise ValueError("low must not be negative")
        if self.low > self.high:
            raise ValueError("high: must be over low\nneed low <= high")


@dataclass(frozen=True, kw_only=True)
class Outer:
    """One field of each shape."""

    needed: int
    pair: tuple[int, str] = (1, "a")
    many: Sequence[int] = ()
    either: int | str = 1
    maybe: float | None = None
    word: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    roles: Mapping[str, tuple[Colour, ...]] = field(default_factory=dict)
    inner: Inner = field(default_factory=lambda: Inner(low=0.3))
    computed: int = field(init=False, default=5)


def bound(raw: Any) -> tuple[Any, list[str]]:
    """The value, and the mistakes as text."""
    binder = Binder(Document())
    value = binder.bind(Outer, raw, ("x",))
    return value, [str(mistake) for mistake in binder.mistakes]


def test_every_shape_is_built() -> None:
    """The classes belong to the components: whatever they declare must be writable."""
    raw = {
        "needed": 1,
        "pair": [2, "b"],
        "many": [1, 2],
        "either": "text",
        "maybe": 3,
        "word": "b",
        "colour": "RED",
        "roles": {"name": ["red"]},
        "inner": {"high": 0.8},
    }
    value, mistakes = bound(raw)

    assert mistakes == []
    assert value == Outer(
        needed=1,
        pair=(2, "b"),
        many=[1, 2],
        either="text",
        maybe=3.0,
        word="b",
        colour=Colour.RED,
        roles={"name": (Colour.RED,)},
        inner=Inner(low=0.3, high=0.8),
    )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "x.needed: required"),
        ({"needed": True}, "x.needed = True: expected a whole number"),
        ({"needed": 1, "computed": 2}, "x.computed = 2: unknown key, known here: "),
        ({"needed": 1, "pair": [1]}, "x.pair = [1]: expected 2 values"),
        ({"needed": 1, "pair": [1, 2]}, "x.pair[1] = 2: expected text"),
        ({"needed": 1, "many": ["a"]}, "x.many[0] = 'a': expected a whole number"),
        ({"needed": 1, "either": 1.5}, "x.either = 1.5: expected a whole number or expected text"),
        ({"needed": 1, "maybe": "1"}, "x.maybe = '1': expected a number"),
        ({"needed": 1, "word": "c"}, "x.word = 'c': expected one of a, b"),
        ({"needed": 1, "colour": "blue"}, "x.colour = 'blue': expected one of red"),
        ({"needed": 1, "roles": []}, "x.roles = []: expected keys and values"),
        ({"needed": 1, "roles": {"n": "red"}}, "x.roles.n = 'red': expected a list, in brackets"),
        ({"needed": 1, "inner": {"low": -1}}, "x.inner.low = -1: must not be negative"),
        ({"needed": 1, "inner": 5}, "x.inner = 5: expected keys and values"),
        (5, "x = 5: expected keys and values"),
    ],
)
def test_every_shape_says_what_it_expects(raw: Any, said: str) -> None:
    """A class that is added tomorrow gets its messages from here."""
    value, mistakes = bound(raw)

    assert value is WRONG
    assert [mistake.startswith(said) for mistake in mistakes] == [True], mistakes


def test_a_class_may_name_several_mistakes_of_its_own() -> None:
    """One per line; what names no field belongs to the whole."""
    _, mistakes = bound({"needed": 1, "inner": {"low": 0.95}})

    assert mistakes == ["x.inner.high: must be over low", "x.inner: need low <= high"]
