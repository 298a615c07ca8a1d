"""What the parts that a target is put together from are told."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.gates.base import QuietGate
from admission.core.limits.base import Load
from admission.core.limits.fixed import Fixed
from admission.core.model import Completion, Ticket, Why
from tests.admission.core.bench import FULL_AT_100K, Bench

SMALL: dict[str, Any] = {"prompt_tokens": 100, "max_tokens": 100}


class Till(QuietGate):
    """A gate that charges: it writes down what it is told."""

    name = "till"
    charges = True

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def commit(self, ticket: Ticket, now: float) -> None:
        """An admission."""
        self.told.append(("commit", ticket.id.no))

    def settle(self, ticket: Ticket, completion: Completion, now: float) -> None:
        """An end."""
        self.told.append(("settle", ticket.id.no))


def test_a_gate_that_charges_is_told_of_each_admission_and_end_once() -> None:
    """And never of a ticket that was refused: refusals cost nothing."""
    bench = Bench(limit=FULL_AT_100K)
    till = Till()
    bench.core.target.charging.append(till)  # type: ignore[arg-type]
    full = bench.fill()
    bench.submit(patience_s=0.0, **SMALL)
    bench.finish(full)
    bench.finish(full)
    assert till.told == [("commit", full.id.no), ("settle", full.id.no)]


class Witness(Fixed):
    """A limit that stands still and keeps what it was told."""

    def __init__(self) -> None:
        super().__init__(FULL_AT_100K)
        self.told: list[Load] = []

    def on_tick(self, load: Load, now: float) -> Why | None:
        """Keep it."""
        self.told.append(load)
        return super().on_tick(load, now)


def test_the_limit_is_told_what_lasts_besides_what_is_new() -> None:
    """Else it grows on what two short answers say a second after a cut."""
    bench = Bench()
    witness = bench.core.target.limit = Witness()
    slow = [bench.admit() for _ in range(8)]
    bench.now += 0.5
    for ticket in slow:
        bench.finish(ticket, engine_ttft_s=0.1, output_tokens=11, decode_s=1.6)
    bench.core.target.pace.cut_at = bench.now
    for ticket in [bench.admit() for _ in range(2)]:
        bench.finish(ticket, engine_ttft_s=0.1, output_tokens=11, decode_s=0.4)
    bench.wait(1.0)
    assert witness.told[-1].excess == pytest.approx(0.5)
    assert witness.told[-1].lasting == pytest.approx(-1.0)
