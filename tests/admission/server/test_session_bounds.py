"""What a session may not do, and what the sidecar tells or refuses by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.core.settings import ClassConfig, default_classes
from admission.runtime.host import TargetSpec
from admission.runtime.settings import SessionConfig
from admission.vocabulary import Mode, PriorityClass, Reason, Verdict
from tests.admission.server.desk import SLOTS, Desk, config, reason, ticket, verdicts

ADMITTED, QUEUED, REJECTED, SHED = Verdict.ADMITTED, Verdict.QUEUED, Verdict.REJECTED, Verdict.SHED


def test_waiting_acquires_of_a_session_are_bounded() -> None:
    """One client must not fill the queue of all."""
    desk = Desk(session=SessionConfig(max_waiting=2))
    client = desk.client()

    decisions = client.ask(*range(1, SLOTS + 4))

    assert verdicts(decisions)[-3:] == [QUEUED, QUEUED, REJECTED]
    assert reason(decisions[-1]) is Reason.QUEUE_FULL
    assert decisions[-1].threshold == 2


def test_a_session_that_does_not_acknowledge_gets_no_grants_until_it_does() -> None:
    """Permits for a client that does not read would expire unused while others wait."""
    desk = Desk()
    busy, deaf = desk.client(1), desk.client(2)
    busy.ask(*range(1, SLOTS + 1))
    deaf.write(acquires=[ticket(1)])
    deaf.session.take(desk.now)
    desk.tick(2.1)

    busy.finish(1)
    assert deaf.session.held == 0
    deaf.send(seen=deaf.session.seq - 1)
    desk.tick(0.1)

    assert deaf.session.held == 1


def test_a_session_whose_write_is_blocked_gets_no_grants() -> None:
    """As above, when the network does not even take the answer."""
    desk = Desk()
    busy, blocked = desk.client(1), desk.client(2)
    busy.ask(*range(1, SLOTS + 1))
    blocked.ask(1)
    blocked.send()
    blocked.session.write_began_at = desk.now
    desk.tick(1.1)

    busy.finish(1)

    assert blocked.session.held == 0
    assert desk.sessions.counters["stalls"] == 1


def test_a_ticket_of_an_unknown_model_passes_untracked() -> None:
    """Binding is configuration: a forgotten model must not be an outage."""
    desk = Desk(targets=(TargetSpec(name="a", models=("llama*",), config=config()),))
    client = desk.client()

    decisions = client.ask(1, model="mixtral")
    client.finish(1)

    assert verdicts(decisions) == [ADMITTED]
    assert decisions[0].detail.startswith("untracked")
    assert desk.in_flight == 0
    assert desk.host.routes.unknown == {"model mixtral": 1}
    assert not client.asked_resync


def test_tickets_go_to_their_target_by_name_and_by_model() -> None:
    """Two engines behind one sidecar have two limits."""
    specs = [TargetSpec(name=name, models=(f"{name}*",), config=config()) for name in ("a", "b")]
    desk = Desk(targets=tuple(specs))
    client = desk.client()

    client.ask(1, model="a-7b")
    client.ask(2, model="b-7b")
    client.ask(3, target="b")

    assert [desk.host.view(name).in_flight for name in ("a", "b")] == [1, 2]
    client.finish(1, 2, 3)
    assert [desk.host.view(name).in_flight for name in ("a", "b")] == [0, 0]


def test_an_overloaded_sidecar_refuses_before_it_decides() -> None:
    """A late decision is worth less than an early refusal: the client would have gone its own way."""
    desk = Desk()
    client = desk.client()
    desk.lag.behind, desk.lag.lag_s = True, 0.3

    decisions = client.ask(1)

    assert verdicts(decisions) == [REJECTED]
    assert reason(decisions[0]) is Reason.DEGRADED
    assert "sidecar is overloaded" in decisions[0].detail
    assert (decisions[0].measured, decisions[0].threshold) == (0.3, 0.1)
    assert decisions[0].retry_after.seconds == 1


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.OFF])
def test_an_overloaded_sidecar_refuses_nothing_where_it_does_not_enforce(mode: Mode) -> None:
    """Shadow may never cost anybody a request."""
    desk = Desk(config(mode))
    client = desk.client()
    desk.lag.behind = True

    assert verdicts(client.ask(1)) == [ADMITTED]
    assert desk.in_flight == 0


def test_finishes_are_taken_while_overloaded() -> None:
    """They are what ends an overload."""
    desk = Desk()
    client = desk.client()
    client.ask(1)
    desk.lag.behind = True

    client.finish(1)

    assert desk.in_flight == 0


def test_clients_hear_of_a_new_mode_within_a_tick() -> None:
    """`off` must reach all clients within a second."""
    desk = Desk()
    client = desk.client()

    desk.host.set_mode("default", Mode.OFF)
    desk.tick(0.25)

    answer = client.read()
    assert answer is not None
    assert dict(answer.modes) == {"default": Mode.OFF}


def test_a_draining_sidecar_answers_its_waiters_and_tells_its_clients() -> None:
    """Nobody may be left waiting for a process that is about to end."""
    desk = Desk()
    client = desk.client()
    client.ask(*range(1, SLOTS + 2))

    desk.sessions.announce_drain(30.0)
    desk.host.set_drain("default", True)

    answer = client.read()
    assert answer is not None
    assert answer.drain_in.seconds == 30
    assert [(each.no, reason(each)) for each in answer.decisions] == [(SLOTS + 1, Reason.DRAINING)]
    assert desk.in_flight == SLOTS


@pytest.mark.parametrize("busy", [True, False])
def test_a_message_that_keeps_a_busy_loop_too_long_is_refused_from_there_on(busy: bool) -> None:
    """Other sessions wait behind it: what it asks beyond its slice is answered cheaply. Not if others slow us down."""
    desk = Desk(config(classes=_roomy()))
    client = desk.client()
    desk.step_s = 0.001
    desk.lag.busy = busy

    decisions = client.ask(*range(1, 301))

    late = [decision.no for decision in decisions if decision.reason == Reason.DEGRADED]
    assert late == (list(range(64, 301)) if busy else [])


def _roomy() -> dict[PriorityClass, ClassConfig]:
    """Classes whose queue takes everything."""
    return {rank: replace(each, queue_rate_s=1e6) for rank, each in default_classes().items()}
