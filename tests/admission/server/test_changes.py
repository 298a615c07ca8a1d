"""What people find when they ask why the limit is where it is."""

from __future__ import annotations

from admission.core.model import GateChanged, LimitChanged, Why
from admission.server.changes import MAX_CHANGES, Changes
from admission.vocabulary import Source

GREW = Why("the budget binds", source=Source.LAW)
TOO_SLOW = Why("TPOT is 1.4 of its SLO", 1.4, 1.0, "", Source.OWN)


def grown(changes: Changes, steps: int, at: float, start: int = 1000) -> Changes:
    """A step of 100 each second."""
    for step in range(steps):
        changes.add(LimitChanged(start + 100 * step, start + 100 * step + 100, GREW), at + step)
    return changes


def told(changes: Changes) -> list[tuple[str, str, str, int]]:
    """What, old, new and how many steps."""
    return [(each.what, each.old, each.new, each.count) for each in changes]


def test_a_climb_is_one_change() -> None:
    """From where it began to where it is, with the time of both ends."""
    changes = grown(Changes(), 300, 50.0)

    assert told(changes) == [("limit", "1000", "31000", 300)]
    (climb,) = changes
    assert (climb.since, climb.at) == (50.0, 349.0)


def test_growth_never_pushes_out_a_cut() -> None:
    """An hour of growth after it, and the cut is still there with its why."""
    changes = Changes()
    changes.add(LimitChanged(40_000, 26_000, TOO_SLOW), 1.0)
    grown(changes, 3600, 2.0, 26_000)

    first, last = changes
    assert (first.old, first.new, first.why) == ("40000", "26000", TOO_SLOW)
    assert (last.new, last.count) == ("386000", 3600)


def test_cuts_are_told_one_by_one() -> None:
    """Each was held against a measured value of its own."""
    changes = Changes()
    for limit in (800, 600, 400):
        changes.add(LimitChanged(limit + 200, limit, TOO_SLOW), 1.0)

    assert told(changes) == [
        ("limit", "1000", "800", 1),
        ("limit", "800", "600", 1),
        ("limit", "600", "400", 1),
    ]


def test_steps_by_another_source_are_another_change() -> None:
    """An operator's step is no growth of the law's."""
    changes = grown(Changes(), 2, 1.0)
    changes.add(LimitChanged(1200, 9000, Why("set by hand", source=Source.OPERATOR)), 3.0)

    assert [each.count for each in changes] == [2, 1]


def test_a_gate_between_two_climbs_keeps_its_place() -> None:
    """The order in which things happened is half of the story."""
    changes = grown(Changes(), 2, 1.0)
    changes.add(GateChanged("kv", "open", "hot", Why()), 3.0)
    grown(changes, 2, 4.0, 1200)

    assert told(changes) == [
        ("limit", "1000", "1200", 2),
        ("kv", "open", "hot", 1),
        ("limit", "1200", "1400", 2),
    ]


def test_memory_is_bounded() -> None:
    """The last fifty."""
    changes = Changes()
    for step in range(1000):
        changes.add(GateChanged("kv", str(step), str(step + 1), Why()), float(step))

    assert len(changes) == MAX_CHANGES
    assert [each.new for each in changes][-1] == "1000"
