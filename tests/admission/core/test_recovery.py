"""Outage and the way back."""

from __future__ import annotations

import random

import pytest

from admission.core.model import TicketId
from admission.core.recovery import Recovery, RecoveryConfig
from admission.vocabulary import EngineState, Outcome

ID = TicketId("s", 1)
PROBE = TicketId("s", 2)


def recovery(*, up: bool = True) -> Recovery:
    """An engine that is up."""
    made = Recovery(RecoveryConfig(), random.Random(1))
    if up:
        made.seen(0.0)
    return made


def fail(made: Recovery, times: int, at: float) -> bool:
    """Errors in a row; True when they closed it."""
    return [made.on_end(ID, Outcome.ERROR, at) for _ in range(times)].count(True) > 0


def test_three_errors_in_a_second_close_it() -> None:
    """And two do not, nor three spread over minutes."""
    made = recovery()
    assert not fail(made, 2, 1.0)
    assert not made.on_end(ID, Outcome.ERROR, 9.0)
    assert fail(made, 2, 9.5)
    assert made.closed


def test_errors_among_more_successes_do_not_close() -> None:
    """A bad request in a hundred is not an outage."""
    made = recovery()
    for _ in range(5):
        made.on_end(ID, Outcome.OK, 1.0)
    assert not fail(made, 4, 1.0)


def test_callers_faults_and_busy_are_no_errors() -> None:
    """They say nothing about whether the engine is there."""
    made = recovery()
    for outcome in (Outcome.BUSY, Outcome.ABORTED, Outcome.INVALID, Outcome.LOST):
        for _ in range(10):
            assert not made.on_end(ID, outcome, 1.0)


def test_an_engine_not_up_yet_is_starting_not_down() -> None:
    """Loading a model takes minutes and is no outage."""
    made = recovery(up=False)
    assert not fail(made, 10, 1.0)
    assert made.state is EngineState.STARTING
    assert made.seen(2.0)
    assert not made.seen(3.0)


def test_a_good_scrape_reopens() -> None:
    """No probe is spent when the scrape can tell; one taken before the close does not count."""
    made = recovery()
    made.on_scrape(True, 0.5, 0.5)
    fail(made, 3, 1.0)
    assert not made.may_probe(5.0)
    assert not made.on_scrape(False, 1.5, 1.5)
    assert not made.on_scrape(True, 1.5, 1.6)
    assert made.on_scrape(True, 3.0, 3.0)
    assert made.state is EngineState.REOPENING


def test_never_scraped_it_is_probed_with_longer_and_longer_waits() -> None:
    """One ticket at a time, with jitter."""
    made = recovery()
    made.on_scrape(False, 0.1, 0.1)
    fail(made, 3, 1.0)
    assert not made.may_probe(1.5)
    assert made.may_probe(2.3)
    made.probe(PROBE, 2.3)
    assert not made.may_probe(2.4)
    assert not made.on_end(ID, Outcome.OK, 2.5)
    assert not made.on_end(PROBE, Outcome.ERROR, 2.5)
    assert not made.may_probe(3.5)
    assert made.may_probe(5.0)
    assert made.retry_after_s(5.0) >= 1.0
    made.probe(PROBE, 5.0)
    assert made.on_end(PROBE, Outcome.OK, 5.5)
    assert made.state is EngineState.REOPENING


def test_a_first_token_of_the_probe_is_enough() -> None:
    """A long answer need not end first."""
    made = recovery()
    fail(made, 3, 1.0)
    made.probe(PROBE, 3.0)
    assert not made.on_first_token(ID, 3.5)
    assert made.on_first_token(PROBE, 3.5)


def test_a_probe_that_never_returns_has_failed() -> None:
    """Half-open must not last six days."""
    made = recovery()
    fail(made, 3, 1.0)
    made.probe(PROBE, 3.0)
    assert not made.tick(False, 12.9)
    assert not made.may_probe(12.9)
    made.tick(False, 13.0)
    assert made.may_probe(20.0)
    made.probe(ID, 20.0)
    assert not made.on_end(ID, Outcome.ABORTED, 21.0)


def test_reopening_ends_when_the_limit_is_back_or_after_its_time() -> None:
    """Then it is simply up."""
    for limit_back, at in ((True, 6.0), (False, 40.0)):
        made = recovery()
        fail(made, 3, 1.0)
        made.probe(PROBE, 3.0)
        made.on_end(PROBE, Outcome.OK, 4.0)
        assert not made.tick(False, 5.0)
        assert made.tick(limit_back, at)
        assert made.state is EngineState.UP


@pytest.mark.parametrize("bad", [{"errors": 0}, {"first_probe_s": 20.0}, {"window_s": 0.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    """With their name."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        RecoveryConfig(**bad)  # type: ignore[arg-type]
