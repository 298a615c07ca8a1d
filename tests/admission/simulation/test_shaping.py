"""Changing traffic while it flows keeps what it says to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, pairwise
from statistics import mean

import pytest

from admission.simulation.inputs.arrival import Arrival
from admission.simulation.inputs.reading import shipped_stream
from admission.simulation.inputs.shaping import cut, faster, labelled, loaded, merged, shifted, spread
from admission.vocabulary import PriorityClass

CODE = "azure2023_code_burst_540_960"
EVEN = [Arrival(float(at), at % 50 + 1, 3, tenant=f"t{at % 3}") for at in range(100)]

SHAPERS: dict[str, Callable[[Iterable[Arrival]], Iterator[Arrival]]] = {
    "cut": lambda a: cut(a, 2.0, 50.0),
    "faster": lambda a: faster(a, 3.0),
    "shifted": lambda a: shifted(a, 5.0),
    "merged": lambda a: merged(a, [Arrival(0.5, 1, 1), Arrival(70.0, 1, 1)]),
    "loaded_up": lambda a: loaded(a, 2.5, seed=1),
    "loaded_down": lambda a: loaded(a, 0.5, seed=1),
    "spread": lambda a: spread(a, 3.0),
    "labelled": lambda a: labelled(a, {PriorityClass.BATCH: 1.0}, {"x": 1.0}),
}


@pytest.mark.parametrize("name", SHAPERS)
def test_time_order_is_kept(name: str) -> None:
    """The world takes arrivals as they come: one out of order would travel back in time."""
    times = [arrival.at_s for arrival in SHAPERS[name](iter(EVEN))]

    assert times
    assert times == sorted(times)


@pytest.mark.parametrize("name", SHAPERS)
def test_the_same_seed_gives_the_same_traffic(name: str) -> None:
    """Two policies are compared on the same requests."""
    assert list(SHAPERS[name](EVEN)) == list(SHAPERS[name](EVEN))


@pytest.mark.parametrize("name", SHAPERS)
def test_an_endless_source_is_no_trouble(name: str) -> None:
    """Nothing is gathered: the first requests come out of a source that never ends."""
    endless = (Arrival(at / 4, 10, 2) for at in count())
    assert len(list(islice(SHAPERS[name](endless), 30))) == 30


def test_cut_counts_from_its_start_and_stops_reading() -> None:
    """A cut out of a long trace must not read the rest of it."""
    taken: list[float] = []

    def source() -> Iterator[Arrival]:
        for arrival in EVEN:
            taken.append(arrival.at_s)
            yield arrival

    assert [arrival.at_s for arrival in cut(source(), 10.0, 3.0)] == [0.0, 1.0, 2.0]
    assert taken[-1] == 13.0


def test_faster_multiplies_the_rate() -> None:
    """And nothing else."""
    sped = list(faster(EVEN, 4.0))
    assert [arrival.at_s for arrival in sped] == [arrival.at_s / 4 for arrival in EVEN]
    assert [arrival.at(0.0) for arrival in sped] == [arrival.at(0.0) for arrival in EVEN]


def _per_bin(arrivals: Iterable[Arrival], width_s: float) -> list[int]:
    bins = Counter(int(arrival.at_s // width_s) for arrival in arrivals)
    return [bins[at] for at in range(int(420 / width_s))]


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.5])
def test_load_keeps_the_shape_of_bursts(factor: float) -> None:
    """At any load the bursts are where they were, as long, and as many times the mean: peak over mean within 12 %."""
    recorded = list(shipped_stream(CODE))
    changed = list(loaded(recorded, factor, seed=4))

    assert len(changed) == pytest.approx(factor * len(recorded), rel=0.05)
    before, after = _per_bin(recorded, 10.0), _per_bin(changed, 10.0)
    assert max(after) / mean(after) == pytest.approx(max(before) / mean(before), rel=0.12)
    assert abs(after.index(max(after)) - before.index(max(before))) <= 1


def test_playing_faster_would_not_keep_it() -> None:
    """The alternative that `loaded` is there to avoid: at three times the speed the 10 s peak over the mean is lost."""
    recorded = list(shipped_stream(CODE))
    before = _per_bin(recorded, 10.0)
    sped = _per_bin(faster(recorded, 3.5), 10.0)[:12]

    assert max(sped) / mean(sped) < 0.8 * max(before) / mean(before)


def test_load_keeps_who_asks_and_how_much() -> None:
    """Twice the load is twice the callers of each kind, with work of the same size."""
    recorded = list(shipped_stream("arena_vtc_27clients_600s"))
    changed = list(loaded(recorded, 3.0, seed=2))

    before, after = (Counter(arrival.tenant for arrival in each) for each in (recorded, changed))
    assert after == {tenant: 3 * number for tenant, number in before.items()}
    assert mean(a.output_tokens for a in changed) == pytest.approx(
        mean(a.output_tokens for a in recorded), rel=0.05
    )


def test_load_one_changes_nothing() -> None:
    """The unchanged trace is the reference of a sweep."""
    assert list(loaded(EVEN, 1.0)) == EVEN


def test_added_requests_are_sessions_of_their_own() -> None:
    """Two callers in one session would look like one that asks twice."""
    sessions = [a.session for a in loaded([Arrival(0.0, 5, 5, session="s"), Arrival(2.0, 5, 5)], 3.0)]
    assert sorted(sessions) == ["", "", "", "s", "s+0", "s+1"]


def test_merge_prefers_the_first_source_at_the_same_moment() -> None:
    """Order must not depend on what the requests look like."""
    one, other = [Arrival(1.0, 9, 9)], [Arrival(1.0, 1, 1), Arrival(0.5, 2, 2)][::-1]
    assert [arrival.prompt_tokens for arrival in merged(one, other)] == [2, 9, 1]


def test_spread_takes_ticks_apart() -> None:
    """Mooncake's clock ticks every 3 s: spread, hardly any two arrive together, and none leaves its tick."""
    recorded = list(shipped_stream("mooncake_conversation_full"))
    apart = list(spread(recorded, 3.0))

    assert len(apart) == len(recorded)
    together = [sum(b.at_s == a.at_s for a, b in pairwise(each)) for each in (recorded, apart)]
    assert together[0] > 0.85 * len(recorded)
    assert together[1] == 0
    assert all(0 <= after.at_s - before.at_s < 3.0 for before, after in zip(recorded, apart, strict=True))


def test_labels_have_their_shares_and_sessions_keep_theirs() -> None:
    """A conversation does not change hands in the middle."""
    arrivals = [Arrival(at / 10, 5, 5, session=f"s{at % 400}" if at % 2 else "") for at in range(8_000)]
    shares = {PriorityClass.INTERACTIVE: 3.0, PriorityClass.BATCH: 1.0}

    out = list(labelled(arrivals, shares, {"a": 1.0, "b": 1.0, "never": 0.0}, seed=3))

    classes = Counter(arrival.priority for arrival in out)
    assert classes[PriorityClass.BATCH] / len(out) == pytest.approx(0.25, abs=0.04)
    assert set(Counter(arrival.tenant for arrival in out)) == {"a", "b"}
    kept = {(arrival.session, arrival.priority, arrival.tenant) for arrival in out if arrival.session}
    assert len(kept) == len({session for session, _, _ in kept})


def test_labels_that_are_not_asked_for_stay() -> None:
    """Classes alone leave the tenants of a trace as they are."""
    out = list(labelled(EVEN, {PriorityClass.INTERNAL: 1.0}))
    assert [arrival.tenant for arrival in out] == [arrival.tenant for arrival in EVEN]
    assert {arrival.priority for arrival in out} == {PriorityClass.INTERNAL}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: cut(EVEN, -1.0), "start_s must not be negative"),
        (lambda: cut(EVEN, 0.0, 0.0), "length_s positive"),
        (lambda: faster(EVEN, 0.0), "speed must be positive"),
        (lambda: shifted(EVEN, -1.0), "by_s must not be negative"),
        (lambda: loaded(EVEN, 0.0), "factor must be positive"),
        (lambda: loaded(EVEN, float("nan")), "factor must be positive"),
        (lambda: spread(EVEN, 0.0), "tick_s must be positive"),
        (lambda: labelled(EVEN, tenants={"a": -1.0, "b": 2.0}), "shares must not be negative"),
        (lambda: labelled(EVEN, tenants={"a": 0.0}), "one of them positive"),
    ],
)
def test_nonsense_is_refused_before_the_first_request(wrong: Callable[[], object], says: str) -> None:
    """Not an hour into a run: the call itself says it, before anything is taken."""
    with pytest.raises(ValueError, match=says):
        wrong()
