"""The source asks at most once a second for all sessions, and a sidecar that is away is a state."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from admission.v1 import monitor_service_pb2 as monitor
from dashboard.source import AWAY_AFTER_S, Source, explain, find_address, open_source, read_history


class Failed(grpc.RpcError, grpc.Call):
    """An RpcError as grpc raises it: also the call that failed."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        """The status of the call."""
        return self._code

    def details(self) -> str:
        """Nothing more is known."""
        return ""

    def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """None came."""
        return ()

    def trailing_metadata(self) -> tuple[Any, ...]:
        """None came."""
        return ()

    def is_active(self) -> bool:
        """It has ended."""
        return False

    def time_remaining(self) -> float:
        """It has ended."""
        return 0.0

    def cancel(self) -> bool:
        """It has ended."""
        return False

    def add_callback(self, callback: object) -> bool:
        """It has ended."""
        return False


class Asked:
    """A sidecar that counts how often it is asked, and fails when told to."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.fails: grpc.StatusCode | None = None
        self.half: grpc.StatusCode | None = None

    def snapshot(self) -> monitor.Snapshot:
        """A numbered snapshot."""
        self._ask("snapshot", self.fails)
        snapshot = monitor.Snapshot(sessions=len(self.questions))
        snapshot.at.FromSeconds(1_000 + len(self.questions))
        return snapshot

    def history(self, target: str) -> monitor.GetHistoryResponse:
        """One point."""
        self._ask(f"history {target}", self.fails or self.half)
        return monitor.GetHistoryResponse(
            series=[monitor.Series(name="in_flight", unix_s=[1.0], value=[3.0])]
        )

    def decisions(self, target: str) -> monitor.ListDecisionsResponse:
        """One refusal."""
        self._ask(f"decisions {target}", self.fails or self.half)
        return monitor.ListDecisionsResponse(decisions=[monitor.RecordedDecision(target=target)])

    def _ask(self, question: str, fails: grpc.StatusCode | None) -> None:
        self.questions.append(question)
        if fails is not None:
            raise Failed(fails)


class Clock:
    """Moves when told."""

    now = 50.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def asked() -> Asked:
    """The sidecar."""
    return Asked()


@pytest.fixture
def clock() -> Clock:
    """The clock."""
    return Clock()


@pytest.fixture
def source(asked: Asked, clock: Clock) -> Source:
    """The source over both."""
    return Source(asked, "unix:/run/control.sock", clock)


def test_many_sessions_within_a_second_ask_once(source: Source, asked: Asked) -> None:
    """Ten viewers of a bad night must not load the sidecar ten times."""
    for _ in range(10):
        source.picture()
        source.history("a")
        source.decisions("a")

    assert asked.questions == ["snapshot", "history a", "decisions a"]


def test_after_a_second_it_asks_again(source: Source, asked: Asked, clock: Clock) -> None:
    """The page is live."""
    first = source.picture()
    clock.now += 1.0

    assert source.picture().snapshot != first.snapshot
    assert asked.questions == ["snapshot", "snapshot"]


def test_the_sidecars_clock_goes_on_between_answers(source: Source, clock: Clock) -> None:
    """The charts' right end is the sidecar's now, not the browser's."""
    source.picture()
    clock.now += 0.5

    assert source.picture().unix_now == 1_001.5


def test_one_missed_answer_is_no_alarm_and_silence_is(source: Source, asked: Asked, clock: Clock) -> None:
    """The last values stay, with their age, and the reason is said."""
    source.picture()
    asked.fails = grpc.StatusCode.UNAVAILABLE
    clock.now += 1.0
    assert source.picture().away == ""
    clock.now += AWAY_AFTER_S

    picture = source.picture()

    assert picture.away == "nobody answers at unix:/run/control.sock"
    assert picture.snapshot is not None
    assert picture.age_s == 1.0 + AWAY_AFTER_S


def test_a_sidecar_that_was_never_there_is_away_at_once(source: Source, asked: Asked) -> None:
    """A wrong address must not look like a pause."""
    asked.fails = grpc.StatusCode.DEADLINE_EXCEEDED

    picture = source.picture()

    assert (picture.snapshot, picture.target(None), picture.unix_now) == (None, None, 0.0)
    assert picture.away == "no answer within 1 s from unix:/run/control.sock"


def test_it_comes_back_by_itself(source: Source, asked: Asked, clock: Clock) -> None:
    """Nobody reloads a page at night."""
    asked.fails = grpc.StatusCode.UNAVAILABLE
    source.picture()
    asked.fails = None
    clock.now += 1.0

    assert source.picture().away == ""
    assert source.history("a").lines


def test_history_knows_as_of_when_it_is(source: Source, clock: Clock) -> None:
    """The charts' right end is where the points end, by the sidecar's clock."""
    source.picture()
    clock.now += 0.5

    assert source.history("a").at == 1_001.5


def test_while_it_is_away_the_past_is_kept_and_not_asked_for(
    source: Source, asked: Asked, clock: Clock
) -> None:
    """Charts stay on screen; a hung sidecar costs one timeout a second, not three."""
    source.picture()
    source.history("a")
    source.decisions("a")
    asked.fails = grpc.StatusCode.UNAVAILABLE
    clock.now += 5.0
    source.picture()

    assert source.history("a").line("in_flight").value == [3.0]
    assert source.history("a").error == "nobody answers at unix:/run/control.sock"
    assert len(source.decisions("a").recent) == 1
    assert asked.questions.count("history a") == 1


def test_a_sidecar_without_history_still_has_a_snapshot(source: Source, asked: Asked) -> None:
    """A release apart, a method may be missing."""
    asked.half = grpc.StatusCode.UNIMPLEMENTED

    assert source.picture().away == ""
    assert "older than this dashboard" in source.history("a").error
    assert "older than this dashboard" in source.decisions("a").error


def test_a_session_that_comes_while_another_asks_gets_the_last_answer(asked: Asked, clock: Clock) -> None:
    """A slow sidecar holds up one session, not all."""
    entered, let_go = threading.Event(), threading.Event()

    class Slow(Asked):
        def snapshot(self) -> monitor.Snapshot:
            answer = super().snapshot()
            if len(self.questions) > 1:
                entered.set()
                assert let_go.wait(10)
            return answer

    source = Source(Slow(), "x", clock)
    first = source.picture()
    clock.now += 1.0
    slow_session = threading.Thread(target=source.picture)
    slow_session.start()
    assert entered.wait(10)

    assert source.picture().snapshot == first.snapshot
    let_go.set()
    slow_session.join(10)


def test_kept_targets_are_bounded(source: Source, asked: Asked, clock: Clock) -> None:
    """A thousand names in the address bar must not fill memory."""
    for number in range(200):
        source.history(f"t{number}")
    source.history("t0")

    assert asked.questions.count("history t0") == 2
    assert asked.questions.count("history t199") == 1


def test_history_is_put_in_order_and_odd_points_are_dropped() -> None:
    """What comes over a wire is judged."""
    series = monitor.Series(name="x", unit="s", unix_s=[3.0, 1.0, 2.0], value=[30.0, 10.0])

    line = read_history(monitor.GetHistoryResponse(series=[series])).line("x")

    assert (list(line.unix_s), list(line.value), line.unit) == ([1.0, 3.0], [10.0, 30.0], "s")


def test_an_old_value_is_not_the_latest() -> None:
    """A series that ended is not known now."""
    line = read_history(
        monitor.GetHistoryResponse(series=[monitor.Series(name="x", unix_s=[10.0], value=[1.0])])
    ).line("x")

    assert (line.last(9.0), line.last(11.0)) == (1.0, None)


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_failure_has_a_line_that_names_the_address(code: grpc.StatusCode) -> None:
    """No status is a traceback."""
    assert "10.0.0.1:7" in explain(Failed(code), "10.0.0.1:7")


def test_an_error_without_a_status_is_explained_too() -> None:
    """It raises a bare RpcError is raised when a channel closes."""
    assert explain(grpc.RpcError(), "here:1") == "here:1 answered UNKNOWN"


@pytest.mark.parametrize(
    ("arguments", "environ", "address"),
    [
        (["--control", "h:1"], {"TIDEGATE_CONTROL_ADDRESS": "h:2"}, "h:1"),
        (["--other", "x"], {"TIDEGATE_CONTROL_ADDRESS": "h:2"}, "h:2"),
        ([], {"XDG_RUNTIME_DIR": "/run/user/7"}, "unix:/run/user/7/tidegate/control.sock"),
    ],
)
def test_the_address_comes_from_argument_then_environment_then_habit(
    arguments: list[str], environ: dict[str, str], address: str
) -> None:
    """What is said last and nearest wins."""
    assert find_address(arguments, environ) == address


def test_a_certificate_that_cannot_be_read_is_an_error_at_start(clock: Clock) -> None:
    """Silently going without TLS would be worse."""
    with pytest.raises(OSError, match="nowhere"):
        open_source([], {"TIDEGATE_TLS_CA": "/nowhere/ca.pem"}, clock)
