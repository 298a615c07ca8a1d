"""Missing, fresh and stale are three states; the age that is allowed follows the interval that is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.model import Reading
from admission.vocabulary import SignalKind, Source
from telemetry.link import SignalReport
from telemetry.processors.staleness import SignalKey, Staleness, StalenessConfig

RUNNING = SignalKey("t", SignalKind.RUNNING, Source.SCRAPE, "m")
KV = RUNNING._replace(kind=SignalKind.KV_USAGE_RATIO)


def reading(at: float, value: float = 1.0, key: SignalKey = RUNNING) -> Reading:
    """One reading of a signal."""
    return Reading(key.kind, value, at, key.source, key.member)


def fed(*times: float, config: StalenessConfig | None = None) -> Staleness:
    """A follower that saw one signal at these times."""
    staleness = Staleness(config)
    for at in times:
        staleness.saw("t", reading(at))
    return staleness


def test_what_never_came_is_missing() -> None:
    """Never 0, never stale: nobody has seen it."""
    assert Staleness().state(RUNNING, 5.0) == "missing"


def test_an_expected_signal_is_reported_before_it_came_and_not_beside_it_after() -> None:
    """A signal that nobody lists is not noticed to be missing."""
    staleness = Staleness()
    staleness.expect("t", (SignalKind.RUNNING,), Source.SCRAPE)
    [report] = staleness.reports(0.0)
    assert (report.name, report.state, report.last) == ("running", "missing", None)
    staleness.saw("t", reading(1.0))
    [report] = staleness.reports(1.0)
    assert (report.name, report.state, report.last) == ("running", "fresh", 1.0)


@pytest.mark.parametrize(("interval_s", "allowed_s"), [(0.2, 3.0), (1.0, 3.0), (15.0, 45.0), (100.0, 120.0)])
def test_the_allowed_age_is_three_observed_intervals_within_bounds(
    interval_s: float, allowed_s: float
) -> None:
    """A bound of 200 ms on a source that comes each 15 s would call it stale 98 % of the time."""
    staleness = fed(*(step * interval_s for step in range(10)))
    assert staleness.allowed_age_s(RUNNING) == pytest.approx(allowed_s)
    last = 9 * interval_s
    assert staleness.state(RUNNING, last + allowed_s - 0.01) == "fresh"
    assert staleness.state(RUNNING, last + allowed_s + 0.01) == "stale"


def test_one_long_gap_does_not_stretch_the_allowed_age() -> None:
    """The median forgets an outage; a mean would wait longer after each."""
    staleness = fed(0.0, 1.0, 2.0, 3.0, 100.0, 101.0, 102.0)
    assert staleness.allowed_age_s(RUNNING) == pytest.approx(3.0)


def test_the_allowed_age_follows_a_new_interval() -> None:
    """Somebody changed the Collector from 1 s to 10 s."""
    staleness = fed(*range(20), *range(29, 150, 10))
    assert staleness.allowed_age_s(RUNNING) == pytest.approx(30.0)


def test_the_report_has_range_age_interval_and_count() -> None:
    """What was ever reached tells whether a threshold can fire at all."""
    staleness = Staleness()
    for at, value in ((0.0, 5.0), (1.0, 2.0), (2.0, 3.0)):
        staleness.saw("t", reading(at, value))
    [report] = staleness.reports(2.5)
    assert (report.lowest, report.highest, report.last, report.count) == (2.0, 5.0, 3.0, 3)
    assert (report.age_s, report.interval_s) == (0.5, 1.0)


def test_a_late_reading_does_not_make_the_signal_older_or_other() -> None:
    """Two sources of one member may cross each other."""
    staleness = fed(0.0, 1.0, 2.0)
    staleness.saw("t", reading(0.5, 99.0))
    [report] = staleness.reports(2.0)
    assert (report.last, report.age_s, report.highest, report.count) == (1.0, 0.0, 1.0, 4)


def test_members_are_named_only_where_there_are_several() -> None:
    """One engine reads `running`, two read `running @host:port` each."""
    staleness = fed(0.0)
    assert [report.name for report in staleness.reports(0.0)] == ["running"]
    staleness.saw("t", reading(0.0, key=RUNNING._replace(member="n")))
    assert [report.name for report in staleness.reports(0.0)] == ["running @m", "running @n"]


def test_a_gauge_that_stays_full_with_nothing_running_is_called_frozen() -> None:
    """After a mass cancel an engine said 99 % for ever, and was never used again."""
    staleness = Staleness()
    for at in range(60):
        staleness.saw("t", reading(at, 0.99, KV))
        staleness.saw("t", reading(at, 12.0 if at < 10 else 0.0))
    warnings = {report.name: report.warning for report in staleness.reports(59.0)}
    assert "frozen" in warnings["kv_usage_ratio"]
    assert staleness.unchanged_s(KV, 59.0) == 59.0


@pytest.mark.parametrize("busy", [True, False])
def test_a_gauge_that_stays_the_same_while_work_runs_or_is_zero_is_not(busy: bool) -> None:
    """A steady load and an idle engine are both flat."""
    staleness = Staleness()
    for at in range(60):
        staleness.saw("t", reading(at, 0.5 if busy else 0.0, KV))
        staleness.saw("t", reading(at, 3.0 if busy else 0.0))
    assert [report.warning for report in staleness.reports(59.0)] == ["", ""]


def test_a_receivers_word_joins_the_signal_of_the_same_name() -> None:
    """`engine_up` reads 0, and the receiver says why."""
    staleness = Staleness()
    staleness.saw("t", Reading(SignalKind.ENGINE_UP, 0.0, 1.0, Source.SCRAPE, "m"))
    staleness.note(SignalReport("t", "engine_up", "scrape", "missing", warning="connection refused"))
    [report] = staleness.reports(1.0)
    assert (report.last, report.state, report.warning) == (0.0, "fresh", "connection refused")


def test_a_receivers_word_of_its_own_is_shown_as_it_is() -> None:
    """NVML that is absent gives no readings at all."""
    staleness = Staleness()
    staleness.note(SignalReport("", "nvml", "nvml", "missing", warning="no driver"))
    assert [report.warning for report in staleness.reports(1.0)] == ["no driver"]


def test_the_signal_silent_for_longest_makes_room() -> None:
    """Invented members must not fill the memory."""
    staleness = Staleness(StalenessConfig(signals=2))
    for at, member in enumerate(("a", "b", "c")):
        staleness.saw("t", reading(at, key=RUNNING._replace(member=member)))
    assert [report.name for report in staleness.reports(2.0)] == ["running @b", "running @c"]


@pytest.mark.parametrize("bad", [{"floor_s": 0.0}, {"floor_s": 9.0, "ceiling_s": 1.0}, {"intervals": 0.5}])
def test_bounds_that_cannot_hold_are_refused(bad: dict[str, float]) -> None:
    """A mistake in the configuration is found at start."""
    with pytest.raises(ValueError, match=r"floor_s|intervals"):
        StalenessConfig(**bad)  # type: ignore[arg-type]


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40), st.floats(0.0, 1e6))
def test_the_allowed_age_is_always_within_its_bounds(times: list[float], later_s: float) -> None:
    """Whatever the arrivals, a signal is stale at some time, and not at once."""
    staleness = fed(*times)
    newest = max(times)
    allowed_s = staleness.allowed_age_s(RUNNING)
    assert allowed_s is not None
    assert 3.0 <= allowed_s <= 120.0
    assert (staleness.state(RUNNING, newest + later_s) == "stale") == (newest + later_s - newest > allowed_s)
