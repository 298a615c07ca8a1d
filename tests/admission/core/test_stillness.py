"""An engine that stands still, told apart from a slow one: what it stood is nobody's pace and cuts no limit."""

from __future__ import annotations

import pytest

from admission.core.limits.aimd import AimdConfig
from admission.core.model import Event, Held, LimitChanged, Ticket
from admission.core.stillness import Stillness
from tests.admission.core.bench import Bench, some

SLO_S = 0.08
FINE_S = 0.05
STOOD_S = 8.0


class Engine(Bench):
    """Streams of ours that all get their tokens together, reported four times a second."""

    def __init__(self) -> None:
        super().__init__(limit=AimdConfig(initial_tokens=50_000))
        self.streams: list[Ticket] = []
        self.events: list[Event] = []

    def begin(self, count: int = 10) -> None:
        """So many streams more, with their first token at once."""
        for _ in range(count):
            ticket = self.admit(max_tokens=400)
            self.core.first_token(ticket.id, self.now)
            self.streams.append(ticket)

    def report(self, chunks: int, streams: list[Ticket] | None = None) -> None:
        """So many chunks of each came just now."""
        told = self.streams if streams is None else streams
        self.events += self.core.progress([(ticket.id, chunks, 0.0) for ticket in told], self.now)

    def pause(self, seconds: float) -> None:
        """No chunk comes, their holder lives."""
        self.events += self.wait(seconds)
        self.core.renew("s", self.now)

    def run(self, seconds: float, streams: list[Ticket] | None = None) -> None:
        """Decode at a fine pace."""
        for _ in range(round(seconds / 0.25)):
            self.pause(0.25)
            self.report(round(0.25 / FINE_S), streams)

    def end(self) -> None:
        """All that run end."""
        while self.streams:
            self.events += self.finish(self.streams.pop())

    @property
    def stood_s(self) -> float:
        """How long it is thought to have stood."""
        return self.core.target.stillness.total_s

    def ratio(self) -> float | None:
        """TPOT over its SLO of all that ended lately."""
        excess = self.core.target.pace.excess([], self.now)
        return None if excess is None else 1.0 - excess.value


def test_a_standstill_of_the_whole_engine_cuts_nothing() -> None:
    """Eight seconds of garbage collection say nothing of how many may run: a cut would refuse work for no reason."""
    engine = Engine()
    engine.begin()
    engine.run(6.0)
    engine.pause(STOOD_S)
    engine.run(6.0)
    assert some(LimitChanged, engine.events) == []
    assert engine.core.view(engine.now).limit == 50_000
    tpot_ratio = engine.core.view(engine.now).tpot_ratio
    assert tpot_ratio == pytest.approx(FINE_S / SLO_S, abs=0.02)


def test_while_it_stands_it_has_no_pace() -> None:
    """Nobody can tell yet how long it will be: neither cut nor growth."""
    engine = Engine()
    engine.begin()
    engine.run(6.0)
    engine.pause(3.0)
    assert engine.core.law.excess is None
    engine.run(1.0)
    engine.pause(0.5)
    assert engine.core.law.excess is not None


@pytest.mark.parametrize("begun_with_it", [0, 20])
def test_streams_that_end_after_a_standstill_do_not_count_it(begun_with_it: int) -> None:
    """Those of before have not decoded in it, and those whose first token ended it had nothing to do with it."""
    engine = Engine()
    engine.begin()
    engine.run(4.0)
    engine.pause(STOOD_S)
    engine.begin(begun_with_it)
    engine.report(1)
    engine.run(2.0)
    assert engine.stood_s == pytest.approx(STOOD_S)
    engine.end()
    assert engine.ratio() == pytest.approx(FINE_S / SLO_S, abs=0.1)
    assert some(LimitChanged, engine.events) == []


def test_an_answer_that_was_whole_before_the_standstill_is_not_made_faster_by_it() -> None:
    """Its holder said so late: what is taken off its time must have been in it."""
    engine = Engine()
    engine.begin(20)
    engine.run(4.0)
    whole, rest = engine.streams[:10], engine.streams[10:]
    engine.pause(STOOD_S)
    engine.report(1, rest)
    assert engine.stood_s == pytest.approx(STOOD_S)
    for no, ticket in enumerate(whole):
        engine.finish(ticket, output_tokens=81, decode_s=4.0 if no % 2 else None)
    assert engine.ratio() == pytest.approx(FINE_S / SLO_S, abs=0.01)


def test_a_slow_engine_is_not_excused_for_long() -> None:
    """When each step takes more than a second it is the load, or nothing ever cuts."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    for _ in range(10):
        engine.pause(1.5)
        engine.report(1)
    assert engine.stood_s <= 2.0
    assert engine.core.view(engine.now).limit < 50_000


def test_a_second_standstill_is_excused_when_it_is_rare() -> None:
    """One a minute is a pause like the first, two in half a minute are how the engine runs."""
    engine = Engine()
    engine.begin()
    for run_s in (2.0, 40.0, 10.0):
        engine.run(run_s)
        engine.pause(3.0)
    engine.run(1.0)
    assert engine.stood_s == pytest.approx(2 * 3.25)


def test_streams_that_stop_beside_others_are_their_own_pace() -> None:
    """They may be late because too many run: they are judged like any others."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    slow, rest = engine.streams[:9], engine.streams[9:]
    engine.run(STOOD_S, rest)
    assert engine.stood_s == 0.0
    excess = engine.core.law.excess
    assert excess is not None
    assert excess.value < 0
    assert len(some(LimitChanged, engine.events)) >= 1
    engine.report(1, slow)
    assert engine.stood_s == 0.0


def test_a_stream_alone_that_stops_excuses_nothing() -> None:
    """Nobody can tell whether it is the engine; and one that hangs would silence the law for all others."""
    engine = Engine()
    engine.begin(1)
    engine.run(2.0)
    engine.pause(STOOD_S)
    engine.report(1)
    assert engine.stood_s == 0.0


def test_without_reports_of_chunks_nothing_is_left_out() -> None:
    """Silence between two first tokens is nobody's report."""
    engine = Engine()
    for _ in range(6):
        engine.begin(2)
        engine.pause(5.0)
    assert engine.stood_s == 0.0
    untold = Stillness()
    untold.moved(0.0, others=True, chunks=1)
    for at in (0.9, 1.8, 2.7, 12.0):
        untold.moved(at, others=True)
    assert (untold.total_s, untold.standing(20.0)) == (0.0, False)


def test_a_first_token_ends_the_silence() -> None:
    """It comes with no chunk reported yet; what the engine stood before is over, and none of that stream's pace."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    engine.pause(STOOD_S)
    assert engine.core.target.stillness.standing(engine.now)
    engine.begin(1)
    assert not engine.core.target.stillness.standing(engine.now)
    assert engine.stood_s == pytest.approx(STOOD_S)
    permits = engine.core.target.ledger.permits
    assert permits[engine.streams[-1].id].still_s == pytest.approx(STOOD_S)
    assert permits[engine.streams[0].id].still_s == 0.0


def test_a_first_token_told_late_began_before_the_standstill() -> None:
    """So what the engine stood since is left out of its pace too."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    late = engine.admit()
    engine.pause(STOOD_S)
    engine.report(1)
    engine.core.first_token(late.id, engine.now, STOOD_S - 0.1)
    assert engine.core.target.ledger.permits[late.id].still_s == 0.0
    assert engine.stood_s == pytest.approx(STOOD_S)


def test_idle_time_is_no_standstill() -> None:
    """A night without requests must not excuse the first ones of the morning."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    engine.end()
    engine.pause(100.0)
    engine.begin()
    engine.run(2.0)
    assert engine.stood_s == 0.0


def test_streams_announced_again_after_an_idle_time_excuse_nothing() -> None:
    """The silence before they were announced was not theirs."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    engine.end()
    engine.pause(100.0)
    engine.streams = [engine.ticket(max_tokens=400) for _ in range(10)]
    held = [Held(ticket, 5.0, first_token=True, chunks=100) for ticket in engine.streams]
    engine.core.reinstate(held, engine.now)
    engine.run(1.0)
    assert engine.stood_s == 0.0


def test_a_standstill_of_streams_that_were_announced_counts_like_any_other() -> None:
    """After a restart of ours as before it."""
    engine = Engine()
    engine.streams = [engine.ticket(max_tokens=400) for _ in range(10)]
    held = [Held(ticket, 5.0, first_token=True, chunks=100) for ticket in engine.streams]
    engine.core.reinstate(held, engine.now)
    engine.run(2.0)
    engine.pause(STOOD_S)
    engine.report(1)
    assert engine.stood_s == pytest.approx(STOOD_S)


def test_a_standstill_before_it_was_announced_is_not_taken_off_a_stream() -> None:
    """Its pace is measured from there on."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    engine.pause(STOOD_S)
    engine.run(1.0)
    engine.end()
    engine.pause(40.0)
    engine.streams = [engine.ticket(max_tokens=400) for _ in range(10)]
    held = [Held(ticket, 5.0, first_token=True, chunks=100) for ticket in engine.streams]
    engine.core.reinstate(held, engine.now)
    engine.run(2.0)
    engine.pause(0.5)
    excess = engine.core.law.excess
    assert excess is not None
    assert 1.0 - excess.value == pytest.approx(FINE_S / SLO_S, abs=0.05)


def test_the_law_goes_on_when_the_last_streams_are_over() -> None:
    """Answers in one piece make no chunks: their silence is no standstill, and what they took still cuts."""
    engine = Engine()
    engine.begin()
    engine.run(2.0)
    engine.end()
    for _ in range(12):
        whole = [engine.admit(stream=False, max_tokens=100) for _ in range(4)]
        engine.pause(10.0)
        for ticket in whole:
            engine.finish(ticket, output_tokens=50)
    whole = [engine.admit(stream=False, max_tokens=100)]
    engine.pause(2.0)
    assert engine.core.law.excess is not None
    assert len(some(LimitChanged, engine.events)) >= 1
