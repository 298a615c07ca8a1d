"""Which spans become samples: once, on time, bound, by the one emitter that speaks, from whom may steer."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from admission.vocabulary import Outcome
from telemetry.config import TargetBinding
from telemetry.frames import Encoder
from telemetry.link import TelemetryView
from telemetry.receivers.otlp_spans import MAX_UNBOUND
from tests.telemetry.golden import GENAI, HTTP_OLD, REQUESTS, SGLANG, VLLM_V1, Told
from tests.telemetry.reading import Reader


def test_a_repeated_batch_counts_once() -> None:
    """OTLP is at-least-once: a lost reply brings the whole batch again."""
    reader = Reader()
    reader.read(VLLM_V1)
    reader.read(VLLM_V1, at=102.0)
    assert len(reader.samples) == 1
    assert reader.results() == {"sample": 1, "duplicate": 1}


def test_span_ids_that_collide_across_processes_are_two_spans() -> None:
    """SGLang seeds its ids with the clock: the same id with another name or trace is another span."""
    reader = Reader()
    reader.read(SGLANG, SGLANG.but(trace_id="00000000000000000123456789abcdef"))
    assert len(reader.samples) == 2


def test_a_trace_id_with_a_zero_upper_half_is_valid() -> None:
    """SGLang makes 64-bit trace ids; refusing them would lose every one of its spans."""
    assert SGLANG.trace_id.startswith("0" * 16)
    reader = Reader()
    assert reader.read(SGLANG).rejected == 0
    assert len(reader.samples) == 1


@pytest.mark.parametrize(
    "broken",
    [
        VLLM_V1.but(trace_id="7c1d"),
        VLLM_V1.but(trace_id=""),
        VLLM_V1.but(trace_id="00" * 16),
        VLLM_V1.but(span_id="1f2e"),
        VLLM_V1.but(span_id="00" * 8),
        VLLM_V1.but(lasted_s=-1.0),
    ],
    ids=[
        "short trace id",
        "no trace id",
        "zero trace id",
        "short span id",
        "zero span id",
        "negative duration",
    ],
)
def test_a_malformed_span_is_rejected_and_the_rest_kept(broken: Told) -> None:
    """The sender is told how many and why; its other spans are not lost."""
    reader = Reader()
    batch = reader.read(HTTP_OLD, broken, HTTP_OLD.but(span_id="ab" * 8))
    assert (batch.rejected, len(reader.samples)) == (1, 2)
    assert batch.message


def test_a_span_nobody_wants_is_never_rejected() -> None:
    """Senders log a warning for each partial success: what is only irrelevant must not cause any."""
    reader = Reader()
    assert reader.read(VLLM_V1.but(name="SELECT", trace_id="12")).rejected == 0


@pytest.mark.parametrize(
    ("late_s", "results"), [(9.9, {"sample": 1}), (10.1, {"late": 1}), (600.0, {"late": 1})]
)
def test_late_spans_are_counted_and_do_not_steer(late_s: float, results: dict[str, int]) -> None:
    """After an outage of the path a backlog arrives: it says how the engine was, not how it is."""
    reader = Reader()
    reader.read(VLLM_V1, late_s=late_s)
    assert reader.results() == results


def test_a_clock_ahead_of_ours_is_flagged_and_its_spans_steer() -> None:
    """Durations are free of skew, and windows go by our own clock: nothing is wrong with the sample."""
    reader = Reader()
    reader.read(VLLM_V1, late_s=-90.0)
    assert reader.samples[0].at == 100.0
    (warning,) = reader.spans.lateness.warnings(100.0)
    assert "vllm-llama8b-0" in warning
    assert "ahead" in warning


def test_the_engine_speaks_for_its_target() -> None:
    """A trace through client, edge and engine holds three spans of one request: one may count."""
    reader = Reader()
    reader.read(VLLM_V1, HTTP_OLD, GENAI)
    assert [sample.emitter for sample in reader.samples] == ["vllm"]
    assert reader.spans.primaries.shown() == {"default": "vllm"}
    assert reader.results() == {"sample": 1, "secondary": 2}


def test_the_engine_takes_over_from_the_edge_at_once() -> None:
    """Which of them arrives first at start-up is chance."""
    reader = Reader()
    reader.read(GENAI, HTTP_OLD, VLLM_V1, HTTP_OLD.but(span_id="ab" * 8))
    assert [sample.emitter for sample in reader.samples] == ["genai", "http", "vllm"]


def test_the_edge_speaks_when_the_engine_has_gone_silent() -> None:
    """Tracing switched off at the engine must not leave the target blind for ever."""
    reader = Reader()
    reader.read(VLLM_V1)
    reader.read(HTTP_OLD, at=130.0)
    reader.read(HTTP_OLD.but(span_id="ab" * 8), at=161.0)
    assert [sample.emitter for sample in reader.samples] == ["vllm", "http"]


def test_a_refusal_brings_no_latency() -> None:
    """A 429 in 4 ms is back-pressure; as a latency it would be the best ever seen."""
    reader = Reader()
    reader.read(GENAI.but(lasted_s=0.004, status=2, more={"error.type": "429"}))
    (sample,) = reader.samples
    assert sample.outcome is Outcome.BUSY
    assert (sample.ttft_s, sample.decode_s, sample.tpot_s) == (None, None, None)


def test_without_the_role_spans_are_shown_and_never_steer() -> None:
    """Whoever reaches the port could otherwise talk the limit down, or up."""
    reader = Reader()
    reader.read(VLLM_V1, steers=False)
    assert reader.samples == []
    assert reader.results() == {"without_role": 1}
    assert "do not steer" in reader.heard.warnings["spans_without_role"]
    assert reader.spans.primaries.shown() == {}


def test_spans_find_their_target_by_resource() -> None:
    """Two engines behind one sidecar: each is judged by its own spans."""
    targets = (
        TargetBinding(name="a", spans={"service.name": "vllm-*"}),
        TargetBinding(name="b", spans={"service.name": "sglang"}),
    )
    reader = Reader(targets)
    reader.read(VLLM_V1, SGLANG, HTTP_OLD)
    assert [target for target, _ in reader.heard.samples] == ["a", "b"]
    assert list(reader.spans.unbound) == ["unknown_service (http)"]


def test_a_target_of_one_model_gives_its_spans_the_name() -> None:
    """The spans of vLLM carry no model."""
    reader = Reader((TargetBinding(models=("llama-8b",)),))
    reader.read(VLLM_V1)
    assert reader.samples[0].model == "llama-8b"


def test_unbound_senders_are_listed_and_bounded() -> None:
    """A sender with a new name for every process must not grow the list."""
    reader = Reader((TargetBinding(name="a", spans={"service.name": "x"}),))
    for number in range(3 * MAX_UNBOUND):
        reader.read(VLLM_V1.but(resource={"service.name": f"s{number}"}, span_id=f"{number + 1:016x}"))
    assert len(reader.spans.unbound) == MAX_UNBOUND
    assert reader.samples == []


def test_scopes_are_bounded() -> None:
    """A sender with a new scope name for every span must not grow the table of emitters by scope."""
    reader = Reader()
    for number in range(1000):
        reader.read(HTTP_OLD.but(scope=f"s{number}"))
    assert len(reader.spans._by_scope) <= 256


PROMPT = "the launch code is 0000"
CARRIERS = (
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "llm.prompts.0.content",
    "input.value",
    "http.request.body",
)


@pytest.mark.parametrize(("name", "told"), REQUESTS.values(), ids=REQUESTS)
def test_prompts_leave_nowhere(name: str, told: Told) -> None:
    """What users asked and were answered is dropped on receipt: not stored, not logged, not sent on."""
    reader = Reader((TargetBinding(name="a"), TargetBinding(name="b", spans={"service.name": "x"})))
    planted = told.but(more=dict.fromkeys(CARRIERS, PROMPT))
    reader.read(planted)
    reader.read(planted.but(lasted_s=-1.0))
    bound = Reader()
    bound.read(planted)
    bound.read(planted.but(resource={"process.command_args": [PROMPT], "note": PROMPT}, span_id="ab" * 8))
    left = _everything_kept(reader) + _everything_kept(bound)
    encoder = Encoder()
    left += "".join(repr(encoder.sample(target, sample)) for target, sample in bound.heard.samples)
    assert bound.samples
    assert PROMPT not in left


def _everything_kept(reader: Reader) -> str:
    spans = reader.spans
    view = TelemetryView(
        unbound=list(spans.unbound),
        emitters=spans.primaries.shown(),
        counters=dict(reader.heard.counters),
        warnings=spans.lateness.warnings(100.0),
    )
    state = [repr(vars(emitter)) for emitter in spans._emitters]
    return json.dumps(asdict(view)) + repr(reader.samples) + "".join(state) + repr(vars(spans))
