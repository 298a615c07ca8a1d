"""Synthetic traffic comes at the rate, with the lengths and from the callers that its file says."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean, median, quantiles, stdev

import pytest

from admission.simulation.inputs.arrival import Arrival, TraceError
from admission.simulation.inputs.lengths import SHAPES, LengthConfig, LengthsConfig
from admission.simulation.inputs.mixes import (
    CachedConfig,
    ChangeConfig,
    ComponentConfig,
    MixConfig,
    PrefixConfig,
    load_mix,
    shipped_mix,
    shipped_mixes,
)
from admission.simulation.inputs.rates import RatePoint
from admission.simulation.inputs.reading import shipped_stream
from admission.vocabulary import PriorityClass

CHAT = LengthsConfig(shape="chat")
FIXED = LengthsConfig(prompt=LengthConfig(median=100), output=LengthConfig(median=10))


def _one(length_s: float = 1000.0, seed: int = 1, **component: object) -> list[Arrival]:
    given = {"rate_per_s": 10.0, "lengths": FIXED, **component}
    mix = MixConfig(components=(ComponentConfig(**given),), length_s=length_s)  # type: ignore[arg-type]
    return list(mix.arrivals(seed))


def _between(arrivals: list[Arrival], from_s: float, until_s: float) -> int:
    return sum(from_s <= arrival.at_s < until_s for arrival in arrivals)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gaps_spread_as_asked(cv: float) -> None:
    """Burstiness is what limiters fail at: the mean rate is right at every spread, and the spread is the one asked for."""
    gaps = [after.at_s - before.at_s for before, after in pairwise(_one(3_000.0, cv=cv))]

    assert 1 / mean(gaps) == pytest.approx(10.0, rel=0.06)
    assert stdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.06, abs=1e-9)


def test_a_profile_sets_the_rate_at_each_moment() -> None:
    """Steady, a spike, a ramp up to twice, silence, and what comes after the last point stays."""
    profile = (
        RatePoint(at_s=100, factor=5),
        RatePoint(at_s=200, factor=1, to=3),
        RatePoint(at_s=300, factor=0),
        RatePoint(at_s=400, factor=2),
    )
    arrivals = _one(600.0, rate_per_s=50.0, profile=profile)

    assert _between(arrivals, 0, 100) == pytest.approx(5_000, rel=0.06)
    assert _between(arrivals, 100, 200) == pytest.approx(25_000, rel=0.03)
    assert _between(arrivals, 200, 250) == pytest.approx(50 * 50 * 1.5, rel=0.06)
    assert _between(arrivals, 250, 300) == pytest.approx(50 * 50 * 2.5, rel=0.06)
    assert _between(arrivals, 300, 400) == 0
    assert _between(arrivals, 400, 600) == pytest.approx(20_000, rel=0.03)


@pytest.mark.parametrize("cv", [0.0, 2.0])
def test_a_changing_rate_is_exact_at_any_spread(cv: float) -> None:
    """Bursty gaps must not blur a spike: the rate holds inside it too, and no request falls into silence."""
    profile = (RatePoint(at_s=0, factor=1), RatePoint(at_s=50, factor=0), RatePoint(at_s=60, factor=4))
    phases = [arrival.at_s % 100 for arrival in _one(3_000.0, cv=cv, profile=profile, repeat_s=100)]

    assert sum(phase < 50 for phase in phases) == pytest.approx(30 * 500, rel=0.06)
    assert sum(50 <= phase < 60 for phase in phases) == 0
    assert sum(phase >= 60 for phase in phases) == pytest.approx(30 * 1_600, rel=0.06)


def test_a_ramp_to_nothing_and_back_never_stops_the_traffic() -> None:
    """A rate that touches zero is a division by it, if one does not take care."""
    profile = (RatePoint(at_s=0, factor=1, to=0), RatePoint(at_s=50, factor=0, to=1))
    arrivals = _one(1_000.0, profile=profile, repeat_s=100)

    assert len(arrivals) == pytest.approx(5_000, rel=0.06)
    assert max(after.at_s - before.at_s for before, after in pairwise(arrivals)) < 10


def test_lengths_have_their_median_and_their_tail() -> None:
    """Two figures of a trace say what its lengths are like; the bounds are never passed."""
    for name, shape in SHAPES.items():
        for what, want in (("prompt", shape.prompt), ("output", shape.output)):
            drawn = [
                getattr(arrival, f"{what}_tokens")
                for arrival in _one(1_000.0, lengths=LengthsConfig(shape=name))
            ]
            assert median(drawn) == pytest.approx(want.median, rel=0.06), (name, what)
            expected = min(want.most, want.p90 or want.median)
            assert quantiles(drawn, n=10)[-1] == pytest.approx(expected, rel=0.06), (name, what)
            assert want.least <= min(drawn) <= max(drawn) <= want.most


@pytest.mark.parametrize(
    ("shape", "trace"),
    [("documents", "mooncake_conversation_full"), ("arena", "arena_vtc_27clients_600s")],
)
def test_shapes_are_those_of_the_traces_they_name(shape: str, trace: str) -> None:
    """The figures in the code are the files': median, 0.9-quantile and largest value, where the whole trace is shipped."""
    arrivals = list(shipped_stream(trace))
    for what, want in (("prompt", SHAPES[shape].prompt), ("output", SHAPES[shape].output)):
        lengths = [getattr(arrival, f"{what}_tokens") for arrival in arrivals]
        assert median(lengths) == pytest.approx(want.median, abs=1)
        assert quantiles(lengths, n=10)[-1] == pytest.approx(want.p90, rel=0.01)
        assert max(lengths) == want.most


def test_pairs_of_a_trace_stay_together(tmp_path: Path) -> None:
    """A long prompt with its short answer is one request; clips hold for each."""
    path = tmp_path / "own.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1000,1\n1,10,0\n2,5000,700\n")

    drawn = _one(lengths=LengthsConfig(trace=str(path), most_prompt=2_000, most_output=300))

    assert {(a.prompt_tokens, a.output_tokens) for a in drawn} == {(1000, 1), (10, 1), (2000, 300)}


def test_answers_become_longer_from_one_moment_on() -> None:
    """The change that every learned length is wrong after."""
    arrivals = _one(
        changes=(ChangeConfig(at_s=400, output=4), ChangeConfig(at_s=700, prompt=0.5)), lengths=FIXED
    )

    assert {(a.prompt_tokens, a.output_tokens) for a in arrivals if a.at_s < 400} == {(100, 10)}
    assert {(a.prompt_tokens, a.output_tokens) for a in arrivals if 400 <= a.at_s < 700} == {(100, 40)}
    assert {(a.prompt_tokens, a.output_tokens) for a in arrivals if a.at_s >= 700} == {(50, 10)}


def test_answers_end_at_max_tokens() -> None:
    """An engine stops there."""
    cut = _one(lengths=CHAT, max_tokens=50)
    assert max(arrival.output_tokens for arrival in cut) == 50
    assert {arrival.max_tokens for arrival in cut} == {50}
    uncut = _one(lengths=LengthsConfig(shape="reasoning"))
    assert all(arrival.output_tokens <= arrival.max_tokens for arrival in uncut)


def test_a_shared_prefix_comes_on_top_and_hits_as_often_as_said() -> None:
    """Nine in ten share 8,192 tokens; the tenth has as many of its own."""
    arrivals = _one(prefix=PrefixConfig(tokens=8_192, hits=0.9, name="system"))

    assert {arrival.prompt_tokens for arrival in arrivals} == {8_292}
    kinds = {(a.cached_tokens, a.shared_tokens, a.prefix) for a in arrivals}
    assert kinds == {(8_192, 8_192, "system"), (0, 0, "")}
    assert mean(arrival.prefix == "system" for arrival in arrivals) == pytest.approx(0.9, abs=0.01)


def test_cached_turns_are_all_or_nothing_and_shared_by_nobody() -> None:
    """Hits are bimodal; what a conversation left in the cache is its own."""
    arrivals = _one(cached=CachedConfig(ratio=0.75, hits=0.4))
    assert {(a.cached_tokens, a.shared_tokens) for a in arrivals} == {(75, 0), (0, 0)}
    assert mean(arrival.cached_tokens > 0 for arrival in arrivals) == pytest.approx(0.4, abs=0.02)
    whole = _one(cached=CachedConfig(ratio=1.0), prefix=PrefixConfig(tokens=50, hits=0.5))
    assert {a.cached_tokens for a in whole} == {149}, "the last token is always computed"
    assert {a.shared_tokens for a in whole} == {0, 50}


def test_callers_are_who_the_file_says() -> None:
    """Class, tenants by share, target, and how many of them stream."""
    arrivals = _one(
        priority=PriorityClass.BATCH, tenants={"a": 3.0, "b": 1.0}, model="big", stream_ratio=0.25
    )
    assert {(arrival.priority, arrival.model) for arrival in arrivals} == {(PriorityClass.BATCH, "big")}
    assert mean(arrival.tenant == "a" for arrival in arrivals) == pytest.approx(0.75, abs=0.02)
    assert mean(arrival.stream for arrival in arrivals) == pytest.approx(0.25, abs=0.02)


def test_components_are_drawn_apart() -> None:
    """Adding batch work, or a cache hit ratio, must not change when people ask and for how much."""
    people = ComponentConfig(rate_per_s=5, lengths=CHAT)
    batch = ComponentConfig(rate_per_s=2, lengths=FIXED, priority=PriorityClass.BATCH)
    alone = list(MixConfig(components=(people,), length_s=100).arrivals(3))
    both = list(MixConfig(components=(people, batch), length_s=100).arrivals(3))

    assert [a for a in both if a.priority is PriorityClass.INTERACTIVE] == alone
    assert [a.at_s for a in both] == sorted(a.at_s for a in both)


def test_a_component_has_its_hours() -> None:
    """From and until: idle, then everybody; a profile counts from the component's beginning."""
    arrivals = _one(from_s=120, until_s=200, profile=(RatePoint(at_s=40, factor=3),))
    assert 120 <= arrivals[0].at_s < 122
    assert 198 < arrivals[-1].at_s < 200
    assert _between(arrivals, 160, 200) == pytest.approx(3 * _between(arrivals, 120, 160), rel=0.2)


def test_without_a_length_it_goes_on() -> None:
    """Whoever runs it says when to stop; nothing is made in advance."""
    mix = MixConfig(components=(ComponentConfig(rate_per_s=1, lengths=CHAT),))
    assert len(list(islice(mix.arrivals(0), 5_000))) == 5_000
    assert max(a.at_s for a in mix.arrivals(0, length_s=10.0)) < 10


def test_scaled_rates_keep_everything_else() -> None:
    """A load sweep multiplies rates."""
    mix = shipped_mix("day")
    assert len(list(mix.scaled(3.0).arrivals(1))) == pytest.approx(3 * len(list(mix.arrivals(1))), rel=0.06)
    assert mix.scaled(1.0) == mix


@pytest.mark.parametrize("name", shipped_mixes())
def test_shipped_mixes_run_and_differ_by_seed(name: str) -> None:
    """A mix that is offered must work; a seed is another day, the same seed the same day."""
    first, again, other = (list(shipped_mix(name).arrivals(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) > 200


def test_long_contexts_are_a_tenth() -> None:
    """The mix says one request in ten: of 60,000 tokens."""
    arrivals = list(shipped_mix("long_context").arrivals(1))
    assert mean(a.prompt_tokens == 60_000 for a in arrivals) == pytest.approx(0.1, abs=0.03)


def test_unknown_shipped_mix_names_those_that_exist() -> None:
    """Guessing names is no fun."""
    with pytest.raises(TraceError, match=r"no shipped mix 'chats': there are .*chat, "):
        shipped_mix("chats")


def test_json_is_read_as_well(tmp_path: Path) -> None:
    """Programs write JSON; `class` and a shape as plain text are as people write them."""
    path = tmp_path / "mix.json"
    path.write_text(json.dumps({"components": [{"rate_per_s": 2, "lengths": "code", "class": "internal"}]}))
    (component,) = load_mix(path).components
    assert component == ComponentConfig(
        rate_per_s=2, lengths=LengthsConfig(shape="code"), priority=PriorityClass.INTERNAL
    )


@pytest.mark.parametrize(
    ("component", "says"),
    [
        ("rate_per_s: fast", "components[0].rate_per_s = 'fast': expected a number"),
        ("rate_per_s: -1", "components[0].rate_per_s = -1: must be over 0 and at most 1,000,000, not -1"),
        ("rate_per_s: .nan", "components[0].rate_per_s = nan: expected a finite number"),
        ("class: gold", "components[0].class = 'gold': expected one of interactive, batch, internal"),
        ("profil: []", "components[0].profil = []: unknown key, did you mean profile?"),
        ("lengths: novel", "components[0].lengths.shape = 'novel': must be one of chat,"),
        ("lengths: {}", "components[0].lengths: needs a shape, a trace, or both prompt and output"),
        ("lengths: {shape: chat, trace: x}", "components[0].lengths.trace = 'x': must stand alone"),
        ("lengths: {shape: chat, output: {median: 5, p90: 4}}", "components[0].lengths.output.p90 = 4: must not be under the median"),
        ("lengths: {shape: chat, output: {median: 5, most: 4}}", "components[0].lengths.output.median = 5: must be between least and most"),
        ("profile: [{at_s: 5, factor: 1}, {at_s: 5, factor: 2}]", "components[0].profile = [{'at_s': 5, 'factor': 1}, {'at_s': 5, 'factor': 2}]: must be in time order"),
        ("profile: [{at_s: 5, factor: -1}]", "components[0].profile[0].factor = -1: must be between 0"),
        ("profile: [{at_s: 5, factor: 1, to: 2}]", "components[0].profile = [{'at_s': 5, 'factor': 1, 'to': 2}]: must not end with a `to`"),
        ("profile: [{at_s: 0, factor: 0}]", "components[0].profile = [{'at_s': 0, 'factor': 0}]: must have a factor over 0"),
        ("repeat_s: 5", "components[0].repeat_s = 5: must be after the last point of a profile"),
        ("cv: 1000", "components[0].cv = 1000: must be between 0 and 100"),
        ("until_s: 0", "components[0].until_s = 0: must be after from_s"),
        ("stream_ratio: 2", "components[0].stream_ratio = 2: must be between 0 and 1"),
        ("lengths: {shape: chat, output: {median: 5, least: 9, most: 4}}", "components[0].lengths.output.least = 9: must be between 1 and most"),
        ("lengths: {trace: x, sample: 0}", "components[0].lengths.sample = 0: must be at least 1"),
        ("profile: [{at_s: -5, factor: 1}]", "components[0].profile[0].at_s = -5: must not be negative"),
        ("changes: [{at_s: -3}]", "components[0].changes[0].at_s = -3: must not be negative"),
        ("max_tokens: 0", "components[0].max_tokens = 0: must be at least 1"),
        ("tenants: {a: 0}", "components[0].tenants = {'a': 0}: shares must not be negative, and one of them positive"),
        ("prefix: {tokens: 0}", "components[0].prefix.tokens = 0: must be at least 1"),
        ("cached: {ratio: 1.5}", "components[0].cached.ratio = 1.5: must be between 0 and 1"),
        ("changes: [{at_s: 3, output: 0}]", "components[0].changes[0].output = 0: must be over 0"),
        ("changes: [{at_s: 3}, {at_s: 1}]", "components[0].changes = [{'at_s': 3}, {'at_s': 1}]: must be in time order"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_line_and_path(tmp_path: Path, component: str, says: str) -> None:
    """A person finds it at once: file, line, path, what was written, what is expected."""
    base = {"rate_per_s": "rate_per_s: 1", "lengths": "lengths: chat", component.partition(":")[0]: component}
    path = tmp_path / "mix.yaml"
    path.write_text("components:\n  - name: x\n" + "".join(f"    {line}\n" for line in base.values()))

    with pytest.raises(TraceError) as caught:
        load_mix(path)

    line = 3 + list(base.values()).index(component)
    (only,) = str(caught.value).splitlines()
    assert only.startswith(f"mix.yaml:{line}: {says}")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """Correcting one at a time is a bad afternoon."""
    path = tmp_path / "mix.yaml"
    path.write_text("length_s: 0\ncomponents:\n  - {lengths: chat}\n  - {rate_per_s: x, lengths: 3}\n")
    with pytest.raises(TraceError) as caught:
        load_mix(path)
    assert str(caught.value).splitlines() == [
        "mix.yaml:3: components[0].rate_per_s: required",
        "mix.yaml:4: components[1].rate_per_s = 'x': expected a number",
        "mix.yaml:4: components[1].lengths = 3: expected keys and values",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "components: required"),
        ("components: []\n", "components = []: must not be empty"),
        ("components: [1]\n", "components[0] = 1: expected keys and values"),
        ("components: 7\n", "components = 7: expected a list"),
        ("- 1\n", "expected keys and values"),
        ("a: [\n", "not YAML"),
        ("length_s: -1\ncomponents: [{rate_per_s: 1, lengths: chat}]\n", "length_s = -1: must be positive"),
    ],
)
def test_a_file_that_is_no_mix_is_said_so(tmp_path: Path, text: str, says: str) -> None:
    """One clear line, no traceback."""
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        load_mix(path)
    assert says in str(caught.value)


def test_files_that_cannot_be_read_are_trace_errors(tmp_path: Path) -> None:
    """The mix itself, or the trace that its lengths come from."""
    with pytest.raises(TraceError, match="cannot be read"):
        load_mix(tmp_path / "gone.yaml")
    mix = MixConfig(components=(ComponentConfig(rate_per_s=1, lengths=LengthsConfig(trace="gone.csv")),))
    with pytest.raises(TraceError, match=r"gone\.csv: cannot be read"):
        list(mix.arrivals())
