"""The world's clock and its callers: closed forms, every request settled once, and what callers do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from admission.core.controller import ControllerConfig
from admission.core.model import Admitted, Event
from admission.simulation.fate import Ending, Fate
from admission.simulation.policies import PolicySpec, build
from admission.simulation.timeline import Timeline
from admission.simulation.traces import Arrival
from admission.simulation.world import (
    Callers,
    Flush,
    Lost,
    Member,
    Restart,
    Sight,
    Slow,
    Stall,
    World,
    WorldConfig,
)
from admission.vocabulary import Mode, PriorityClass
from tests.admission.simulation.worlds import ENGINE, Bench, Tape, poisson

TIGHT = replace(ENGINE, kv_capacity_tokens=6_000)
TWO = (Member(name="a"), Member(name="b"))
SPLIT = (Member(name="p", role="prefill"), Member(name="d", role="decode"))

WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tight": {"members": (Member(engine=TIGHT),)},
    "noise": {"noise": "moe"},
    "mishaps": {"disturbances": (Stall(3, 2), Slow(6, 9, 3), Restart(12, 2), Flush(15))},
    "a member lost": {"members": TWO, "disturbances": (Lost(5, "a", 4), Slow(0, 10, 2, "b"))},
    "split": {"members": SPLIT, "disturbances": (Restart(8, 1, "d"),)},
    "storm": {"callers": Callers(retry="storm", leave_ratio=0.2, patience_s=1.0)},
    "unnoticed": {"callers": Callers(noticed=False, patience_s=0.5, retry="backoff")},
    "sidecars": {"sidecars": 3, "callers": Callers(bypass_ratio=0.3, stream_ratio=0.5)},
    "blind": {"sight": Sight(scrape_s=None, own_events=False)},
    "late": {"members": (Member(engine=replace(ENGINE, overhead_s=0.02, ahead=True)),)},
}
every_world = pytest.mark.parametrize("config", WORLDS.values(), ids=WORLDS)


def tidegate(no: int) -> Any:
    """The product."""
    return build(PolicySpec("tidegate"), seed=no, now=0.0)


def _same(tape: Tape, _: int) -> Tape:
    return tape


def run(arrivals: list[Arrival], seed: int = 0, **config: Any) -> list[Fate]:
    """Fates under the product, by arrival."""
    fates = Bench(tidegate, seed, **config).play(*arrivals)
    return sorted(fates, key=lambda fate: fate.arrival.at_s)


def test_a_lone_request_takes_the_closed_form() -> None:
    """TTFT and TPOT follow from the four constants, through policy, world and judge."""
    prompt, output = 1_000, 101
    (fate,) = Bench(tidegate).play(Arrival(5.0, prompt, output))
    ttft_s = ENGINE.step_s(prompt, 0, prompt)
    decode_s = sum(ENGINE.step_s(0, 1, prompt + token) for token in range(1, output))
    assert fate.ending is Ending.SERVED
    assert fate.admitted
    assert fate.ttft_s == pytest.approx(ttft_s, abs=1e-9)
    assert fate.tpot_s == pytest.approx(decode_s / (output - 1), abs=1e-12)
    assert fate.e2e_s == pytest.approx(ttft_s + decode_s, abs=1e-9)
    assert (fate.waited_s, fate.attempts, fate.began_at_s) == (0.0, 1, 5.0)


@every_world
def test_every_request_is_settled_once(config: dict[str, Any]) -> None:
    """Whatever goes wrong, nobody is forgotten and nobody counts twice."""
    arrivals = poisson(25, 20)
    assert [fate.arrival for fate in run(arrivals, **config)] == arrivals


@every_world
def test_the_same_seed_gives_the_same_run(config: dict[str, Any]) -> None:
    """To the last bit: else a bad night could not become a test."""
    arrivals = poisson(25, 10)
    assert repr(run(arrivals, 3, **config)) == repr(run(arrivals, 3, **config))


@every_world
def test_jumped_runs_change_nothing(config: dict[str, Any]) -> None:
    """Each request ends the same and at the same time as when every decode step is taken by itself."""
    arrivals = poisson(25, 10)
    jumped, stepped = run(arrivals, **config), run(arrivals, single_steps=True, **config)
    assert [fate.ending for fate in jumped] == [fate.ending for fate in stepped]
    for one, other in zip(jumped, stepped, strict=True):
        assert one.ttft_s == pytest.approx(other.ttft_s, abs=1e-9)
        assert one.e2e_s == pytest.approx(other.e2e_s, abs=1e-9)


def test_another_seed_gives_another_run() -> None:
    """Where chance has a part: step noise, retries, who bypasses."""
    arrivals = poisson(25, 10)
    for config in (WORLDS["noise"], WORLDS["storm"], WORLDS["sidecars"]):
        assert repr(run(arrivals, 3, **config)) != repr(run(arrivals, 4, **config))


def test_arrivals_are_taken_one_ahead() -> None:
    """A trace of any length costs no memory."""
    taken = 0

    def trace() -> Iterator[Arrival]:
        nonlocal taken
        for no in range(200):
            taken += 1
            yield Arrival(float(no), 100, 2)
            assert taken - len(bench.fates) <= 2

    bench = Bench()
    bench.world.run(trace())
    assert (taken, len(bench.fates)) == (200, 200)


def test_arrivals_out_of_order_are_refused() -> None:
    """Quietly sorted they would not be lazy; played as they are they would be wrong."""
    with pytest.raises(ValueError, match=r"at 1\.0 s comes after one at 2\.0 s"):
        Bench().play(Arrival(2.0, 100, 2), Arrival(1.0, 100, 2))


def test_the_end_of_a_run_settles_what_is_open() -> None:
    """One under way is open, one that pauses before another try ended as it did, one that comes later is not asked."""
    bench = Bench(lambda _: Tape(), callers=Callers(retry="backoff", patience_s=0.001))
    fates = bench.play(Arrival(0.0, 1_000, 1_000), Arrival(9.0, 1_000, 2), until_s=0.5)
    assert [fate.ending for fate in fates] == [Ending.IMPATIENT]
    fates = Bench().play(Arrival(0.0, 1_000, 1_000), Arrival(0.2, 1_000, 1_000), until_s=0.5)
    assert [fate.ending for fate in fates] == [Ending.OPEN, Ending.OPEN]
    assert fates[0].ttft_s is not None
    assert fates[0].tpot_s is None


def test_a_caller_leaves_when_its_patience_ends() -> None:
    """Ten seconds from its arrival without a first token, and its place is free at once."""
    bench = Bench(disturbances=(Stall(0.0, 30.0),))
    (fate,) = bench.play(Arrival(1.0, 1_000, 10))
    assert (fate.ending, fate.e2e_s) == (Ending.IMPATIENT, 10.0)
    assert bench.tape.cancels == [11.0]
    assert bench.world.fleet.nodes[0].engine.waiting == 0


def test_a_caller_that_has_its_first_token_stays() -> None:
    """Patience is about the first token: a long answer is read to its end."""
    (fate,) = Bench(callers=Callers(patience_s=0.1)).play(Arrival(1.0, 1_000, 1_000))
    assert fate.ending is Ending.SERVED
    assert fate.e2e_s is not None
    assert fate.e2e_s > 5.0


def test_an_engine_that_does_not_notice_works_on_for_nobody() -> None:
    """Its policy hears of the end, its engine does not."""
    bench = Bench(callers=Callers(patience_s=0.01, noticed=False))
    early, late = bench.play(Arrival(0.0, 1_000, 500), Arrival(3.0, 8_000, 10))
    engine = bench.world.fleet.nodes[0].engine
    assert (early.ending, late.ending) == (Ending.IMPATIENT, Ending.IMPATIENT)
    assert bench.tape.cancels == [0.01, 3.01]
    assert engine.generation_tokens_total > 300, "it made tokens long after its caller had left"


@pytest.mark.parametrize(
    ("callers", "low", "high"),
    [
        (Callers(retry="backoff"), (0.5, 1.0, 2.0), (1.5, 3.0, 6.0)),
        (Callers(retry="storm"), (0.05, 0.05, 0.05), (0.1, 0.1, 0.1)),
        (Callers(retry="none"), (), ()),
    ],
)
def test_callers_come_back(callers: Callers, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    """After 1, 2 and 4 s (+-50 %), or at once, three times at most; the last attempt is what counts."""
    tape = Tape(refuses=True)
    (fate,) = Bench(lambda _: tape, callers=callers).play(Arrival(0.0, 100, 2))
    asked = [at for at, _ in tape.tickets]
    pauses = [after - before for before, after in pairwise(asked)]
    assert len(pauses) == len(low)
    assert all(least <= pause <= most for least, pause, most in zip(low, pauses, high, strict=True))
    assert fate.ending is Ending.REFUSED
    assert (fate.reason, fate.attempts) == ("QUEUE_FULL", len(asked))
    assert fate.refused == ("QUEUE_FULL",) * len(asked)
    assert fate.began_at_s == asked[-1]
    assert len({ticket.id for _, ticket in tape.tickets}) == len(asked), "each attempt is a ticket of its own"


def test_retry_after_is_honoured_by_those_that_back_off() -> None:
    """They wait at least so long; a storm does not listen."""
    for retry, waits in (("backoff", True), ("storm", False)):
        tape = Tape(refuses=True, retry_after_s=30.0)
        Bench(partial(_same, tape), callers=Callers(retry=retry)).play(Arrival(0.0, 100, 2))
        assert (tape.tickets[1][0] >= 30.0) is waits


def test_some_leave_as_they_meant_to() -> None:
    """They get their first token, leave within their time, and are marked as leavers whatever became of them."""
    bench = Bench(callers=Callers(leave_ratio=0.5, leave_within_s=0.5))
    fates = bench.play(*[Arrival(float(no), 500, 1_000) for no in range(40)])
    endings = Counter((fate.ending, fate.leaves) for fate in fates)
    assert set(endings) == {(Ending.SERVED, False), (Ending.LEFT, True)}
    assert 10 <= endings[Ending.LEFT, True] <= 30
    assert all(fate.e2e_s is not None and fate.e2e_s < 0.6 for fate in fates if fate.leaves)
    assert len(bench.tape.cancels) == endings[Ending.LEFT, True]


def test_a_share_bypasses_admission() -> None:
    """Nobody is asked and nobody told, but the engine carries them and they are judged."""
    bench = Bench(callers=Callers(bypass_ratio=0.3))
    fates = bench.play(*[Arrival(0.1 * no, 500, 10) for no in range(200)])
    assert len(fates) == 200
    assert all(fate.ending is Ending.SERVED for fate in fates)
    assert 110 < len(bench.tape.tickets) == len(bench.tape.completions) < 170


def test_sidecars_share_the_arrivals() -> None:
    """Each sees its own requests alone, and the whole engine."""
    bench = Bench(sidecars=4)
    bench.play(*[Arrival(0.1 * no, 500, 10) for no in range(200)])
    assert sum(len(tape.tickets) for tape in bench.tapes) == 200
    assert all(25 < len(tape.tickets) < 75 for tape in bench.tapes)
    scrapes = [{reading.at for reading in tape.readings} for tape in bench.tapes]
    assert all(scrapes)
    assert len(set.union(*scrapes)) == sum(map(len, scrapes)), "they do not look at the same instants"


def test_a_ticket_says_what_the_arrival_says() -> None:
    """Class, tenant, model, lengths, and whether it streams."""
    bench = Bench()
    bench.play(
        Arrival(0.0, 500, 10, PriorityClass.BATCH, tenant="t", model="m", max_tokens=77, stream=False),
        Arrival(1.0, 500, 10),
    )
    (_, named), (_, plain) = bench.tape.tickets
    assert (named.priority, named.flow.tenant, named.flow.model) == (PriorityClass.BATCH, "t", "m")
    assert (named.prompt_tokens, named.max_tokens, named.stream) == (500, 77, False)
    assert plain.flow.tenant == "anonymous"


def test_an_answer_of_one_token_has_no_tpot() -> None:
    """And one of none, as traces have them, is played as one."""
    fates = Bench().play(Arrival(0.0, 500, 1), Arrival(1.0, 500, 0))
    assert [(fate.ending, fate.tpot_s) for fate in fates] == [(Ending.SERVED, None)] * 2


def test_everybody_is_told_of_events_and_states() -> None:
    """A watcher sees each event of each policy, a time line one look a second and each fate."""
    timeline = Timeline()
    events: list[tuple[int, float, Event]] = []
    bench = Bench()
    world = World(
        WorldConfig(sidecars=2),
        lambda _: Tape(),
        bench,
        timeline=timeline,
        watch=lambda *what: events.append(what),
    )
    world.run([Arrival(float(no), 500, 10) for no in range(10)])
    assert {sidecar for sidecar, _, _ in events} == {0, 1}
    assert sum(isinstance(event, Admitted) for _, _, event in events) == 10
    moments = timeline.moments()
    assert sum(moment.offered for moment in moments) == sum(moment.good for moment in moments) == 10
    assert [moment.in_flight for moment in moments][:9] == [0.0] * 9


def test_shadow_refuses_nobody_and_says_what_it_would_do() -> None:
    """The product in its shadow mode, in front of twice the load that it carries."""
    shadows = 0

    def watch(_: int, __: float, event: Event) -> None:
        nonlocal shadows
        shadows += isinstance(event, Admitted) and event.shadow is not None

    bench = Bench()
    spec = PolicySpec("tidegate", ControllerConfig(mode=Mode.SHADOW))
    world = World(WorldConfig(), lambda no: build(spec, seed=no, now=0.0), bench, watch=watch)
    world.run(poisson(40, 20))
    assert all(fate.admitted for fate in bench.fates)
    assert shadows > 100


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Callers(patience_s=0.0),
        lambda: Callers(retry="sometimes"),
        lambda: Callers(bypass_ratio=1.5),
        lambda: Callers(retries=-1),
        lambda: Sight(scrape_s=0.0),
        lambda: Sight(chunk_tokens=0),
        lambda: WorldConfig(sidecars=0),
        lambda: WorldConfig(hand_over_s=-1.0),
        lambda: Slow(3.0, 3.0, 2.0),
        lambda: Slow(0.0, 3.0, 0.0),
        lambda: Restart(-1.0, 2.0),
        lambda: Bench(noise="loud"),
        lambda: Bench(members=()),
        lambda: Bench(members=(Member(name="a"), Member(name="a"))),
        lambda: Bench(members=(Member(role="prefill"),)),
        lambda: Bench(disturbances=(Lost(1.0, "nobody"),)),
    ],
)
def test_nonsense_is_refused_before_the_run(wrong: Any) -> None:
    """One line instead of a figure that means nothing."""
    with pytest.raises(ValueError, match=r"."):
        wrong()
