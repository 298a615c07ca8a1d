"""The host gives inputs their time, wakes who asked for it, and tells listeners in order."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from admission.core.controller import ControllerConfig
from admission.core.model import Admitted, Completion, Event, Queued, Ticket, TicketId
from admission.runtime.host import Host, TargetSpec
from admission.runtime.inputs import Op
from admission.vocabulary import Mode, Outcome

ID = TicketId("o", 1)


class Scripted:
    """A controller that plays a script: what to return, when to be woken."""

    def __init__(self, config: ControllerConfig, *, random: Random, now: float, saved: Any) -> None:
        self.seen: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: list[list[Event]] = []
        self.wakeup: float | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in {op.method for op in Op}:
            raise AttributeError(name)

        def take(*args: Any) -> list[Event]:
            self.seen.append((name, args))
            if name == "wake":
                self.wakeup = None
            return self.answers.pop(0) if self.answers else []

        return take

    def next_wakeup(self) -> float | None:
        """As scripted."""
        return self.wakeup


class Recorder:
    """A journal in memory."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Op, tuple[Any, ...], float, list[Event]]] = []

    def record(self, target: str, op: Op, args: tuple[Any, ...], now: float, events: list[Event]) -> None:
        """Keep it."""
        self.rows.append((target, op, args, now, events))


class Ears:
    """A listener."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Event, float]] = []

    def on_event(self, target: str, event: Event, now: float) -> None:
        """Keep it."""
        self.heard.append((target, event, now))


def host_of(*names: str, clock: Any = None, journal: Recorder | None = None) -> tuple[Host, list[Scripted]]:
    """A host over scripted controllers."""
    made: list[Scripted] = []

    def make(*args: Any, **kwargs: Any) -> Scripted:
        made.append(Scripted(*args, **kwargs))
        return made[-1]

    specs = [TargetSpec(name=name) for name in names or ("a",)]
    host = Host(specs, clock=clock or (lambda: 5.0), random=Random(1), journal=journal, make=make)
    return host, made


def test_an_input_gets_one_time_for_everything() -> None:
    """Core, journal and listeners must agree on when it happened."""
    times = iter([0.0, 1.0, 2.0, 3.0])
    journal, ears = Recorder(), Ears()
    host, (controller,) = host_of(clock=lambda: next(times), journal=journal)
    host.listen(ears)
    event = Admitted(Ticket(ID), 0.0, 1)
    controller.answers = [[event]]

    host.submit("a", event.ticket)

    assert controller.seen == [("submit", (event.ticket, 1.0))]
    assert [(row[1], row[3]) for row in journal.rows] == [(Op.SUBMIT, 1.0)]
    assert ears.heard == [("a", event, 1.0)]


def test_listeners_hear_in_the_order_of_listening_and_of_events() -> None:
    """Answers go out before anybody counts them."""
    host, (controller,) = host_of()
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_event(self, _target: str, event: Event, _now: float) -> None:
            order.append(f"{self.name} {type(event).__name__}")

    host.listen(Named("first"))
    host.listen(Named("second"))
    ticket = Ticket(ID)
    controller.answers = [[Queued(ticket, 1, 0.0), Admitted(ticket, 0.0, 1)]]

    host.submit("a", ticket)

    assert order == ["first Queued", "second Queued", "first Admitted", "second Admitted"]


def test_every_input_reaches_its_target_only_and_owners_reach_all() -> None:
    """A session may hold permits anywhere; a request runs in one place."""
    host, (a, b) = host_of("a", "b")

    host.finish("a", ID, Completion(Outcome.OK))
    host.first_token("b", ID, 0.25)
    host.detach("owner")

    assert [name for name, _ in a.seen] == ["finish", "detach"]
    assert [name for name, _ in b.seen] == ["first_token", "detach"]
    assert b.seen[0] == ("first_token", (ID, 5.0, 0.25))


def test_what_is_told_in_front_of_the_core_is_heard_and_not_recorded() -> None:
    """A replay of the inputs must not meet what was no input."""
    journal, ears = Recorder(), Ears()
    host, (controller,) = host_of(journal=journal)
    host.listen(ears)

    host.tell("a", Queued(Ticket(ID), 1, 0.0))

    assert len(ears.heard) == 1
    assert (controller.seen, journal.rows) == ([], [])


def test_an_unknown_target_is_a_key_error() -> None:
    """Routing is asked first: reaching the host with a wrong name is a mistake of ours."""
    host, _ = host_of()

    with pytest.raises(KeyError):
        host.submit("b", Ticket(ID))


def test_targets_must_be_named_once() -> None:
    """Two limits of one name would each see half."""
    with pytest.raises(ValueError, match="each name once"):
        host_of("a", "a")


async def turns() -> None:
    """Let the loop run what is due now."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_controller_is_woken_when_it_asked_for_it() -> None:
    """Deadlines fire by timer, not by the next arrival."""
    host, (controller,) = host_of()
    host.start()
    controller.wakeup = 5.0

    host.cancel("a", ID)
    await turns()

    assert [name for name, _ in controller.seen] == ["cancel", "wake"]
    host.stop()


async def test_a_controller_that_asked_for_later_is_left_alone() -> None:
    """A wake-up for nothing is an input in the journal and time on the loop."""
    host, (controller,) = host_of()
    host.start()
    controller.wakeup = 5000.0

    host.cancel("a", ID)
    await turns()

    assert [name for name, _ in controller.seen] == ["cancel"]
    host.stop()


async def test_only_the_target_that_is_due_is_woken() -> None:
    """One timer serves all."""
    host, (a, b) = host_of("a", "b")
    a.wakeup, b.wakeup = 5.0, 5000.0
    host.start()

    await turns()

    assert [name for name, _ in a.seen] == ["wake"]
    assert b.seen == []
    host.stop()


async def test_after_stop_nothing_is_woken() -> None:
    """The loop may outlive the host."""
    host, (controller,) = host_of()
    host.start()
    controller.wakeup = 5.0
    host.stop()

    await turns()

    assert controller.seen == []


def test_the_real_controller_is_the_default() -> None:
    """Everything above is about the shell: this is the house."""
    host = Host([TargetSpec(config=ControllerConfig(mode=Mode.ENFORCE))], clock=lambda: 1.0)

    events = host.submit("default", Ticket(ID, prompt_tokens=10, max_tokens=10))

    assert [type(event) for event in events if isinstance(event, Admitted)] == [Admitted]
    assert host.view("default").in_flight == 1
    assert host.saved()["default"].held == 1
