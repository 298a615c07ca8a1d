"""TPOT against its SLO, from whoever can tell."""

from __future__ import annotations

from collections import deque

from admission.core.cost import Cost
from admission.core.ledger import Permit
from admission.core.model import Ticket, TicketId
from admission.core.pace import Pace, live_tpot
from admission.vocabulary import PriorityClass, Source


def permit(no: int = 1, priority: PriorityClass = PriorityClass.INTERACTIVE, at: float = 0.0) -> Permit:
    """A permit admitted at an instant."""
    return Permit(Ticket(TicketId("s", no), priority), Cost(10, 10, 20), at, 0.0, 10, counted=True)


def streaming(chunks: int, first: float, last: float, marks: tuple[tuple[float, int], ...] = ()) -> Permit:
    """A permit that streams."""
    one = permit()
    one.first_token_at, one.last_chunk_at, one.chunks = first, last, chunks
    one.marks = deque(marks, maxlen=6) if marks else None
    return one


def test_a_stream_is_measured_over_its_last_seconds() -> None:
    """What it did a minute ago says nothing of now."""
    one = streaming(201, 0.0, 60.0, marks=((55.0, 101),))
    assert live_tpot(one, 1.0, 60.0) == 0.05


def test_sixteen_tokens_a_chunk_count_as_sixteen() -> None:
    """A chunk is not a token."""
    assert live_tpot(streaming(11, 0.0, 8.0), 16.0, 8.0) == 0.05


def test_a_stream_that_stands_still_is_evidence() -> None:
    """It need not go on to be slow."""
    assert live_tpot(streaming(3, 0.0, 0.1), 1.0, 4.0) == 2.0


def test_too_little_seen_is_no_answer() -> None:
    """Nor is a stream that has not begun."""
    assert live_tpot(permit(), 1.0, 1.0) is None
    assert live_tpot(streaming(2, 0.0, 0.05), 1.0, 0.05) is None
    assert live_tpot(streaming(30, 1.0, 1.0), 1.0, 1.0) is None


def test_eight_streams_are_enough_and_the_worst_class_counts() -> None:
    """Batch being fine does not comfort interactive."""
    pace = Pace()
    live = [(permit(no), 0.16, 0.08) for no in range(8)]
    live += [(permit(no, PriorityClass.BATCH), 0.02, 0.2) for no in range(50)]
    excess = pace.excess(live, 0.0)
    assert excess is not None
    assert (excess.value, excess.why.source) == (-1.0, Source.OWN)


def test_a_few_streams_are_pooled_over_classes() -> None:
    """Better a rough answer than none for ever; one stream alone is none."""
    pace = Pace()
    live = [(permit(1), 0.04, 0.08), (permit(2, PriorityClass.BATCH), 0.1, 0.2)]
    excess = pace.excess(live, 0.0)
    assert excess is not None
    assert excess.value == 0.5
    assert pace.excess(live[:1], 0.0) is None


def test_the_window_of_finished_requests_widens_while_they_are_few() -> None:
    """Ten slow answers a minute still move the limit; after half a minute they are forgotten."""
    pace = Pace()
    for no in range(8):
        pace.on_finished(permit(no, at=float(no)), 0.12, 0.08, 8.0 + no)
    wide = pace.excess([], 22.0)
    assert wide is not None
    assert round(wide.value, 3) == -0.5
    assert pace.excess([], 60.0) is None


def test_many_recent_ones_leave_the_older_out() -> None:
    """An incident that is over is over."""
    pace = Pace()
    for no in range(20):
        pace.on_finished(permit(no, at=1.0), 0.8, 0.08, 5.0)
    for no in range(20):
        pace.on_finished(permit(no, at=14.0), 0.04, 0.08, 15.0)
    excess = pace.excess([], 16.0)
    assert excess is not None
    assert excess.value == 0.5


def test_the_token_counter_of_the_engine_tells_the_mean() -> None:
    """Ten streams making 100 tokens in a second take 0.1 s each: over the SLO, and said to come from the scrape."""
    pace = Pace()
    for second in range(6):
        pace.on_generated(1_000.0 + 100 * second, 10, 0.08, float(second))
    excess = pace.excess([], 6.0)
    assert excess is not None
    assert excess.why.source is Source.SCRAPE
    assert round(excess.value, 2) == round(1 - 0.1 / 0.072, 2)


def test_a_failed_scrape_is_forgotten() -> None:
    """A stale mean steers wrong."""
    pace = Pace()
    pace.on_generated(0.0, 10, 0.08, 0.0)
    pace.on_generated(1.0, 10, 0.08, 1.0)
    assert pace.excess([], 2.0) is not None
    assert pace.excess([], 9.0) is None
    pace.lost_scrape()
    assert pace.excess([], 2.0) is None


def test_a_counter_that_stands_or_falls_back_is_no_measurement() -> None:
    """An idle or restarted engine is not an infinitely slow one."""
    pace = Pace()
    for second, total in enumerate((500.0, 500.0, 10.0)):
        pace.on_generated(total, 10, 0.08, float(second))
    pace.on_generated(30.0, 0, 0.08, 4.0)
    assert pace.excess([], 4.0) is None


def test_spans_cut_once_per_service_time() -> None:
    """They tell of the past: the same congestion must not cut each second."""
    pace = Pace()
    for _ in range(5):
        pace.on_span(0.16, 0.08, 8.0, 10.0)
    first = pace.excess([], 10.0)
    assert first is not None
    assert (first.value, first.why.source) == (-1.0, Source.SPANS)
    assert pace.excess([], 11.0) is None
    assert pace.excess([], 14.0) is not None


def test_fast_spans_are_room_and_two_are_too_few() -> None:
    """Room may be told each second."""
    pace = Pace()
    pace.on_span(0.04, 0.08, 1.0, 10.0)
    pace.on_span(0.04, 0.08, 1.0, 10.0)
    assert pace.excess([], 10.0) is None
    pace.on_span(0.04, 0.08, 1.0, 10.0)
    for at in (10.0, 11.0):
        excess = pace.excess([], at)
        assert excess is not None
        assert excess.value == 0.5


def test_streams_in_view_make_coarser_sources_silent() -> None:
    """A mean over all engines' tokens adds only noise to eight streams watched chunk by chunk."""
    pace = Pace()
    pace.on_generated(0.0, 100, 0.08, 0.0)
    pace.on_generated(10.0, 100, 0.08, 1.0)
    live = [(permit(no), 0.04, 0.08) for no in range(8)]
    excess = pace.excess(live, 1.0)
    assert excess is not None
    assert excess.why.source is Source.OWN


def test_finished_requests_of_our_own_silence_the_coarser_sources_too() -> None:
    """Short answers leave few streams in view, but eight that ended are a better witness than a mean."""
    pace = Pace()
    for second in range(3):
        pace.on_generated(10.0 * second, 10, 0.08, float(second))
    for no in range(8):
        pace.on_finished(permit(no, at=1.0), 0.04, 0.08, 2.0)
    excess = pace.excess([], 2.0)
    assert excess is not None
    assert (excess.value, excess.why.source) == (0.5, Source.OWN)


def test_spans_alone_go_on_telling_after_a_cut() -> None:
    """With nothing else to see, evidence from before a small cut is still the best there is: they are paced instead."""
    pace = Pace()
    for _ in range(5):
        pace.on_span(0.24, 0.08, 12.0, 10.0)
    pace.cut_at = 9.0
    excess = pace.excess([], 10.0)
    assert excess is not None
    assert excess.why.source is Source.SPANS


def test_right_after_a_cut_spans_do_not_speak_for_our_own_requests() -> None:
    """They tell of the same requests, begun before it."""
    pace = Pace()
    for no in range(9):
        pace.on_finished(permit(no, at=1.0), 0.2, 0.08, 4.0)
        pace.on_span(0.2, 0.08, 3.0, 4.0)
    pace.cut_at = 4.5
    assert pace.excess([], 5.0) is None
