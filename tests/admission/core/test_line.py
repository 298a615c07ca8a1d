"""The orders in which a class is served."""

from __future__ import annotations

import pytest

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId
from admission.core.queueing.line import Line, Order, Waiter


def anyone(_: Waiter) -> bool:
    """Passes all."""
    return True


def waiter(no: int, at: float, tokens: int, due_at: float) -> Waiter:
    """One that arrived then, with a prompt of that size, which takes a second for each 3,000 tokens."""
    cost = Cost(tokens, 1, tokens + 1)
    return Waiter(Ticket(TicketId("s", no)), cost, at, at + 9.0, due_at, due_at - tokens / 3_000, at + 1.5)


class Desk:
    """A line, and who is still in it."""

    def __init__(self, order: Order = "fifo") -> None:
        self.waiting: dict[TicketId, Waiter] = {}
        self.line = Line(self.waiting, order)

    def add(self, *waiters: Waiter) -> None:
        """They come."""
        for one in waiters:
            self.waiting[one.ticket.id] = one
            self.line.add(one)

    def serve(self, now: float) -> list[int]:
        """All, one after the other."""
        numbers = []
        while (one := self.line.first(anyone, now)) is not None:
            numbers.append(one.ticket.id.no)
            del self.waiting[one.ticket.id]
            self.line.served(one, now)
        return numbers


THREE = (waiter(1, 0.0, 500, 2.5), waiter(2, 1.0, 9_000, 5.0), waiter(3, 2.0, 20, 4.0))


@pytest.mark.parametrize(
    ("order", "served"),
    [
        ("fifo", [1, 2, 3]),
        ("newest", [3, 2, 1]),
        ("deadline", [1, 3, 2]),
        ("slack", [2, 1, 3]),
        ("cost", [3, 1, 2]),
    ],
)
def test_each_order_serves_as_it_says(order: Order, served: list[int]) -> None:
    """By arrival, newest first, by when its first token is due, by when it must start for that, by cost."""
    desk = Desk(order)
    desk.add(*THREE)
    assert desk.serve(1.4) == served


@pytest.mark.parametrize(
    ("order", "served"),
    [("deadline", [1, 3, 2]), ("newest", [1, 3, 2]), ("slack", [1, 2, 3]), ("cost", [1, 3, 2])],
)
def test_whoever_has_been_passed_for_long_enough_goes_first_and_then_others(
    order: Order, served: list[int]
) -> None:
    """Else newcomers or small requests would starve the rest, or those that were passed would crowd out everybody."""
    desk = Desk(order)
    desk.add(*THREE)
    assert desk.serve(2.6) == served


def test_after_three_times_its_cost_the_next_has_its_turn() -> None:
    """Large ones get a quarter of what is granted, and small ones the rest."""
    desk = Desk("cost")
    desk.add(
        *(waiter(no, 0.0, 1_000, 9.0) for no in (1, 2)), *(waiter(no, 2.0, 99, 9.0) for no in range(10, 50))
    )
    order = desk.serve(2.5)
    assert order[0] == 1
    assert order.index(2) == 32


def test_with_one_target_for_all_the_earliest_due_is_the_oldest() -> None:
    """So nobody starves: whoever comes later is due later."""
    desk = Desk("deadline")
    desk.add(*(waiter(no, float(no), 9_000 - no, no + 2.0) for no in range(9)))
    assert desk.serve(99.0) == list(range(9))


def test_an_old_one_that_is_held_is_stepped_around() -> None:
    """A gate that holds it must not hold the others."""
    desk = Desk("cost")
    desk.add(*THREE)
    picked = desk.line.first(lambda one: one.ticket.id.no != 1, 5.0)
    assert picked is THREE[2]


def test_another_order_holds_for_those_that_wait_already() -> None:
    """A change of settings takes effect at once, without those that left."""
    desk = Desk("fifo")
    desk.add(*THREE, waiter(4, 0.0, 1, 0.0))
    del desk.waiting[TicketId("s", 4)]
    desk.line.reorder("cost")
    assert desk.serve(1.4) == [3, 1, 2]


def test_those_that_left_leave_nothing_behind() -> None:
    """Memory follows those that wait, not those that came."""
    desk = Desk("cost")
    for no in range(500):
        desk.add(waiter(no, float(no), no, 0.0))
        del desk.waiting[TicketId("s", no)]
        desk.line.compact(0)
    assert len(desk.line) <= 65
