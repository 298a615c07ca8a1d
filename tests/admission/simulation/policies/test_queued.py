"""The front queue keeps its order and its bounds, and tells the limiter what it should hear."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    LimitChanged,
    Queued,
    Reading,
    Rejected,
    Sample,
    Shed,
    Ticket,
    TicketId,
)
from admission.core.slo import SloConfig
from admission.simulation.policies.limiter import Latency, Limiter, LimiterSample
from admission.simulation.policies.queued import FrontConfig, QueuedLimiter, default_slos
from admission.vocabulary import Outcome, PriorityClass, Reason, SignalKind, Source


class Hand(Limiter):
    """A limit that the test sets; keeps what it hears."""

    def __init__(self, limit: float) -> None:
        self.value = limit
        self.heard: list[LimiterSample] = []
        self.starts: list[int] = []
        self.readings: list[Reading] = []
        self.wants_at: float | None = None

    @property
    def limit(self) -> float:
        return self.value

    def on_sample(self, sample: LimiterSample) -> None:
        self.heard.append(sample)

    def on_start(self, in_flight: int, now: float) -> None:
        self.starts.append(in_flight)

    def on_reading(self, reading: Reading) -> None:
        self.readings.append(reading)

    def next_at(self) -> float | None:
        return self.wants_at


def front(limit: float, latency: Latency = "total", **settings: Any) -> tuple[QueuedLimiter, Hand]:
    """A queue before a limit set by hand."""
    hand = Hand(limit)
    return QueuedLimiter(hand, FrontConfig(**settings), default_slos(), latency), hand


def ticket(no: int, **fields: Any) -> Ticket:
    """A request."""
    return Ticket(TicketId("client", no), **fields)


def kinds(events: list[Event]) -> list[tuple[str, int]]:
    """What was said of whom."""
    return [
        (type(one).__name__, one.ticket.id.no)
        for one in events
        if isinstance(one, Admitted | Queued | Rejected | Shed | Finished)
    ]


OK = Completion(Outcome.OK, output_tokens=11)


def test_the_limit_counts_requests_and_the_oldest_goes_first() -> None:
    """First come first served, whatever the class."""
    queue, _ = front(1)
    assert kinds(queue.submit(ticket(1), 0.0)) == [("Admitted", 1)]
    assert kinds(queue.submit(ticket(2, priority=PriorityClass.BATCH), 0.1)) == [("Queued", 2)]
    assert kinds(queue.submit(ticket(3), 0.2)) == [("Queued", 3)]
    assert kinds(queue.finish(TicketId("client", 1), OK, 1.0)) == [("Finished", 1), ("Admitted", 2)]
    assert queue.look(1.0) == (1, 1, 1, 1)


def test_nobody_overtakes_those_who_wait() -> None:
    """Room that came without an event is theirs first."""
    queue, hand = front(0)
    queue.submit(ticket(1), 0.0)
    hand.value = 1
    assert kinds(queue.submit(ticket(2), 0.1)) == [("Queued", 2)]
    assert kinds(queue.wake(0.1)) == [("Admitted", 1)]


def test_a_full_queue_refuses() -> None:
    """The 513th is told at once."""
    queue, _ = front(0, queue_tickets=1)
    queue.submit(ticket(1), 0.0)
    (refused,) = queue.submit(ticket(2), 0.0)
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.why.measured, refused.why.threshold) == (Reason.QUEUE_FULL, 1, 1)


def test_without_places_it_is_the_published_reject_now() -> None:
    """As Netflix's simple limiter and Envoy's filter do it."""
    queue, _ = front(1, queue_tickets=0)
    queue.submit(ticket(1), 0.0)
    assert kinds(queue.submit(ticket(2), 0.0)) == [("Rejected", 2)]


def test_who_waits_too_long_is_refused_at_its_deadline() -> None:
    """1.5 s by default; a patience that the ticket brings goes before."""
    queue, _ = front(0)
    queue.submit(ticket(1), 0.0)
    queue.submit(ticket(2, patience_s=0.5), 0.0)
    assert queue.next_wakeup() == 0.5
    assert kinds(queue.wake(0.5)) == [("Shed", 2)]
    assert queue.next_wakeup() == 1.5
    (shed,) = queue.wake(1.5)
    assert isinstance(shed, Shed)
    assert (shed.reason, shed.waited_s, shed.why.threshold) == (Reason.DEADLINE, 1.5, 1.5)
    assert queue.next_wakeup() is None


def test_the_deadline_follows_the_interactive_slo() -> None:
    """Three quarters of its TTFT target, as in the product; without a target 10 s."""
    config = FrontConfig()
    assert config.patience_s({PriorityClass.INTERACTIVE: SloConfig(ttft_s=4.0)}) == 3.0
    assert config.patience_s({PriorityClass.INTERACTIVE: SloConfig(ttft_s=None)}) == 10.0
    assert config.patience_s({}) == 1.5
    assert FrontConfig(deadline_s=0.2).patience_s(default_slos()) == 0.2


def test_a_caller_that_leaves_the_queue_is_gone() -> None:
    """Its deadline goes with it, and it never reaches the engine."""
    queue, hand = front(0)
    queue.submit(ticket(1), 0.0)
    (shed,) = queue.cancel(TicketId("client", 1), 0.2)
    assert isinstance(shed, Shed)
    assert shed.reason is Reason.CANCELLED
    hand.value = 1
    assert kinds(queue.wake(2.0)) == []
    assert queue.look(2.0).queued == 0


def test_the_total_latency_is_heard_at_the_end() -> None:
    """From admission, the wait left out; with what was in flight when it began."""
    queue, hand = front(1)
    queue.submit(ticket(1, prompt_tokens=70), 0.0)
    queue.submit(ticket(2, prompt_tokens=80), 0.5)
    queue.finish(TicketId("client", 1), OK, 1.0)
    queue.first_token(TicketId("client", 2), 1.2)
    (finished,) = queue.finish(TicketId("client", 2), OK, 2.2)
    heard = hand.heard[1]
    assert (heard.began_at, heard.in_flight, heard.dropped) == (1.0, 1, False)
    assert (heard.prompt_tokens, heard.waited_s) == (80, 0.5)
    assert [heard.rtt_s, heard.ttft_s, heard.tpot_s] == pytest.approx([1.2, 0.2, 0.1])
    assert isinstance(finished, Finished)
    assert finished.ttft_s == pytest.approx(0.7)


def test_the_time_to_first_token_is_heard_when_it_comes() -> None:
    """And the end of the answer adds nothing."""
    queue, hand = front(2, "ttft")
    queue.submit(ticket(1), 0.0)
    queue.first_token(TicketId("client", 1), 0.3)
    assert [one.rtt_s for one in hand.heard] == [0.3]
    queue.finish(TicketId("client", 1), OK, 1.0)
    assert len(hand.heard) == 1


def test_progress_shows_a_first_token_too() -> None:
    """Clients report in batches: the age of the newest chunk dates it."""
    queue, hand = front(2, "ttft")
    queue.submit(ticket(1), 0.0)
    queue.progress([(TicketId("client", 1), 3, 0.1), (TicketId("client", 9), 1, 0.0)], 0.5)
    queue.progress([(TicketId("client", 1), 0, 0.0)], 0.6)
    assert [one.rtt_s for one in hand.heard] == [pytest.approx(0.4)]


def test_where_nothing_streams_the_total_stands_in() -> None:
    """Until the first token of any request is seen; from then on an answer without one says nothing."""
    queue, hand = front(3, "ttft")
    for no in (1, 2, 3):
        queue.submit(ticket(no), 0.0)
    queue.finish(TicketId("client", 1), OK, 1.0)
    queue.first_token(TicketId("client", 2), 1.5)
    queue.finish(TicketId("client", 3), OK, 2.0)
    assert [one.rtt_s for one in hand.heard] == [1.0, 1.5]


def test_the_engines_own_time_to_first_token_is_taken_where_ours_is_missing() -> None:
    """A unary answer may carry it."""
    queue, hand = front(1, "ttft")
    queue.submit(ticket(1), 0.0)
    queue.finish(TicketId("client", 1), Completion(Outcome.OK, engine_ttft_s=0.25), 1.0)
    assert [one.rtt_s for one in hand.heard] == [0.25]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.BUSY, Outcome.LOST, Outcome.ABORTED])
def test_refused_failed_and_given_up_requests_are_drops(outcome: Outcome) -> None:
    """What came to nothing before its first token is a sign of too much."""
    queue, hand = front(1)
    queue.submit(ticket(1), 0.0)
    queue.finish(TicketId("client", 1), Completion(outcome), 1.0)
    assert [one.dropped for one in hand.heard] == [True]


def test_a_caller_that_leaves_in_prefill_is_a_drop_and_one_that_read_is_not() -> None:
    """The second had what it wanted."""
    queue, hand = front(2)
    queue.submit(ticket(1), 0.0)
    queue.submit(ticket(2), 0.0)
    queue.first_token(TicketId("client", 2), 0.5)
    queue.cancel(TicketId("client", 1), 1.0)
    queue.cancel(TicketId("client", 2), 1.0)
    assert [(one.rtt_s, one.dropped) for one in hand.heard] == [(1.0, True)]
    assert queue.look(1.0).in_flight == 0


def test_an_invalid_request_says_nothing() -> None:
    """Its mistake is no sign of load."""
    queue, hand = front(1)
    queue.submit(ticket(1), 0.0)
    queue.finish(TicketId("client", 1), Completion(Outcome.INVALID), 1.0)
    assert hand.heard == []


def test_what_is_not_in_flight_is_ignored() -> None:
    """Networks repeat themselves."""
    queue, hand = front(1)
    unknown = TicketId("client", 7)
    for events in (
        queue.finish(unknown, OK, 0.0),
        queue.cancel(unknown, 0.0),
        queue.first_token(unknown, 0.0),
    ):
        assert events == []
    assert hand.heard == []


def test_a_ticket_submitted_twice_is_a_mistake_of_the_caller() -> None:
    """As in the product's core, waiting or running."""
    queue, _ = front(1)
    queue.submit(ticket(1), 0.0)
    queue.submit(ticket(2), 0.0)
    for no in (1, 2):
        with pytest.raises(ValueError, match="known already"):
            queue.submit(ticket(no), 0.1)


def test_readings_reach_the_limiter_and_admit_nobody_by_themselves() -> None:
    """A scrape is several readings: half of one must not open anything."""
    queue, hand = front(0)
    queue.submit(ticket(1), 0.0)
    hand.value = 1
    reading = Reading(SignalKind.WAITING, 0.0, 0.5, Source.SCRAPE)
    assert queue.observe(reading, 0.5) == []
    assert hand.readings == [reading]


def test_a_span_says_nothing_to_a_published_limiter() -> None:
    """They measure for themselves."""
    queue, hand = front(1)
    assert queue.sample(Sample(0.0, Outcome.OK, e2e_s=1.0), 0.0) == []
    assert hand.heard == []


def test_it_wakes_for_the_limiters_clock_too() -> None:
    """Whichever is sooner."""
    queue, hand = front(0)
    hand.wants_at = 1.0
    assert queue.next_wakeup() == 1.0
    queue.submit(ticket(1, patience_s=0.4), 0.0)
    assert queue.next_wakeup() == 0.4


def test_a_move_of_the_limit_is_told() -> None:
    """Old and new, in requests."""
    queue, hand = front(1)
    hand.value = 3
    (change,) = queue.wake(0.0)
    assert isinstance(change, LimitChanged)
    assert (change.old, change.new, change.why.unit) == (1, 3, "requests")


@pytest.mark.parametrize("settings", [{"queue_tickets": -1}, {"deadline_s": 0.0}, {"retry_after_s": -1.0}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """One clear line."""
    with pytest.raises(ValueError, match="must"):
        FrontConfig(**settings)
