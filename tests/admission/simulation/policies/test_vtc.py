"""The virtual token counter: who goes first, when, and what service costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.core.model import Admitted, Completion, Event, Flow, Queued, Reading, Shed, Ticket, TicketId
from admission.simulation.judging import Judge
from admission.simulation.policies import PolicySpec, build
from admission.simulation.policies.vtc import Vtc, VtcConfig
from admission.simulation.traces import Arrival
from admission.simulation.world import Callers, Member, World, WorldConfig
from admission.vocabulary import Outcome, PriorityClass, SignalKind, Source
from tests.admission.simulation.test_engine_apart import APART

POOL = 1_000
AT_ONCE = 3
"""Let in between two prefills of the engine below."""


def policy(capacity: int | None = POOL, **more: float) -> Vtc:
    """In front of a small pool."""
    built = build(PolicySpec("vtc", VtcConfig(kv_capacity_tokens=capacity, **more)), seed=0, now=0.0)
    assert isinstance(built, Vtc)
    return built


def ask(vtc: Vtc, no: int, client: str, prompt: int = 100, most: int = 500) -> list[Event]:
    """One request of a client."""
    flow = Flow(client)
    return vtc.submit(Ticket(TicketId("s", no), PriorityClass.INTERACTIVE, flow, prompt, 0, most), float(no))


def admitted(events: list[Event]) -> list[int]:
    """Numbers of those that were let in."""
    return [event.ticket.id.no for event in events if isinstance(event, Admitted)]


def end(vtc: Vtc, no: int, output: int) -> list[int]:
    """A request ends; who goes next?"""
    done = Completion(Outcome.OK, output_tokens=output)
    return admitted(vtc.finish(TicketId("s", no), done, 100.0))


def test_the_least_served_goes_first() -> None:
    """A client with a long queue does not hold up one that asks once."""
    vtc = policy()
    assert admitted(ask(vtc, 1, "busy", 400, 500)) == [1]
    for no in (2, 3, 4):
        assert [type(event) for event in ask(vtc, no, "busy", 400, 500)] == [Queued]
    ask(vtc, 5, "calm", 400, 500)
    assert end(vtc, 1, 500) == [5]


def test_service_is_the_prompt_and_twice_the_answer() -> None:
    """The prompt counts when it starts, answers as they come, and nothing twice."""
    vtc = policy()
    ask(vtc, 1, "a", 100, 500)
    assert vtc.served("a") == 100
    vtc.progress([(TicketId("s", 1), 40, 0.0)], 2.0)
    assert vtc.served("a") == 100 + 2 * 40
    end(vtc, 1, 150)
    assert vtc.served("a") == 100 + 2 * 150
    dear = policy(prompt_weight=3.0, output_weight=0.5)
    ask(dear, 1, "a", 100, 500)
    end(dear, 1, 10)
    assert dear.served("a") == 305


def test_who_was_away_saved_nothing_up() -> None:
    """It comes back level with the least served of those that wait, and never below what it had."""
    vtc = policy()
    ask(vtc, 1, "a", 400, 500)
    ask(vtc, 2, "a", 400, 500)
    ask(vtc, 3, "b", 100, 500)
    assert vtc.served("b") == vtc.served("a") == 400
    vtc.cancel(TicketId("s", 2), 4.0)
    end(vtc, 1, 500)
    assert vtc.served("a") == 400 + 2 * 500
    ask(vtc, 4, "b", 900, 90)
    ask(vtc, 5, "a", 100, 500)
    assert vtc.served("a") == 1_400


def test_the_head_that_does_not_fit_holds_up_all() -> None:
    """As in the artifact: a smaller request of another client does not slip past."""
    vtc = policy()
    ask(vtc, 1, "a", 100, 300)
    assert admitted(ask(vtc, 2, "b", 500, 480)) == []
    assert vtc.progress([(TicketId("s", 1), 100, 0.0)], 2.0) == []
    assert admitted(ask(vtc, 3, "a", 10, 10)) == []
    assert vtc.look(2.0)[1:] == (200.0, 1, 2)
    assert admitted(vtc.progress([(TicketId("s", 1), 199, 0.0)], 4.0)) == [2, 3]


def test_room_is_counted_at_the_peak() -> None:
    """100 + 200 and 100 + 700: the short one is gone when the long one is longest, and both fit in 1,000."""
    assert admitted([*ask(vtc := policy(), 1, "a", 100, 200), *ask(vtc, 2, "b", 100, 700)]) == [1, 2]
    assert admitted([*ask(vtc := policy(), 1, "a", 100, 600), *ask(vtc, 2, "b", 100, 700)]) == [1]


def test_the_capacity_is_the_engines_word() -> None:
    """Until it has spoken one request runs at a time."""
    vtc = policy(None)
    assert admitted([*ask(vtc, 1, "a", 10, 10), *ask(vtc, 2, "a", 10, 10)]) == [1]
    said = Reading(SignalKind.KV_CAPACITY_TOKENS, 1_000.0, 3.0, Source.SCRAPE)
    assert admitted(vtc.observe(said, 3.0)) == [2]


def test_who_leaves_the_queue_is_gone() -> None:
    """And whoever leaves while running makes room."""
    vtc = policy()
    for no in (1, 2, 3):
        ask(vtc, no, "a", 400, 500)
    gone = vtc.cancel(TicketId("s", 2), 4.0)
    assert [type(event) for event in gone] == [Shed]
    assert admitted(vtc.cancel(TicketId("s", 1), 5.0)) == [3]
    assert vtc.look(5.0).queued == 0


@pytest.mark.parametrize(
    "wrong", [{"prompt_weight": -1.0}, {"output_weight": -1.0}, {"kv_capacity_tokens": 0}]
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    """One clear line."""
    with pytest.raises(ValueError, match="must"):
        VtcConfig(**wrong)  # type: ignore[arg-type]


def test_it_lets_in_only_what_the_engine_would_start() -> None:
    """Else the order would be the engine's: what it admits never waits for KV, only for the next prefill."""
    engine = replace(APART, kv_capacity_tokens=1_000, step_tokens=1_000)
    sizes = [(50 + 37 * no % 300, 20 + 53 * no % 200) for no in range(60)]
    arrivals = [
        Arrival(0.1 * no, prompt, output, tenant=f"c{no % 5}", max_tokens=output)
        for no, (prompt, output) in enumerate(sizes)
    ]
    config = WorldConfig(members=(Member(engine=engine),), callers=Callers(patience_s=1e4))
    judge, waiting = Judge(), [0]

    def watch(sidecar: int, now: float, event: Event) -> None:
        waiting.append(world.fleet.nodes[0].engine.waiting)

    world = World(config, lambda _: policy(), judge, watch=watch)
    world.run(arrivals)
    assert judge.report().served_requests == len(arrivals)
    assert max(waiting) <= AT_ONCE
