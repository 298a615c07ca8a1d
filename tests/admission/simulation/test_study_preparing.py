"""Everything that was asked for is checked before anything runs, and what is wrong is one line."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from admission.core.limits.fixed import FixedConfig
from admission.core.settings import ClassConfig, ControllerConfig, default_classes
from admission.core.slo import SloConfig
from admission.simulation.preparing import Asked, prepare
from admission.simulation.survey import line_of
from admission.simulation.world import Retry
from admission.vocabulary import Mode, PriorityClass

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
INTERACTIVE = PriorityClass.INTERACTIVE


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three requests and an empty line; the last one is large."""
    file = tmp_path / "mine.csv"
    file.write_text(HEADER + "0.5,100,10\n1.0,200,20\n\n2.5,70000,30\n")
    return file


def own(**slo: Any) -> ControllerConfig:
    """A user's configuration with other targets."""
    classes = default_classes() | {INTERACTIVE: ClassConfig(slo=SloConfig(**slo))}
    return ControllerConfig(mode=Mode.SHADOW, classes=classes, limit=FixedConfig(limit_tokens=7_000))


def problem(**asked: Any) -> str:
    """What is said of it, in one line."""
    with pytest.raises(ValueError, match=r"\w") as error:
        prepare(Asked(**asked))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_a_word_there_is_something_to_see() -> None:
    """A recorded burst, one engine, and the three policies that people want to see first."""
    prepared = prepare(Asked())

    assert list(prepared.study.contenders) == ["none", "64 at a time", "tidegate"]
    assert prepared.facts["traffic"]["requests"] == 1_891
    assert "1,891 requests" in prepared.lines[0]
    assert "h100-llama3-8b" in prepared.lines[1]
    assert "times that is offered" in prepared.lines[2]
    assert "2 s" in prepared.lines[3]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"loads": "0"}, "--load: must be over 0"),
        ({"loads": "1,-2"}, "--load: must be over 0"),
        ({"seeds": "none"}, "--seeds"),
        ({"window": "9999:10"}, "no requests in what was asked for"),
        ({"window": "5:0"}, "--window"),
        ({"speed": -1.0}, "--speed: must be over 0"),
        ({"rate": "0"}, "--rate: must be over 0"),
        ({"rate": "1e-9"}, "no requests in what was asked for (--window, --duration, --rate)"),
        ({"rate": "all"}, "--rate: 'all' is not a number"),
        ({"rate": "capacity", "tpot_slo_ms": 5.0}, "meets 5 ms a token at no rate"),
        ({"duration_s": float("nan")}, "--duration"),
        ({"patience_s": 0.0}, "--patience"),
        ({"ttft_slo_s": -2.0}, "--ttft-slo"),
        ({"tpot_slo_ms": 0.0}, "--tpot-slo"),
        ({"warm_up_s": 1e4}, "--warm-up: 10000 s leave nothing of 99 s"),
        ({"policies": ("nope",)}, "no policy 'nope'; there are aimd_requests"),
        ({"policies": ("fixed_tokens:limit=5",)}, "no setting 'limit'; there are limit_tokens"),
        ({"engine": "abacus"}, "no engine calibration 'abacus'; there are a100"),
        ({"engine": "there/is/none.yaml"}, "none.yaml: No such file"),
        ({"mix": "nope"}, "no mix 'nope'"),
        ({"trace": Path("none.csv")}, "--trace none.csv: there is no such file"),
        ({"trace": Path("a/b/none.csv")}, "--trace a/b/none.csv: there is no such file"),
        ({"journal": Path("nowhere")}, "no such folder"),
        ({"scenario": "nope"}, "no scenario 'nope'"),
        ({"scenario": "over2", "engine": "x", "speed": 2.0}, "leave out --engine, --speed"),
        ({"mix": "chat", "window": "0:5"}, "--window and --speed are for recorded traffic"),
        ({"mix": "chat", "trace": Path("x")}, "--trace and --mix: give one"),
        ({"rivals": {"a": own(), "b": own()}, "policies": ("none",)}, "leave --policy out"),
        ({"seeds": "9999", "loads": "1,2,3"}, "runs are more than"),
    ],
)
def test_what_makes_no_sense_is_one_line(asked: dict[str, Any], says: str) -> None:
    """Minutes of simulation must not end in a traceback, nor in figures of nothing."""
    assert says in problem(**asked)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("1.0,100,10\n0.5,100,10\n", "bad.csv:3: arrival_s 0.5 is before the row above"),
        ("0.5,-1,10\n", "bad.csv:2: prompt_tokens"),
        ("0.5,1e300,10\n", "bad.csv:2: prompt_tokens"),
        ("0.5,ten,10\n", "bad.csv:2: prompt_tokens"),
        ("", "bad.csv: no requests"),
    ],
)
def test_a_bad_trace_is_told_with_its_row(tmp_path: Path, rows: str, says: str) -> None:
    """Traces have a million rows: which one it is, is most of the answer."""
    file = tmp_path / "bad.csv"
    file.write_text(HEADER + rows)

    assert says in problem(trace=file)


def test_a_trace_without_a_column_says_which(tmp_path: Path) -> None:
    """Before the first row is read."""
    file = tmp_path / "bad.csv"
    file.write_text("arrival_s,prompt_tokens\n0.5,10\n")

    assert "output_tokens" in problem(trace=file)


def test_a_request_that_no_kv_can_hold_is_named_with_its_row_and_size(trace: Path) -> None:
    """The engine would refuse it or hang: people must know before they read a figure."""
    said = problem(trace=trace, engine="rtx4090-llama3.1-8b")

    assert "mine.csv: row 5 needs 70,000 + 30 tokens" in said
    assert "41,408" in said
    assert "1 of 3 requests" in said


def test_too_large_requests_may_be_refused_on_purpose(trace: Path) -> None:
    """Real traffic has some: then they count as offered, and nobody serves them."""
    asked = Asked(trace=trace, engine="rtx4090-llama3.1-8b", refuse_too_large=True)
    prepared = prepare(asked)
    report = prepared.study.run().runs[0].report

    assert prepared.facts["traffic"]["too_large_requests"] == 1
    assert (report.offered_requests, report.good_requests) == (3, 2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a,b\n1,2\n\n3,4\n5,6\n", [2, 4, 5]),
        ('{"a":1}\n{"a":2}\n\n{"a":3}\n', [1, 2, 4]),
        ('\n{"a":1}\n{"a":2}', [2, 3]),
    ],
)
def test_the_line_of_a_request_is_that_of_the_file(
    tmp_path: Path, text: str, lines: list[int], packed: bool
) -> None:
    """Where an editor jumps to, header and empty lines counted."""
    file = tmp_path / "trace"
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())

    assert [line_of(file, number) for number in range(1, len(lines) + 1)] == lines


def test_a_rate_is_the_mean_that_was_asked_for() -> None:
    """Of recordings, which have a rate of their own, and of mixes."""
    for more in ({"trace": Path("azure2023_conv_busy_1620_2040")}, {"mix": "chat", "duration_s": 200.0}):
        found = prepare(Asked(rate="5", **more))

        assert found.facts["traffic"]["rate_per_s"] == pytest.approx(5.0, rel=0.15)


def test_the_capacity_is_a_rate_too() -> None:
    """Load factors are then multiples of what the engine can carry, whatever the engine."""
    slow, fast, two = (
        prepare(Asked(mix="chat", rate="capacity", **more)).facts
        for more in ({"engine": "a100-llama3-8b"}, {"engine": "h100-llama3-8b"}, {"replicas": 2})
    )

    assert slow["capacity_per_s"] < fast["capacity_per_s"]
    assert two["capacity_per_s"] == pytest.approx(2 * fast["capacity_per_s"], rel=0.1)
    for facts in (slow, fast, two):
        assert facts["traffic"]["rate_per_s"] == pytest.approx(facts["capacity_per_s"], rel=0.1)


def test_the_users_configuration_is_simulated_and_judged_by_its_own_targets() -> None:
    """Classes and SLOs are the user's, also for what Tidegate is compared with; and it enforces, or nothing would show."""
    asked = Asked(
        own=own(ttft_s=0.7, tpot_s=0.05), own_name="mine.yaml", policies=("tidegate", "fixed_tokens")
    )
    prepared = prepare(asked)
    tidegate, fixed = (spec.config for spec in prepared.study.contenders.values())

    assert prepared.study.setup.slo[INTERACTIVE] == SloConfig(ttft_s=0.7, tpot_s=0.05)
    assert tidegate.mode is Mode.ENFORCE
    assert tidegate.limit == FixedConfig(limit_tokens=7_000)
    assert fixed.classes[INTERACTIVE].slo.ttft_s == 0.7
    assert any("mine.yaml" in line and "shadow" in line for line in prepared.lines)


def test_targets_can_be_asked_for_and_everybody_steers_by_them() -> None:
    """A policy that steers by one SLO and is judged by another would lose for no reason of its own."""
    asked = Asked(ttft_slo_s=1.0, tpot_slo_ms=50.0, policies=("tidegate", "aimd_requests"))
    prepared = prepare(asked)
    tidegate, aimd = (spec.config for spec in prepared.study.contenders.values())
    wanted = prepared.study.setup.slo[INTERACTIVE]

    assert (wanted.ttft_s, wanted.tpot_s) == (1.0, 0.05)
    assert tidegate.classes[INTERACTIVE].slo == aimd.slos[INTERACTIVE] == wanted


def test_a_setting_on_the_command_line_goes_over_the_file() -> None:
    """The file with one difference is the usual question."""
    asked = Asked(own=own(), policies=("tidegate:limit.limit_tokens=9000,tick_s=0.5",))
    (spec,) = prepare(asked).study.contenders.values()

    assert (spec.config.limit, spec.config.tick_s) == (FixedConfig(limit_tokens=9_000), 0.5)


def test_two_configurations_keep_their_own_targets_and_are_judged_by_the_first() -> None:
    """A/B asks which settings to use: targets are settings. What is good must be one thing."""
    prepared = prepare(Asked(rivals={"a": own(tpot_s=0.05), "b": own(tpot_s=0.09)}))
    a, b = (spec.config.classes[INTERACTIVE].slo.tpot_s for spec in prepared.study.contenders.values())

    assert (a, b) == (0.05, 0.09)
    assert prepared.study.setup.slo[INTERACTIVE].tpot_s == 0.05
    assert prepared.rivals == ("a", "b")
    assert len(prepared.study.seeds) == 5


def test_callers_and_replicas_are_as_asked_for() -> None:
    """Retries and patience change the answer as much as the policy does."""
    world = prepare(Asked(replicas=3, patience_s=4.0, retry=Retry.STORM)).study.setup.world()

    assert len(world.members) == 3
    assert (world.callers.patience_s, world.callers.retry) == (4.0, Retry.STORM)


def test_a_scenario_brings_everything() -> None:
    """Its targets, too."""
    prepared = prepare(Asked(scenario="over2"))

    assert prepared.lines[0] == "over2: Twice the capacity."
    assert prepared.study.setup.slo[INTERACTIVE].ttft_per_1k_s == 0.0
