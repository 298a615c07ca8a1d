"""The engines of a world and what is seen of them: members, roles, mishaps, caches, and every tier of sight."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from admission.simulation.callers import Stage
from admission.simulation.fate import Ending, Fate
from admission.simulation.fleet import step_noise
from admission.simulation.traces import Arrival
from admission.simulation.world import Callers, Flush, Lost, Member, Restart, Sight, Slow, Stall
from admission.vocabulary import Outcome, SignalKind, Source
from tests.admission.simulation.worlds import ENGINE, Bench, poisson

FOUR = tuple(Member(name=name) for name in "abcd")
SPLIT = (Member(name="p", role="prefill"), Member(name="d", role="decode"))


def endings(fates: list[Fate]) -> list[Ending]:
    """How they ended, by arrival."""
    return [fate.ending for fate in sorted(fates, key=lambda fate: fate.arrival.at_s)]


def ttfts(fates: list[Fate]) -> list[float]:
    """Seconds, by arrival."""
    return [fate.ttft_s or 0.0 for fate in sorted(fates, key=lambda fate: fate.arrival.at_s)]


def generated(bench: Bench) -> dict[str, int]:
    """Tokens by member."""
    return {node.name: node.engine.generation_tokens_total for node in bench.world.fleet.nodes}


# Members


def test_a_request_goes_to_the_member_with_the_fewest_in_flight() -> None:
    """Four that come together get a member each, so that none of them waits for another."""
    lone = Bench().play(Arrival(0.0, 1_000, 50))
    bench = Bench(members=FOUR)
    fates = bench.play(*[Arrival(0.0, 1_000, 50) for _ in range(4)])
    assert set(generated(bench).values()) == {50}
    assert ttfts(fates) == ttfts(lone) * 4


def test_a_slow_member_gets_less() -> None:
    """It has more in flight for longer; three times slower by its own engine or by a phase is the same."""
    slower = replace(
        ENGINE,
        base_s=3 * ENGINE.base_s,
        prefill_s_per_token=3 * ENGINE.prefill_s_per_token,
        decode_s_per_sequence=3 * ENGINE.decode_s_per_sequence,
        kv_s_per_token=3 * ENGINE.kv_s_per_token,
    )
    own = Bench(members=(*FOUR[:3], Member(name="d", engine=slower)))
    phase = Bench(members=FOUR, disturbances=(Slow(0.0, 1e6, 3.0, "d"),))
    for bench in (own, phase):
        bench.play(*poisson(60, 10))
        tokens = generated(bench)
        assert tokens["d"] < 0.6 * min(tokens["a"], tokens["b"], tokens["c"])
    assert generated(own) == generated(phase)


def test_a_lost_member_takes_what_it_had_with_it_and_comes_back() -> None:
    """Its requests fail then and there, new ones go to the others, and its scrape fails until it is back."""
    bench = Bench(members=FOUR[:2], disturbances=(Lost(2.0, "a", 3.0),))
    arrivals = [Arrival(1.9, 1_000, 200), Arrival(1.9, 1_000, 200)]
    arrivals += [Arrival(2.5 + 0.1 * no, 100, 5) for no in range(10)]
    arrivals += [Arrival(6.0, 100, 5), Arrival(6.0, 100, 5)]
    fates = bench.play(*arrivals)
    assert endings(fates)[:2].count(Ending.FAILED) == 1
    assert Counter(endings(fates)) == {Ending.SERVED: 13, Ending.FAILED: 1}
    assert next(fate for fate in fates if fate.ending is Ending.FAILED).e2e_s == pytest.approx(0.1)
    up = bench.tape.of(SignalKind.ENGINE_UP, "a")
    assert [up[at] for at in (1.0, 2.0, 3.0, 4.0, 5.0)] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert set(bench.tape.of(SignalKind.ENGINE_UP, "b").values()) == {1.0}
    assert set(bench.tape.of(SignalKind.RUNNING, "a")) == {1.0, 5.0, 6.0}
    before = bench.tape.of(SignalKind.GENERATION_TOKENS_TOTAL, "a")[5.0]
    assert generated(bench)["a"] == before + 5, "one of the last two went there again"


def test_readings_name_their_member() -> None:
    """As the core wants them: one value of each kind, member and round, engine first seen up."""
    bench = Bench(members=FOUR[:2])
    bench.play(Arrival(0.9, 2_000, 100))
    first = [one for one in bench.tape.readings if one.at == 1.0]
    kinds = [one.kind for one in first if one.member == "a"]
    assert kinds == [one.kind for one in first if one.member == "b"]
    assert kinds[0] is SignalKind.ENGINE_UP
    assert kinds.index(SignalKind.RUNNING) < kinds.index(SignalKind.WAITING)
    assert all(one.source is Source.SCRAPE for one in first)
    assert bench.tape.of(SignalKind.RUNNING, "a")[1.0] + bench.tape.of(SignalKind.RUNNING, "b")[1.0] == 1.0


# Prefill and decode apart


def test_one_member_prefills_and_another_decodes() -> None:
    """TTFT is the prefill member's, then the KV travels, then the decode member makes the rest without a prefill."""
    bench = Bench(members=SPLIT, hand_over_s=0.5, hand_over_s_per_token=1e-4)
    (fate,) = bench.play(Arrival(0.0, 1_000, 11))
    ttft_s = ENGINE.step_s(1_000, 0, 1_000)
    transfer_s = 0.5 + 1e-4 * 1_000
    rest_s = ENGINE.step_s(1, 0, 1_001)
    rest_s += sum(ENGINE.step_s(0, 1, 1_001 + token) for token in range(1, 10))
    assert fate.ttft_s == pytest.approx(ttft_s, abs=1e-9)
    assert fate.e2e_s == pytest.approx(ttft_s + transfer_s + rest_s, abs=1e-9)
    assert generated(bench) == {"p": 1, "d": 10}
    assert [node.in_flight for node in bench.world.fleet.nodes] == [0, 0]
    assert sum(bench.tape.chunks.values()) == 11


def test_an_answer_of_one_token_is_not_handed_over() -> None:
    """The prefill made all of it."""
    bench = Bench(members=SPLIT)
    assert endings(bench.play(Arrival(0.0, 1_000, 1))) == [Ending.SERVED]
    assert generated(bench) == {"p": 1, "d": 0}


def test_without_a_decode_member_the_answer_breaks_off() -> None:
    """Its first token has come, its rest never does."""
    bench = Bench(members=SPLIT, disturbances=(Lost(0.0, "d"),))
    (fate,) = bench.play(Arrival(1.0, 1_000, 50))
    assert fate.ending is Ending.FAILED
    assert fate.ttft_s is not None
    assert bench.tape.outcomes() == [Outcome.ERROR]


def test_who_leaves_during_the_transfer_is_not_decoded() -> None:
    """Its KV arrives for nobody."""
    bench = Bench(members=SPLIT, hand_over_s=5.0, callers=Callers(leave_ratio=1.0, leave_within_s=0.1))
    bench.play(Arrival(0.0, 1_000, 50), Arrival(8.0, 1_000, 50))
    assert generated(bench) == {"p": 2, "d": 0}


# Mishaps


def test_a_restart_fails_what_is_in_flight_and_what_comes() -> None:
    """A refused connection is an engine error for the policy, a failure for the caller; afterwards all is well."""
    bench = Bench(disturbances=(Restart(2.0, 3.0),))
    fates = bench.play(Arrival(1.9, 1_000, 500), Arrival(3.0, 1_000, 5), Arrival(5.1, 1_000, 5))
    assert endings(fates) == [Ending.FAILED, Ending.FAILED, Ending.SERVED]
    assert [at for at, _ in bench.tape.completions][:2] == [2.0, 3.0]
    assert bench.tape.outcomes() == [Outcome.ERROR, Outcome.ERROR, Outcome.OK]
    assert [fate.reason for fate in fates[:2]] == ["engine", "engine"]
    up = bench.tape.of(SignalKind.ENGINE_UP)
    assert [up[float(second)] for second in range(1, 6)] == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_a_failed_caller_comes_back() -> None:
    """Until the engine does, if its retries last."""
    bench = Bench(disturbances=(Restart(2.0, 1.0),), callers=Callers(retry="backoff"))
    (fate,) = bench.play(Arrival(2.1, 1_000, 5))
    assert (fate.ending, fate.attempts > 1, fate.refused) == (Ending.SERVED, True, ())


def test_two_mishaps_keep_a_member_down_until_both_are_over() -> None:
    """A restart within a longer absence does not bring it back."""
    bench = Bench(disturbances=(Lost(1.0, "m0", 4.0), Restart(2.0, 1.0)))
    fates = bench.play(Arrival(4.0, 100, 5), Arrival(5.5, 100, 5))
    assert endings(fates) == [Ending.FAILED, Ending.SERVED]


def test_a_stall_holds_the_next_step_back() -> None:
    """The step under way ends, the one after it begins eight seconds later."""
    plain, stalled = Bench(), Bench(disturbances=(Stall(2.0, 8.0),))
    arrival = Arrival(1.5, 1_000, 100)
    (before,), (after,) = plain.play(arrival), stalled.play(arrival)
    assert before.e2e_s is not None
    assert after.e2e_s is not None
    assert 7.9 < after.e2e_s - before.e2e_s <= 8.0


def test_slow_phases_multiply_while_both_last() -> None:
    """Twice as slow for a while, six times where they overlap, as before afterwards."""
    bench = Bench(disturbances=(Slow(1.0, 3.0, 2.0), Slow(2.0, 4.0, 3.0)))
    seen = ttfts(bench.play(*[Arrival(at, 1_000, 1) for at in (0.5, 1.5, 2.5, 3.5, 4.5)]))
    assert [value / seen[0] for value in seen] == pytest.approx([1.0, 2.0, 6.0, 3.0, 1.0])


def test_moe_noise_has_spikes() -> None:
    """One step in fifty or so takes three times as long; the mean stays near 1."""
    draw = step_noise("moe", "1")
    assert draw is not None
    factors = [draw() for _ in range(20_000)]
    assert 0.015 < sum(factor > 2 for factor in factors) / len(factors) < 0.025
    assert 1.0 < sum(factors) / len(factors) < 1.1
    assert step_noise("none", "1") is None


def test_what_can_never_fit_is_turned_away() -> None:
    """An engine answers such a request with a 400: no failure of the engine, and no use to come back."""
    bench = Bench(callers=Callers(retry="storm"))
    (fate,) = bench.play(Arrival(0.0, 460_000, 1))
    assert (fate.ending, fate.attempts) == (Ending.INVALID, 1)
    assert bench.tape.outcomes() == [Outcome.INVALID]


def test_overhead_before_the_queue_counts_in_ttft() -> None:
    """HTTP and tokenizer take their time before the engine knows of a request; who left meanwhile never arrives."""
    late = Member(engine=replace(ENGINE, overhead_s=0.25))
    (plain,), (delayed,) = (
        Bench(members=(member,)).play(Arrival(0.0, 1_000, 5)) for member in (Member(), late)
    )
    assert ttfts([delayed])[0] - ttfts([plain])[0] == pytest.approx(0.25)
    bench = Bench(members=(late,), callers=Callers(patience_s=0.1))
    assert endings(bench.play(Arrival(0.0, 1_000, 5), Arrival(1.0, 1_000, 5))) == [Ending.IMPATIENT] * 2
    assert generated(bench) == {"m0": 0}


# The prefix cache


def test_cached_tokens_need_no_prefill_and_are_told_at_the_end() -> None:
    """Nine tenths of the prompt from the cache: the TTFT is that of the rest."""
    bench = Bench()
    fates = bench.play(Arrival(0.0, 8_000, 5), Arrival(9.0, 8_000, 5, cached_tokens=7_200))
    assert [one.cached_tokens for _, one in bench.tape.completions] == [0, 7_200]
    assert ttfts(fates)[1] == pytest.approx(ENGINE.step_s(800, 0, 8_000), abs=1e-9)
    assert ttfts(fates)[0] > 3 * ttfts(fates)[1]


def test_a_flush_makes_the_prefix_cold_once() -> None:
    """The next request pays for all; those after it do not."""
    shared: dict[str, Any] = {"cached_tokens": 7_200, "shared_tokens": 7_200, "prefix": "system"}
    bench = Bench(disturbances=(Flush(2.5),))
    seen = ttfts(bench.play(*[Arrival(float(no), 8_000, 5, **shared) for no in range(1, 5)]))
    assert [one.cached_tokens for _, one in bench.tape.completions] == [7_200, 7_200, 0, 7_200]
    assert seen[2] > 3 * seen[1]
    assert seen[3] == pytest.approx(seen[1])


# Sight


def test_full_sight() -> None:
    """First token, every chunk, its age, and the truth at the end."""
    bench = Bench()
    (fate,) = bench.play(Arrival(0.3, 1_000, 200))
    tape = bench.tape
    (at, completion), (ticket_id,) = tape.completions[0], tape.chunks
    assert tape.first_tokens == [pytest.approx(0.3 + ttfts([fate])[0])]
    assert tape.chunks[ticket_id] == 200
    assert all(0.0 <= age_s < 0.02 for age_s in tape.ages)
    assert len(tape.ages) == pytest.approx((at - 0.3) / 0.25, abs=2)
    assert (completion.prompt_tokens, completion.output_tokens) == (1_000, 200)
    assert completion.engine_ttft_s == pytest.approx(fate.ttft_s)
    assert completion.decode_s == pytest.approx(at - tape.first_tokens[0])


def test_chunks_may_carry_several_tokens() -> None:
    """200 tokens in chunks of 16 are 13 chunks."""
    bench = Bench(sight=Sight(chunk_tokens=16))
    bench.play(Arrival(0.3, 1_000, 200))
    assert list(bench.tape.chunks.values()) == [13]


@pytest.mark.parametrize(
    ("sight", "first", "chunks", "usage", "timed"),
    [
        (Sight(progress=False), 1, 0, 200, True),
        (Sight(progress=False, first_tokens=False), 0, 0, 200, False),
        (Sight(usage=False), 1, 200, None, True),
        (Sight(own_events=False), 0, 0, None, False),
    ],
    ids=["partial", "header", "no usage", "no own events"],
)
def test_less_sight(sight: Sight, first: int, chunks: int, usage: int | None, timed: bool) -> None:
    """What is hidden is not told, neither on the way nor at the end."""
    bench = Bench(sight=sight)
    bench.play(Arrival(0.3, 1_000, 200))
    ((_, completion),) = bench.tape.completions
    assert len(bench.tape.first_tokens) == first
    assert sum(bench.tape.chunks.values()) == chunks
    assert completion.output_tokens == usage
    assert (completion.decode_s is not None) is timed


def test_a_request_that_does_not_stream_shows_its_end_alone() -> None:
    """By its trace or by the callers' habit; it is judged by the token that the engine made first."""
    for stream, callers in ((False, Callers()), (True, Callers(stream_ratio=0.0))):
        bench = Bench(callers=callers)
        (fate,) = bench.play(Arrival(0.3, 1_000, 200, stream=stream))
        ((_, completion),) = bench.tape.completions
        assert bench.tape.first_tokens == []
        assert bench.tape.chunks == {}
        assert (completion.output_tokens, completion.decode_s) == (200, None)
        assert fate.ttft_s == pytest.approx(ENGINE.step_s(1_000, 0, 1_000))


def test_half_of_them_stream() -> None:
    """A share, drawn for each."""
    bench = Bench(callers=Callers(stream_ratio=0.5))
    bench.play(*[Arrival(0.1 * no, 100, 5) for no in range(200)])
    assert 70 < sum(ticket.stream for _, ticket in bench.tape.tickets) < 130


def test_a_scrape_says_what_the_engine_is_doing_then() -> None:
    """Caught up to the instant, also in the middle of a run of steps."""
    bench = Bench(sight=Sight(scrape_s=0.7, max_sequences=True))
    bench.play(Arrival(0.0, 1_000, 400))
    tokens = bench.tape.of(SignalKind.GENERATION_TOKENS_TOTAL)
    kv = bench.tape.of(SignalKind.KV_USAGE_RATIO)
    steps, ended_s = 0, ENGINE.step_s(1_000, 0, 1_000)
    while ended_s + ENGINE.step_s(0, 1, 1_001 + steps) <= 0.7:
        ended_s += ENGINE.step_s(0, 1, 1_001 + steps)
        steps += 1
    assert tokens[0.7] == 1 + steps
    assert kv[0.7] == pytest.approx((1_000 + steps + 1) / ENGINE.kv_capacity_tokens)
    assert bench.tape.of(SignalKind.RUNNING)[0.7] == 1.0
    assert bench.tape.of(SignalKind.WAITING)[0.7] == 0.0
    assert bench.tape.of(SignalKind.MAX_SEQUENCES)[0.7] == ENGINE.max_num_seqs


def test_no_scrape_is_not_a_failed_scrape() -> None:
    """Silence in one case, ENGINE_UP 0 and nothing else in the other."""
    silent = Bench(sight=Sight(scrape_s=None))
    silent.play(*poisson(10, 5))
    assert silent.tape.readings == []
    lossy = Bench(sight=Sight(scrapes_lost=((2.0, 4.0),)))
    lossy.play(*poisson(10, 6))
    up = lossy.tape.of(SignalKind.ENGINE_UP)
    assert [up[float(second)] for second in range(1, 6)] == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert not {2.0, 3.0} & set(lossy.tape.of(SignalKind.RUNNING))


def test_spans_tell_of_each_finished_request() -> None:
    """What an engine's own trace says: queue and prefill in the TTFT, its wait for admission not."""
    bench = Bench(sight=Sight(spans=True, own_events=False, scrape_s=None))
    (fate,) = bench.play(Arrival(0.3, 1_000, 200))
    (sample,) = bench.tape.samples
    assert sample.ttft_s == pytest.approx(fate.ttft_s)
    assert sample.tpot_s == pytest.approx(fate.tpot_s)
    assert (sample.prompt_tokens, sample.output_tokens) == (1_000, 200)


def test_nothing_is_left_when_all_is_over() -> None:
    """Memory is flat in the length of a trace: what a request took is given back."""
    bench = Bench(sidecars=2, members=FOUR, callers=Callers(retry="storm", patience_s=0.3, leave_ratio=0.1))
    bench.play(*poisson(100, 20))
    world = bench.world
    assert not world._open
    assert not world._asking
    assert all(not desk.streaming for desk in world._desks)
    assert all(call.stage is Stage.OVER for _, call in world._patient)
    assert len(world._heap) < 100
    for node in world.fleet.nodes:
        assert (node.in_flight, node.engine.running, node.engine.waiting) == (0, 0, 0)
        assert node.engine.kv_tokens == 0
