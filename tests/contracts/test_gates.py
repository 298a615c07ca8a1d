"""Every gate that is found keeps the same promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.controller import ControllerConfig
from admission.core.gates.base import GateKind, Hold, Refuse, discovered
from admission.core.model import Completion, Reading, Ticket, TicketId
from admission.vocabulary import Outcome, PriorityClass, SignalKind, Source

GATES = list(discovered().values())
every_gate = pytest.mark.parametrize("kind", GATES, ids=lambda one: one.name)

readings = st.builds(
    Reading,
    kind=st.sampled_from(SignalKind),
    value=st.floats(0.0, 1e11),
    at=st.floats(0.0, 100.0),
    source=st.just(Source.SCRAPE),
    member=st.sampled_from(["a", "b"]),
)


@every_gate
def test_it_builds_without_settings_and_has_a_place_in_the_configuration(kind: GateKind) -> None:
    """A new gate is a new file and one field."""
    gate = kind.build(kind.config())
    assert gate.name == kind.name
    assert isinstance(getattr(ControllerConfig(), kind.name), kind.config)


@every_gate
@pytest.mark.parametrize("priority", PriorityClass)
def test_without_a_reading_it_lets_everybody_pass(kind: GateKind, priority: PriorityClass) -> None:
    """Missing is not critical: a dead exporter must not become an outage."""
    gate = kind.build(kind.config())
    assert gate.check(Ticket(TicketId("s", 1), priority), idle=False, now=1.0) is None
    assert gate.view().state == "open"


@every_gate
@given(taken=st.lists(readings, max_size=30))
def test_whatever_it_reads_it_says_why_and_a_check_changes_nothing(
    kind: GateKind, taken: list[Reading]
) -> None:
    """Checks repeat while a ticket waits."""
    gate = kind.build(kind.config())
    gate.on_engine_start(0.0)
    for reading in taken:
        gate.observe(reading, reading.at)
    gate.on_tick(101.0)
    ticket = Ticket(TicketId("s", 1), PriorityClass.INTERNAL)
    answers = [gate.check(ticket, idle=False, now=101.0) for _ in range(2)]
    assert answers[0] == answers[1]
    if isinstance(answers[0], Hold | Refuse):
        assert answers[0].why.detail
    gate.commit(ticket, 101.0)
    gate.settle(ticket, Completion(Outcome.OK), 101.0)
    gate.reconfigure(kind.config())
    next_at = gate.next_at()
    assert next_at is None or next_at > 101.0
