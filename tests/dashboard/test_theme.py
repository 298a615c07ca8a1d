"""Lines that are drawn together can be told apart by everyone, on light and on dark."""

from __future__ import annotations

import pytest

from dashboard.theme import COLOURS, ICONS, PERCENTILES, STYLE
from dashboard.verdict import Level
from tests.dashboard.colour_vision import SIGHTS, contrast, distance

CARDS = ("#ffffff", "#18202a")
TOGETHER = [
    ("used", "limit"),
    ("used", "refused"),
    ("used", "mark"),
    ("used", "critical"),
    ("mark", "critical"),
    ("low", "used"),
    ("used", "high"),
    ("low", "high"),
    ("low", "critical"),
    ("high", "critical"),
    ("used", "first"),
    ("used", "second"),
    ("used", "third"),
    ("first", "second"),
    ("first", "third"),
    ("second", "third"),
    ("free", "critical"),
]


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_colours_of_one_chart_differ_to_every_eye(one: str, other: str, sight: str) -> None:
    """One man in twelve does not see red and green as two colours; a distance of 18 is nine times just noticeable."""
    assert distance(COLOURS[one], COLOURS[other], sight) > 18


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("key", sorted(COLOURS))
def test_every_colour_stands_out_from_the_card(key: str, card: str) -> None:
    """Lines that mean danger need the contrast that WCAG asks of graphics; the quiet ones may whisper."""
    needed = 3.0 if key in {"used", "refused", "limit", "mark", "critical", "free"} else 2.4
    assert contrast(COLOURS[key], card) >= needed


def test_every_level_has_a_sign_beside_its_colour() -> None:
    """Colour alone tells nothing to some, and nothing on paper."""
    assert set(ICONS) == {level.value for level in Level}
    assert len(set(ICONS.values())) == len(ICONS)
    assert all(f"--tg-{level.value}:" in STYLE for level in Level)


def test_percentiles_use_colours_of_the_theme() -> None:
    """A misspelt key would be drawn grey."""
    assert set(PERCENTILES.values()) <= set(COLOURS)
