"""Rates come from totals of one boot, over ten seconds, and are not known before two snapshots."""

from __future__ import annotations

import pytest

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard.rates import RateWindow, reason_name


def _snapshot(
    at: float,
    *,
    admitted: int = 0,
    full: int = 0,
    left: int = 0,
    shadow: int = 0,
    good: int = 0,
    boot: bytes = b"a",
) -> monitor.Snapshot:
    cls = monitor.ClassSnapshot(name="batch", good=good, judged=good * 2, finished=good * 3)
    for verdict, reason, total in (
        (types.VERDICT_ADMITTED, types.REASON_UNSPECIFIED, admitted),
        (types.VERDICT_QUEUED, types.REASON_UNSPECIFIED, 999),
        (types.VERDICT_REJECTED, types.REASON_QUEUE_FULL, full),
        (types.VERDICT_SHED, types.REASON_CANCELLED, left),
    ):
        cls.counts.append(monitor.Count(verdict=verdict, reason=reason, total=total))
    cls.shadow_counts.append(
        monitor.Count(verdict=types.VERDICT_SHED, reason=types.REASON_DEADLINE, total=shadow)
    )
    snapshot = monitor.Snapshot(boot=boot, targets=[monitor.TargetSnapshot(name="t", classes=[cls])])
    snapshot.at.FromNanoseconds(int(at * 1e9))
    return snapshot


def _window(*snapshots: monitor.Snapshot) -> RateWindow:
    window = RateWindow()
    for snapshot in snapshots:
        window.add(snapshot)
    return window


def test_rates_are_differences_over_the_time_between() -> None:
    """Totals since start say nothing about now."""
    rates = _window(_snapshot(100, admitted=50, full=10), _snapshot(104, admitted=70, full=18)).rates("t")

    assert rates.admitted == {"batch": 5.0}
    assert rates.refused == {("batch", "QUEUE_FULL"): 2.0}
    assert (rates.refused_total(), rates.admitted_total(), rates.window_s) == (2.0, 5.0, 4.0)
    assert rates.refused_of("batch") == 2.0


def test_only_the_last_ten_seconds_count() -> None:
    """Refusals of a minute ago are over."""
    window = _window(*(_snapshot(float(at), full=min(at, 50)) for at in range(80)))

    assert window.rates("t").refused == {}
    assert window.rates("t").window_s == 10.0


def test_snapshots_further_apart_than_the_window_still_give_a_rate() -> None:
    """A page that was asleep wakes with two old points."""
    assert _window(_snapshot(100), _snapshot(130, full=30)).rates("t").refused_total() == 1.0


def test_the_share_within_slo_covers_a_minute() -> None:
    """Ten seconds hold too few finished requests."""
    window = _window(*(_snapshot(float(at), good=at) for at in range(90)))

    assert window.rates("t").good == {"batch": (60, 120)}


def test_a_caller_that_left_is_no_refusal() -> None:
    """CANCELLED is the caller's own decision."""
    assert _window(_snapshot(1), _snapshot(2, left=7)).rates("t").refused == {}


def test_in_shadow_the_refusals_that_enforcing_would_make_are_apart() -> None:
    """Nobody was refused, and it must not look so."""
    rates = _window(_snapshot(1, admitted=1), _snapshot(3, admitted=5, shadow=4)).rates("t")

    assert rates.refused == {}
    assert rates.would_refuse == {("batch", "DEADLINE"): 2.0}
    assert rates.would_refuse_total() == 2.0


@pytest.mark.parametrize(
    "second", [_snapshot(2, admitted=5, boot=b"b"), _snapshot(0.5, admitted=5), _snapshot(1, admitted=5)]
)
def test_a_new_boot_or_a_clock_that_did_not_move_gives_no_rate(second: monitor.Snapshot) -> None:
    """A restart sets totals to zero, a clock step makes the time between meaningless."""
    assert _window(_snapshot(1, admitted=1000), second).rates("t").window_s == 0.0


def test_totals_that_fall_within_a_boot_count_as_nothing() -> None:
    """A bounded label set may drop a class."""
    assert _window(_snapshot(1, full=9), _snapshot(2, full=3)).rates("t").refused == {}


def test_nothing_is_known_before_two_snapshots_or_of_another_target() -> None:
    """Zero would be a claim."""
    assert _window(_snapshot(1)).rates("t").window_s == 0.0
    assert _window(_snapshot(1), _snapshot(2, admitted=4)).rates("other").admitted == {}


def test_a_reason_from_a_newer_sidecar_keeps_its_number() -> None:
    """Client and sidecar one release apart work together."""
    assert reason_name(types.REASON_DEADLINE) == "DEADLINE"
    assert reason_name(types.Reason.ValueType(77)) == "REASON_77"
