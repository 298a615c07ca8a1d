"""One odd request, class or client must not stop a target: each of these once did."""

from __future__ import annotations

import pytest

from admission.core.controller import ClassConfig
from admission.core.leases import LeaseConfig
from admission.core.limits.aimd import AimdConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Admitted, Held, LeaseExpired, Queued, Rejected, ShadowDecided, Ticket
from admission.core.settings import default_classes
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, SignalKind
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH = PriorityClass.BATCH
PLENTY = FixedConfig(limit_tokens=10**6)


def serve(bench: Bench, ticket: Ticket, seconds: float = 0.1) -> None:
    """First token and end of a ticket."""
    bench.wait(seconds)
    bench.core.first_token(ticket.id, bench.now)
    bench.core.progress([(ticket.id, 1, 0.0)], bench.now)
    bench.finish(ticket, output_tokens=5)


def test_a_stream_that_never_begins() -> None:
    """It took the whole prefill budget for as long as its client renewed it."""
    bench = Bench(limit=PLENTY, lease=LeaseConfig(ttl_s=1_000.0))
    for _ in range(8):
        serve(bench, bench.admit(prompt_tokens=4_000))
    hung = bench.admit(prompt_tokens=600, owner="hung")
    served = 0
    for _ in range(100):
        ticket = bench.ticket(prompt_tokens=300)
        bench.submit(ticket)
        if ticket.id in bench.core.target.ledger.permits:
            serve(bench, ticket)
            served += 1
        else:
            bench.wait(1.0)
    assert bench.core.knows(hung.id)
    assert served > 70


def test_a_stream_that_hangs_while_others_go_on() -> None:
    """A later first token, or streams that go on, show that its prompt is not what the engine works on."""
    bench = Bench(limit=PLENTY, lease=LeaseConfig(ttl_s=1_000.0))
    running = bench.admit(prompt_tokens=100, owner="running")
    bench.core.first_token(running.id, bench.now)
    bench.admit(prompt_tokens=3_900, owner="hung")
    for _ in range(8):
        bench.core.progress([(running.id, 5, 0.0)], bench.now)
        bench.wait(1.0)
    assert bench.core.view(bench.now).pending_prompt_tokens == 0


def test_silent_permits_that_were_announced_again() -> None:
    """Nobody reports the first token of an answer in one piece, after a restart neither."""
    bench = Bench(limit=PLENTY)
    held = [bench.ticket(prompt_tokens=4_000, stream=False) for _ in range(3)]
    bench.core.reinstate([Held(ticket, 5.0) for ticket in held], bench.now)
    bench.wait(2.0)
    assert bench.core.view(bench.now).pending_prompt_tokens == 0


def test_silent_permits_when_enforcing_begins() -> None:
    """Switching us on was an outage for targets without streams."""
    bench = Bench(mode=Mode.SHADOW, limit=FixedConfig(limit_tokens=5_000))
    for _ in range(5):
        bench.admit(prompt_tokens=4_000, max_tokens=1, stream=False)
    bench.core.set_mode(Mode.ENFORCE, bench.now)
    bench.wait(2.0)
    assert bench.core.view(bench.now).pending_prompt_tokens == 0


def test_an_engine_that_is_back_after_telemetry_died() -> None:
    """The last scrape was good, none came since: then a probe must tell."""
    bench = Bench()
    bench.scrape()
    for ticket in [bench.admit() for _ in range(4)]:
        bench.finish(ticket, Outcome.ERROR)
    only(Rejected, bench.submit())
    bench.wait(11.0)
    bench.finish(bench.admit())
    only(Admitted, bench.submit())


def test_a_probe_passes_full_budgets() -> None:
    """With the prefill budget taken by those that hang on the dead engine, nobody would ever find out."""
    bench = Bench(limit=PLENTY, lease=LeaseConfig(ttl_s=1_000.0))
    serve(bench, bench.admit())
    failing = [bench.admit(prompt_tokens=1, max_tokens=1) for _ in range(3)]
    bench.admit(prompt_tokens=3_900)
    for ticket in failing:
        bench.finish(ticket, Outcome.ERROR)
    bench.now += 2.0
    bench.core.target.prefill.restored = 100.0
    bench.admit(prompt_tokens=100)


def test_a_switched_off_target_does_not_spend_probes() -> None:
    """Else the outage lasted for ever, and enforcing began with refusing everybody."""
    bench = Bench()
    serve(bench, bench.admit())
    for ticket in [bench.admit() for _ in range(3)]:
        bench.finish(ticket, Outcome.ERROR)
    bench.core.set_mode(Mode.OFF, bench.now)
    bench.wait(3.0)
    for _ in range(5):
        bench.admit()
    bench.core.set_mode(Mode.ENFORCE, bench.now)
    bench.admit()


def test_a_ticket_that_misses_its_slo_anyhow_waits_alone() -> None:
    """It blocked the queue for all others while the one before it ran."""
    bench = Bench(limit=FULL_AT_100K)
    for _ in range(6):
        ticket = bench.admit(prompt_tokens=4_000, max_tokens=1)
        bench.now += 4.0
        bench.core.first_token(ticket.id, bench.now)
        bench.finish(ticket)
    bench.admit(prompt_tokens=8_000, max_tokens=1, owner="long")
    bench.submit(prompt_tokens=8_000, max_tokens=1, owner="longer")
    bench.core.target.ledger.prefilled(next(iter(bench.core.target.ledger.permits.values())))
    only(Admitted, bench.submit(prompt_tokens=10, max_tokens=1))


def test_a_batch_backlog_leaves_interactive_nine_grants_in_ten() -> None:
    """Everything older than the ageing time went first: a batch backlog refused most interactive requests."""
    classes = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(patience_s=1e6, queue_rate_s=1e6)}
    bench = Bench(limit=FixedConfig(limit_tokens=1_000), ageing_s=5.0, classes=classes)
    running = bench.admit(prompt_tokens=900, max_tokens=100)
    bench.core.first_token(running.id, bench.now)
    for _ in range(60):
        bench.submit(priority=BATCH, prompt_tokens=900, max_tokens=100, owner="batch")
    bench.wait(6.0)
    for _ in range(60):
        bench.submit(prompt_tokens=900, max_tokens=100, owner="chat")
    order = []
    for _ in range(40):
        bench.core.first_token(running.id, bench.now)
        admitted = only(Admitted, bench.finish(running))
        running = admitted.ticket
        order.append(running.priority)
    assert 3 <= order.count(BATCH) <= 5


def test_nobody_promotes_itself_by_saying_how_long_it_has_waited() -> None:
    """The wire's word counts for ten seconds at most."""
    bench = Bench(limit=FULL_AT_100K, ageing_s=30.0)
    full = bench.fill()
    first = bench.ticket(priority=BATCH)
    bench.submit(first)
    bench.submit(priority=BATCH, waited_s=59.0)
    bench.wait(12.0)
    assert bench.core.target.queue.waiters()[1].arrived_at == pytest.approx(bench.now - 22.0)
    assert bench.core.knows(full.id)


def test_a_caller_that_cannot_wait_passes_those_less_urgent() -> None:
    """Rate limit, ext_authz and auth_request never queue: one batch waiter refused them all."""
    bench = Bench(limit=FULL_AT_100K)
    bench.core.first_token(bench.admit(priority=BATCH, prompt_tokens=60_000, max_tokens=1).id, bench.now)
    only(Queued, bench.submit(priority=BATCH, prompt_tokens=20_000, max_tokens=1))
    only(Admitted, bench.submit(patience_s=0.0, prompt_tokens=100, max_tokens=10))
    refused = only(Rejected, bench.submit(patience_s=0.0, prompt_tokens=90_000, max_tokens=10))
    assert refused.reason is Reason.DEADLINE
    assert "the limit is full" in refused.why.detail


def test_a_deaf_session_fills_its_class_alone() -> None:
    """Others of its class are admitted at once when there is room."""
    bench = Bench(limit=PLENTY)
    bench.core.stalled("deaf", True, bench.now)
    refused = bench.submit(owner="deaf", patience_s=0.0)
    assert "does not read" in only(Rejected, refused).why.detail
    only(Queued, bench.submit(owner="deaf"))
    only(Admitted, bench.submit(owner="other"))


def test_a_late_timer_in_shadow() -> None:
    """A ticket whose own forecast turned hopeless between two looks crashed the submit."""
    bench = Bench(mode=Mode.SHADOW, limit=PLENTY)
    bench.core.target.prefill.restored = 8_000.0
    bench.admit(prompt_tokens=600, stream=False)
    bench.submit(prompt_tokens=15_000)
    bench.now += 0.2
    admitted = only(Admitted, bench.submit(prompt_tokens=700))
    assert bench.core.knows(admitted.ticket.id)
    assert some(Rejected, bench.wait(3.0)) == []


def test_critical_kv_with_ten_thousand_waiters_asks_each_gate_once() -> None:
    """It sorted and asked for every waiter on each input."""
    classes = {
        **default_classes(),
        PriorityClass.INTERACTIVE: ClassConfig(queue_tickets=3_000, queue_rate_s=1e6),
    }
    bench = Bench(limit=FULL_AT_100K, classes=classes)
    bench.core.first_token(bench.admit(prompt_tokens=10).id, bench.now)
    bench.scrape(kv=0.98, running=1)
    gate = bench.core.target.kv_gate
    asked = 0
    check = gate.check

    def counting(ticket: Ticket, *, idle: bool, now: float) -> object:
        nonlocal asked
        asked += 1
        return check(ticket, idle=idle, now=now)

    for _ in range(2_000):
        bench.submit(prompt_tokens=1, max_tokens=1)
    gate.check = counting  # type: ignore[method-assign, assignment]
    bench.observe(SignalKind.RUNNING, 1)
    bench.submit(prompt_tokens=1, max_tokens=1)
    assert asked < 10


def test_a_pause_of_the_whole_process_costs_no_lease() -> None:
    """Nobody could renew while we stood still."""
    bench = Bench()
    ticket = bench.admit()
    bench.core.wake(bench.now)
    bench.now += 40.0
    assert some(LeaseExpired, bench.core.wake(bench.now)) == []
    assert bench.core.knows(ticket.id)
    assert len(some(LeaseExpired, bench.wait(31.0))) == 1


def test_a_late_timer_admits_nobody_after_the_deadline() -> None:
    """A finish that comes before the timer must not hand the permit to one whose time is over."""
    bench = Bench(limit=FULL_AT_100K)
    full = bench.fill()
    bench.submit(prompt_tokens=10)
    bench.now += 1.7
    assert some(Admitted, bench.finish(full)) == []


def test_a_limit_of_one_class_grows_from_its_own_room() -> None:
    """Internal tickets may use half of the limit; growth asked for sixty percent in use, which they never reach."""
    bench = Bench(limit=AimdConfig(initial_tokens=4_000, floor_tokens=100))
    tickets = []
    for no in range(40):
        ticket = bench.ticket(
            priority=PriorityClass.INTERNAL, prompt_tokens=100, max_tokens=100, owner=str(no)
        )
        bench.submit(ticket)
        bench.core.first_token(ticket.id, bench.now)
        tickets.append(ticket)
    before = bench.core.view(bench.now).limit
    for _ in range(6):
        items = [(ticket.id, 20, 0.0) for ticket in tickets]
        bench.core.progress(items, bench.now)
        bench.wait(1.0)
        bench.submit(priority=PriorityClass.INTERNAL, prompt_tokens=100, max_tokens=100, owner="more")
    assert bench.core.view(bench.now).limit > before


def test_the_fate_of_a_shadow_waiter_that_ends_is_open() -> None:
    """It was told as admitted though the limit stayed full."""
    bench = Bench(mode=Mode.SHADOW, limit=FULL_AT_100K)
    bench.fill()
    waiting = bench.ticket()
    bench.submit(waiting)
    assert only(ShadowDecided, bench.finish(waiting)).verdict.name == "QUEUED"
