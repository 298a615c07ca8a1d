"""Who waits, in which order, for how long."""

from __future__ import annotations

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId
from admission.core.queueing.queue import Queue, Waiter
from admission.vocabulary import PriorityClass


def waiter(
    no: int, priority: PriorityClass = PriorityClass.INTERACTIVE, at: float = 0.0, until: float = 60.0
) -> Waiter:
    """A waiter of 10 + 5 tokens."""
    return Waiter(Ticket(TicketId("s", no), priority), Cost(10, 5, 15), at, until)


def anyone(_: Waiter) -> bool:
    """Passes all."""
    return True


def test_the_more_urgent_class_goes_first_and_ageing_crosses_classes() -> None:
    """Batch waits at most so long, whatever interactive does."""
    queue = Queue(ageing_s=30.0)
    batch, chat = waiter(1, PriorityClass.BATCH, at=0.0), waiter(2, at=20.0)
    queue.add(batch)
    queue.add(chat)

    assert queue.pick(anyone, 21.0, aged=True) is chat
    assert queue.pick(anyone, 31.0, aged=True) is batch
    assert queue.pick(anyone, 31.0, aged=False) is chat


def test_a_returned_waiter_keeps_its_place() -> None:
    """A broken stream costs nobody their turn."""
    queue = Queue(30.0)
    queue.add(waiter(1, at=5.0))
    early = waiter(2, at=1.0)
    queue.add(early)
    assert queue.pick(anyone, 6.0, aged=True) is early


def test_a_held_head_is_stepped_around() -> None:
    """A gate that holds one flow must not hold the others."""
    queue = Queue(30.0)
    for no in (1, 2, 3):
        queue.add(waiter(no, at=float(no)))
    picked = queue.pick(lambda one: one.ticket.id.no > 1, 4.0, aged=True)
    assert picked is not None
    assert picked.ticket.id.no == 2
    assert queue.pick(lambda _: False, 4.0, aged=True) is None


def test_the_deadline_is_that_of_the_waiter_that_is_there() -> None:
    """A ticket that came back has a new deadline; the old one must not fire."""
    queue = Queue(30.0)
    queue.add(waiter(1, until=1.0))
    queue.remove(TicketId("s", 1))
    again = waiter(1, until=5.0)
    queue.add(again)

    assert queue.next_deadline() == 5.0
    assert list(queue.expired(1.0)) == []
    assert list(queue.expired(5.0)) == [again]
    assert queue.next_deadline() is None


def test_a_stale_deadline_on_top_is_skipped_when_firing() -> None:
    """The heap may hold entries of waiters long gone."""
    queue = Queue(30.0)
    queue.add(waiter(1, until=1.0))
    queue.add(waiter(2, until=2.0))
    queue.remove(TicketId("s", 1))
    assert [one.ticket.id.no for one in queue.expired(3.0)] == [2]


def test_the_sums_follow() -> None:
    """Bounds and expected waits are read from them."""
    queue = Queue(30.0)
    queue.add(waiter(1))
    queue.add(waiter(2, PriorityClass.BATCH))
    assert queue.ahead_of(PriorityClass.INTERACTIVE) == (1, 15)
    assert queue.ahead_of(PriorityClass.BATCH) == (2, 30)
    assert queue.remove(TicketId("s", 9)) is None
    queue.remove(TicketId("s", 1))
    assert (len(queue), queue.prompt_tokens[0], queue.cost[0]) == (1, 0, 0)
    assert queue.owned_by("s") == [TicketId("s", 2)]


def test_cancelled_waiters_leave_nothing_behind() -> None:
    """Clients that ask and leave must not grow the heaps."""
    queue = Queue(30.0)
    queue.add(waiter(0))
    for no in range(1, 5_000):
        queue.add(waiter(no))
        queue.remove(TicketId("s", no))
    assert len(queue._deadlines) < 100
    assert len(queue._lines[PriorityClass.INTERACTIVE]) < 100
    head = queue.pick(anyone, 0.0, aged=True)
    assert head is not None
    assert head.ticket.id.no == 0
    queue.remove(TicketId("s", 0))
    assert queue.pick(anyone, 0.0, aged=True) is None
