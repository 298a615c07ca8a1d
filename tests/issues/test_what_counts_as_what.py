"""Counting mistakes that once moved a limit, or kept it from moving."""

from __future__ import annotations

import pytest

from admission.core.cost import CostConfig, CostModel
from admission.core.gates.vram import VramConfig, VramWatermark
from admission.core.leases import LeaseConfig, Leases
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import (
    Admitted,
    Flow,
    Held,
    LimitChanged,
    Reading,
    Rejected,
    Ticket,
    TicketId,
)
from admission.core.pace import Pace
from admission.core.saved import SavedState
from admission.vocabulary import Outcome, SignalKind, Source
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some
from tests.admission.core.test_pace import in_progress, permit, recent_s

GIB = 1 << 30


def test_n_answers_are_n_sequences_of_ours() -> None:
    """Twenty requests for four answers each looked like sixty foreign ones."""
    bench = Bench(limit=FixedConfig(limit_tokens=10**6))
    for no in range(20):
        bench.core.first_token(bench.admit(n=4, owner=str(no)).id, bench.now)
    for _ in range(2):
        bench.scrape(running=80)
    assert bench.core.view(bench.now).untracked == 0


def test_n_answers_are_not_n_times_as_fast() -> None:
    """Four streams of 100 ms a token each read as one of 25 ms."""
    four = in_progress(201, 0.0, 5.0)
    four.ticket.n = 4
    assert recent_s(four, 1.0, 5.0) == pytest.approx(0.1)
    bench = Bench()
    ticket = bench.admit(n=4)
    bench.core.first_token(ticket.id, bench.now)
    done = bench.finish(ticket, output_tokens=44, decode_s=1.0)
    assert done[-1].tpot_s == pytest.approx(0.1)  # type: ignore[union-attr]


def test_a_member_that_joins_with_a_counter_is_no_preemption() -> None:
    """Its first reading was taken for five hundred preemptions and cut the limit to the floor."""
    bench = Bench(limit=AimdConfig(initial_tokens=10_000))
    bench.admit(prompt_tokens=100)
    bench.observe(SignalKind.PREEMPTIONS_TOTAL, 0, member="a")
    bench.observe(SignalKind.PREEMPTIONS_TOTAL, 500, member="b")
    assert some(LimitChanged, bench.wait(1.0)) == []
    bench.wait(60.0)
    bench.observe(SignalKind.PREEMPTIONS_TOTAL, 900, member="b")
    assert some(LimitChanged, bench.wait(1.0)) == []


def test_two_members_of_one_round_are_one_look() -> None:
    """Slots were learned within a single scrape of a pool."""
    bench = Bench()
    for member in ("a", "b"):
        bench.observe(SignalKind.KV_USAGE_RATIO, 0.1, member=member)
        bench.observe(SignalKind.RUNNING, 8, member=member)
        bench.observe(SignalKind.WAITING, 3, member=member)
    assert bench.core.view(bench.now).slots is None


def test_members_that_left_make_room_for_those_that_come() -> None:
    """After 256 pods ever seen a rolling pool went blind, and kept the capacity of the dead."""
    bench = Bench()
    for no in range(300):
        bench.now += 70.0
        bench.observe(SignalKind.RUNNING, 2, member=f"pod-{no}")
        bench.observe(SignalKind.KV_CAPACITY_TOKENS, 1_000, member=f"pod-{no}")
    view = bench.core.view(bench.now)
    assert (view.engine_running, view.kv_capacity_tokens) == (2, 1_000)


def test_restarting_six_times_keeps_the_limit() -> None:
    """Each restart saved the half from which it had just begun to climb."""
    saved = SavedState(limit=400_000, learned=True, mean_cost=900.0)
    for _ in range(6):
        bench = Bench(saved=saved)
        assert bench.core.view(bench.now).limit == 200_000
        saved = bench.core.save(bench.now)
    assert saved.limit == 400_000
    for _ in range(2):
        bench.scrape(running=10)
    assert bench.core.view(bench.now).untracked == 9_000


def test_an_outage_leaves_an_operators_limit_alone() -> None:
    """It was halved under the operator's hand."""
    bench = Bench()
    bench.core.set_limit(50_000, None, bench.now)
    bench.scrape()
    for ticket in [bench.admit() for _ in range(3)]:
        bench.finish(ticket, Outcome.ERROR)
    bench.wait(2.0)
    bench.scrape()
    assert bench.core.view(bench.now).limit == 50_000


def test_what_waits_inside_the_engine_is_not_taken_over() -> None:
    """256 running and ten thousand waiting made a limit of ten times the KV."""
    bench = Bench(limit=AimdConfig(initial_tokens=2_000))
    bench.observe(SignalKind.KV_CAPACITY_TOKENS, 100_000)
    bench.observe(SignalKind.RUNNING, 256)
    bench.observe(SignalKind.WAITING, 10_000)
    assert bench.core.view(bench.now).limit == 100_000


def test_a_permit_admitted_alone_is_no_ghost_come_back() -> None:
    """What clients admit while detached was never saved: it must not pay off what was."""
    bench = Bench(saved=SavedState(held=5, held_tokens=5_000))
    bench.core.reinstate([Held(bench.ticket(), 1.0, local=True)], bench.now)
    assert bench.core.view(bench.now).untracked == 5_000


def test_without_first_tokens_the_rate_follows_the_engines_queue_within_reason() -> None:
    """Answers in one piece left it at its guess for ever, or let it grow to the skies."""
    bench = Bench(limit=FixedConfig(limit_tokens=10**7))
    bench.admit(stream=False)
    for _ in range(60):
        bench.core.renew("s", bench.now)
        bench.wait(1.0)
        bench.scrape(running=20, waiting=50)
    assert bench.core.view(bench.now).prefill_rate < 100.1
    for _ in range(400):
        bench.core.target.refused_for_prefill = True
        bench.core.renew("s", bench.now)
        bench.scrape(running=20, waiting=0)
        bench.now += 0.001
    assert bench.core.view(bench.now).prefill_rate <= 1e6


def test_an_answer_in_one_piece_tells_its_pace() -> None:
    """Its time less its prompt's, over its tokens: else nothing but silence came from such targets."""
    bench = Bench(limit=AimdConfig(initial_tokens=4_000, floor_tokens=100))
    for no in range(12):
        ticket = bench.admit(stream=False, owner=str(no), prompt_tokens=10, max_tokens=50)
        bench.wait(6.0)
        bench.finish(ticket, output_tokens=40)
    ratio = bench.core.view(bench.now).tpot_ratio
    assert ratio is not None
    assert ratio > 1.5


def test_one_long_answer_does_not_hide_the_others() -> None:
    """The window ended at the first request that had begun too early."""
    pace = Pace()
    for no in range(9):
        pace.on_finished(permit(no, at=1.0), 0.2, 0.08, 4.0)
    pace.on_finished(permit(99, at=-90.0), 0.01, 0.08, 5.0)
    excess = pace.excess([], 5.0)
    assert excess is not None
    assert excess.value == pytest.approx(-1.5)


def test_requests_from_before_the_last_cut_cannot_cut_again() -> None:
    """One hiccup of a second made seven cuts down to the floor."""
    pace = Pace()
    for no in range(20):
        pace.on_finished(permit(no, at=1.0), 0.2, 0.08, 2.0)
    assert pace.excess([], 2.0) is not None
    pace.cut_at = 2.0
    assert pace.excess([], 3.0) is None


def test_an_interval_that_began_idle_is_no_slow_engine() -> None:
    """All its time was charged to the streams at its end."""
    pace = Pace()
    pace.on_generated(100.0, 0, 0.08, 0.0)
    pace.on_generated(110.0, 10, 0.08, 1.0)
    assert pace.excess([], 1.0) is None


def test_a_single_stream_in_view_is_a_signal() -> None:
    """Shown as full sight and told as no signal at all."""
    bench = Bench()
    ticket = bench.admit()
    bench.core.first_token(ticket.id, bench.now)
    for _ in range(15):
        bench.core.progress([(ticket.id, 20, 0.0)], bench.now)
        bench.wait(1.0)
    assert bench.core.view(bench.now).frozen == ""


def test_the_model_in_use_is_not_forgotten_for_invented_ones() -> None:
    """Sixty-four made-up names erased what was learned."""
    model = CostModel(CostConfig(max_models=4))
    chat = Ticket(TicketId("s", 1), flow=Flow(model="chat"), prompt_tokens=1)
    for _ in range(10):
        model.learn(chat, 1, 4_000, 0)
    for no in range(20):
        model.predict(Ticket(TicketId("s", 2), flow=Flow(model=str(no)), prompt_tokens=1))
        model.predict(chat)
    assert model.predict(chat).output == 4_000


def test_a_growing_engine_at_rest_gets_one_request() -> None:
    """A caching allocator keeps what it once took: the gate never opened again."""
    gate = VramWatermark(VramConfig(rule="growing"))
    for kind, value in ((SignalKind.VRAM_TOTAL_BYTES, 80 * GIB), (SignalKind.VRAM_FREE_BYTES, 5 * GIB)):
        gate.observe(Reading(kind, value, 1.0, Source.NVML, "GPU-1"), 1.0)
    ticket = Ticket(TicketId("s", 1))
    assert gate.check(ticket, idle=True, now=1.0) is None
    assert gate.check(ticket, idle=False, now=1.0) is not None


def test_breaking_streams_leave_no_entries_behind() -> None:
    """Each break of a stream added one for good."""
    leases = Leases(LeaseConfig())
    leases.grant(TicketId("a", 1), 0.0)
    for no in range(500):
        leases.detach("a", no * 0.01)
        leases.renew("a", no * 0.01)
    assert len(leases._heap) < 5


def test_long_waits_do_not_all_end_at_the_bound() -> None:
    """Callers sent away for a minute came back in the same second."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.core.target.drained.add(10)
    bench.wait(1.0)
    answers = {
        only(Rejected, bench.submit(patience_s=0.0, prompt_tokens=90_000)).retry_after_s for _ in range(20)
    }
    assert len(answers) == 20
    assert max(answer or 0 for answer in answers) <= 60.0


def test_a_ticket_alone_before_a_full_limit_is_told_a_wait() -> None:
    """Its own cost must drain first: zero seconds was a lie."""
    bench = Bench(limit=FULL_AT_100K)
    bench.fill()
    bench.core.target.drained.add(1_000)
    bench.wait(1.0)
    queued = bench.submit(prompt_tokens=100, max_tokens=10)
    assert queued[0].expected_wait_s > 0.5  # type: ignore[union-attr]
    assert some(Admitted, queued) == []
