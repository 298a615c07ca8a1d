"""TPOT against its SLO, from whoever can tell."""

from __future__ import annotations

from collections import deque

import pytest

from admission.core.cost import Cost
from admission.core.ledger import Permit
from admission.core.model import Ticket, TicketId
from admission.core.pace import Pace, Streaming, streaming
from admission.vocabulary import PriorityClass, Source


def permit(no: int = 1, priority: PriorityClass = PriorityClass.INTERACTIVE, at: float = 0.0) -> Permit:
    """A permit admitted at an instant."""
    return Permit(Ticket(TicketId("s", no), priority), Cost(10, 10, 20), at, 0.0, 10, counted=True)


def in_progress(chunks: int, first: float, last: float, marks: tuple[tuple[float, int], ...] = ()) -> Permit:
    """A permit that streams."""
    one = permit()
    one.first_token_at, one.last_chunk_at, one.chunks = first, last, chunks
    one.marks = deque(marks, maxlen=6) if marks else None
    return one


def recent_s(one: Permit, tokens_per_chunk: float, now: float, still_s: float = 0.0) -> float | None:
    """Its TPOT of late."""
    seen = streaming(one, tokens_per_chunk, 0.08, still_s, now)
    return None if seen is None else seen.recent_s


def at_pace(
    tpot_s: float, slo_s: float = 0.08, priority: PriorityClass = PriorityClass.INTERACTIVE
) -> Streaming:
    """A stream that has always had this pace."""
    return Streaming(priority, slo_s, tpot_s, 1.0, 50 * tpot_s, 50.0, 50.0)


def test_a_stream_is_measured_over_its_last_seconds() -> None:
    """What it did a minute ago says nothing of now."""
    one = in_progress(201, 0.0, 60.0, marks=((55.0, 101),))
    assert recent_s(one, 1.0, 60.0) == 0.05


def test_sixteen_tokens_a_chunk_count_as_sixteen() -> None:
    """A chunk is not a token."""
    assert recent_s(in_progress(11, 0.0, 8.0), 16.0, 8.0) == 0.05


def test_a_stream_that_stands_still_is_evidence() -> None:
    """It need not go on to be slow."""
    assert recent_s(in_progress(3, 0.0, 0.1), 1.0, 4.0) == 2.0


def test_too_little_seen_is_no_answer() -> None:
    """Nor is a stream that has not begun."""
    assert recent_s(permit(), 1.0, 1.0) is None
    assert recent_s(in_progress(2, 0.0, 0.05), 1.0, 0.05) is None
    assert recent_s(in_progress(30, 1.0, 1.0), 1.0, 1.0) is None


def test_time_that_the_engine_stood_is_no_stream_s_pace() -> None:
    """Eight seconds of standstill in sixteen tokens are no half a second a token."""
    assert recent_s(in_progress(17, 0.0, 9.6), 1.0, 9.6, still_s=8.0) == pytest.approx(0.1)


def test_a_stream_is_judged_by_the_pace_that_its_whole_answer_will_have() -> None:
    """A slow beginning may be made up for; a fast one does not excuse what comes."""
    half = Streaming(PriorityClass.INTERACTIVE, 0.08, 0.04, 1.0, 50 * 0.12, 50.0, 50.0)
    assert half.ratio(0.04) == pytest.approx(1.0)
    assert half._replace(recent_s=0.12).ratio(0.12) == pytest.approx(1.5)


def test_tokens_that_came_unseen_do_not_make_a_stream_fast() -> None:
    """Announced with four hundred chunks, at twice the SLO since: those took their time too, before anybody here looked."""
    one = in_progress(425, 0.0, 4.0)
    one.chunks_before = 400
    seen = streaming(one, 1.0, 0.08, 0.0, 4.0)
    assert seen is not None
    assert seen.ratio(0.16) == pytest.approx(2.0)


def test_a_young_stream_takes_the_pace_of_all() -> None:
    """Four steps beside somebody's prefill say nothing about the two hundred to come."""
    pace = Pace()
    young = Streaming(PriorityClass.INTERACTIVE, 0.08, 0.3, 0.1, 1.2, 4.0, 196.0)
    assert young.ratio(0.04) == pytest.approx((1.2 + 196 * 0.066) / 200 / 0.08)
    excess = pace.excess([*[at_pace(0.04)] * 8, *[young] * 2], 0.0)
    assert excess is not None
    assert excess.value > 0.1


def test_eight_streams_are_enough_and_the_worst_class_counts() -> None:
    """Batch being fine does not comfort interactive."""
    pace = Pace()
    live = [at_pace(0.16)] * 8 + [at_pace(0.02, 0.2, PriorityClass.BATCH)] * 50
    excess = pace.excess(live, 0.0)
    assert excess is not None
    assert (excess.value, excess.why.source) == (-1.0, Source.OWN)


def test_a_slow_member_of_a_pool_does_not_hold_the_others_back() -> None:
    """Two of ten at three times the pace of the rest are slow for a reason of their own, which no limit takes away."""
    pace = Pace()
    uneven = pace.excess([at_pace(0.04)] * 8 + [at_pace(0.12)] * 2, 0.0)
    assert uneven is not None
    assert uneven.value == pytest.approx(1 - 1.6 * 0.5)
    slow = pace.excess([at_pace(0.08)] * 8 + [at_pace(0.12)] * 2, 0.0)
    assert slow is not None
    assert slow.value == pytest.approx(-0.5)


def test_a_few_streams_are_pooled_over_classes() -> None:
    """Better a rough answer than none for ever; one stream alone is none."""
    pace = Pace()
    live = [at_pace(0.04), at_pace(0.1, 0.2, PriorityClass.BATCH)]
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


def test_what_lasts_is_told_by_all_that_ended_lately_also_by_those_that_were_punished() -> None:
    """After a cut the first to begin and end are few and short: they look well while the engine is still too slow."""
    pace = Pace()
    for no in range(12):
        pace.on_finished(permit(no, at=1.0), 0.16, 0.08, 20.0)
    pace.cut_at = 21.0
    for no in range(2):
        pace.on_finished(permit(no, at=21.0), 0.04, 0.08, 22.0)
    excess = pace.excess([], 22.0)
    assert excess is not None
    assert (excess.value, pace.lasting) == (0.5, -1.0)
    pace.excess([at_pace(0.04)] * 8, 30.5)
    assert pace.lasting == 0.5


def test_what_lasts_is_told_by_the_worst_class_and_never_by_a_few() -> None:
    """Seven batch answers prove nothing, eight do, whatever the interactive ones say."""
    pace = Pace()
    live = [at_pace(0.04)] * 8 + [at_pace(0.4, 0.2, PriorityClass.BATCH)] * 8
    for streams, lasting in ((live, -1.0), (live[:-1], 0.5), (live[:7], None), (live[8:] + live[:8], -1.0)):
        pace.excess(streams, 1.0)
        assert pace.lasting == lasting


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
    excess = pace.excess([at_pace(0.04)] * 8, 1.0)
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
