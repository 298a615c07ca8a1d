"""What every emitter owes, on spans of every server and version."""

from __future__ import annotations

import contextlib
import math

import pytest

from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import AnyValue, Span
from telemetry.spans import Emitter, UnusableSpan, discover
from tests.telemetry.golden import (
    CLIENT,
    GENAI,
    HTTP_NEW,
    HTTP_OLD,
    HTTP_SEND,
    REQUESTS,
    SERVER,
    SGLANG,
    SGLANG_056,
    SGLANG_ABORT,
    SGLANG_FORWARD,
    SGLANG_WAITING,
    VLLM_V0,
    VLLM_V1,
    Told,
    Value,
)
from tests.telemetry.reading import Reader, sample_of

EMITTERS = discover()


def emitter_id(emitter: Emitter) -> str:
    """The name in the test's id."""
    return emitter.name


@pytest.mark.parametrize(("emitter", "told"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_went_well_becomes_one_sample(emitter: str, told: Told) -> None:
    """Every server in the table is seen, by the emitter meant for it, whole and as a success."""
    sample = sample_of(told)
    assert sample.emitter == emitter
    assert sample.outcome is Outcome.OK
    assert sample.e2e_s == pytest.approx(told.lasted_s, abs=0.01)
    assert sample.request_key


@pytest.mark.parametrize("emitter", EMITTERS, ids=emitter_id)
def test_every_emitter_has_a_golden_span(emitter: Emitter) -> None:
    """A new emitter comes with its fixture, and so with the tests over all of them."""
    assert emitter.name in {name for name, _ in REQUESTS.values()}


@pytest.mark.parametrize(("name", "told"), REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("lasted_s", [0.0, 86_401.0])
def test_no_emitter_believes_an_impossible_duration(name: str, told: Told, lasted_s: float) -> None:
    """A duration of nothing or of days must not become a latency."""
    reader = Reader()
    reader.read(told.but(lasted_s=lasted_s).without("gen_ai.latency.e2e"))
    assert reader.samples == []
    assert reader.results() == {"unusable": 1}


@pytest.mark.parametrize(("name", "told"), REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("odd", [math.nan, math.inf, -1e308, 1e308, "many", True, [], -5])
def test_odd_attribute_values_never_reach_a_sample(name: str, told: Told, odd: Value) -> None:
    """Whatever a sender puts where a number should be, a sample holds sane numbers or none."""
    keys = [
        key for key in told.attributes if key.startswith(("gen_ai.latency", "gen_ai.usage", "gen_ai.resp"))
    ]
    reader = Reader()
    reader.read(told.but(more=dict.fromkeys([*keys, "gen_ai.request.n"], odd)))
    for sample in reader.samples:
        parts = (sample.ttft_s, sample.queue_s, sample.prefill_s, sample.decode_s)
        assert sample.e2e_s is not None
        assert all(part is None or 0 <= part <= sample.e2e_s for part in parts)
        assert all(tokens is None or tokens >= 0 for tokens in (sample.prompt_tokens, sample.output_tokens))


def test_vllm_tells_every_duration() -> None:
    """The engine's own split is the best that any emitter gives; none of it may get lost."""
    sample = sample_of(VLLM_V1)
    assert (sample.ttft_s, sample.queue_s, sample.prefill_s) == (0.2143, 0.0312, 0.1688)
    assert (sample.e2e_s, sample.decode_s) == (3.4597, 3.2401)
    assert (sample.prompt_tokens, sample.output_tokens) == (812, 190)
    assert sample.request_key == "chatcmpl-3d0f6a"
    assert sample.tpot_s == pytest.approx(3.2401 / 189)


def test_the_old_vllm_engine_names_its_model() -> None:
    """V0 is the only vLLM that does, and has no split of the model's time."""
    sample = sample_of(VLLM_V0)
    assert sample.model == "facebook/opt-125m"
    assert sample.decode_s is None
    assert sample.tpot_s == pytest.approx((3.4597 - 0.2143) / 189)


@pytest.mark.parametrize("name", ["Load model", "Capture model", "Warmup (GPU)", "API server setup"])
def test_vllm_start_up_is_not_a_request(name: str) -> None:
    """Loading weights for a minute must not look like a minute of latency."""
    reader = Reader()
    reader.read(VLLM_V1.but(name=name, kind=1))
    assert reader.samples == []
    assert reader.heard.counters == {"spans_received": 1}


def test_sequences_of_one_request_count_once() -> None:
    """With n = 3 vLLM sends three spans of one id: three samples would weigh it threefold."""
    reader = Reader()
    first = VLLM_V1.but(more={"gen_ai.request.n": 3})
    reader.read(first, first.but(span_id="aa" * 8), first.but(span_id="bb" * 8, trace_id="cc" * 16))
    assert len(reader.samples) == 1


def test_sequences_of_one_request_count_once_before_017() -> None:
    """There each sequence's id is the request's with its number in front."""
    reader = Reader()
    spans = [
        VLLM_V1.but(span_id=f"{n + 1:016x}", more={"gen_ai.request.n": 2, "gen_ai.request.id": f"{n}_cmpl-9"})
        for n in range(2)
    ]
    reader.read(*spans)
    assert [sample.request_key for sample in reader.samples] == ["cmpl-9"]


def test_a_retry_under_the_same_id_is_a_sample_of_its_own() -> None:
    """One sample per attempt: a retry repeats X-Request-Id, but arrives later."""
    reader = Reader()
    first = VLLM_V1.but(more={"gen_ai.request.n": 2})
    reader.read(first, first.but(span_id="aa" * 8, start_ns=first.start_ns + 2_000_000_000))
    assert len(reader.samples) == 2


def test_stamps_that_were_never_set_are_not_durations() -> None:
    """An engine-side abort subtracts from 0.0: minus the uptime must neither count nor look like success."""
    sample = sample_of(
        VLLM_V1.but(
            more={
                "gen_ai.latency.time_in_queue": -182_734.2,
                "gen_ai.latency.time_in_model_prefill": -182_734.2,
                "gen_ai.latency.time_in_model_inference": 0.0,
                "gen_ai.latency.time_to_first_token": 0.0,
            }
        )
    )
    assert sample.outcome is Outcome.ABORTED
    assert (sample.queue_s, sample.prefill_s, sample.ttft_s) == (None, None, None)


def test_a_first_token_after_the_end_is_not_known() -> None:
    """A clock step between the two stamps makes such a span; the rest of it is still true."""
    sample = sample_of(VLLM_V1.but(more={"gen_ai.latency.time_to_first_token": 3.6}))
    assert sample.ttft_s is None
    assert sample.decode_s == 3.2401


def test_a_part_slightly_beyond_the_whole_is_the_whole() -> None:
    """Two clocks disagree a little; far off is not known, a little is cut."""
    sample = sample_of(
        VLLM_V1.but(
            more={"gen_ai.latency.time_in_model_decode": 4.0, "gen_ai.latency.time_in_model_prefill": 90.0}
        )
    )
    assert sample.decode_s == sample.e2e_s
    assert sample.prefill_s is None


def test_sglang_queue_time_comes_from_its_slice() -> None:
    """Its prefill time includes the queue: only with the slice can the two be told apart."""
    sample = sample_of(SGLANG_WAITING, SGLANG)
    assert sample.queue_s == pytest.approx(0.029)
    assert sample.prefill_s == pytest.approx(0.109 - 0.029)
    assert (sample.cached_tokens, sample.model) == (1024, "qwen3-8b")
    assert sample.request_key == "9f31c2ab7d5e4c01"


def test_sglang_without_its_slice_has_no_prefill_time() -> None:
    """A prefill time that contains an unknown queue time would be read as a slow engine."""
    sample = sample_of(SGLANG)
    assert (sample.queue_s, sample.prefill_s) == (None, None)
    assert sample.ttft_s == 0.118


def test_an_sglang_abort_is_no_success() -> None:
    """Unlike vLLM it ends its span on abort: with latencies, without token counts."""
    assert sample_of(SGLANG_ABORT).outcome is Outcome.ABORTED
    told = SGLANG.but(more={"gen_ai.response.finish_reasons": '[{"type": "abort"}]'})
    assert sample_of(told).outcome is Outcome.ABORTED


def test_old_sglang_has_its_first_token_from_a_slice() -> None:
    """0.5.6 tells no latencies at all: the end of prefill comes nearest."""
    sample = sample_of(SGLANG_FORWARD, SGLANG_056)
    assert sample.ttft_s == pytest.approx(0.111)
    assert sample_of(SGLANG_056).ttft_s is None


def test_the_slices_of_lost_roots_are_bounded() -> None:
    """Roots may never come; what waits for them must not grow."""
    reader = Reader()
    for number in range(5000):
        reader.read(SGLANG_WAITING.but(trace_id=f"{number + 1:032x}"))
    (sglang,) = [e for e in reader.spans._emitters if e.name == "sglang"]
    assert len(sglang._traces) == 4096  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "lasted_s", "outcome"),
    [
        (200, 3.5, Outcome.OK),
        (429, 0.004, Outcome.BUSY),
        (429, 2.0, Outcome.BUSY),
        (503, 0.004, Outcome.BUSY),
        (503, 9.0, Outcome.ERROR),
        (529, 0.01, Outcome.BUSY),
        (500, 0.2, Outcome.ERROR),
        (499, 1.0, Outcome.ABORTED),
        (400, 0.01, Outcome.INVALID),
        (404, 0.01, Outcome.INVALID),
    ],
)
@pytest.mark.parametrize("told", [HTTP_OLD, HTTP_NEW], ids=["old", "new"])
def test_http_status_says_what_became_of_it(
    told: Told, status: int, lasted_s: float, outcome: Outcome
) -> None:
    """A refusal is back-pressure: read as a success it would be the fastest of all, and raise the limit."""
    name = "http.status_code" if told is HTTP_OLD else "http.response.status_code"
    assert sample_of(told.but(lasted_s=lasted_s, more={name: status})).outcome is outcome


def test_an_error_without_status_is_an_error() -> None:
    """A handler that raised has no response, only the span's own status."""
    assert sample_of(HTTP_NEW.without("http.response.status_code").but(status=2)).outcome is Outcome.ERROR


def test_one_span_for_each_chunk_is_skipped_before_its_attributes() -> None:
    """ASGI instrumentation makes one INTERNAL span of every streamed chunk: they are not requests."""
    reader = Reader()
    sends = [HTTP_SEND.but(span_id=f"{n:016x}") for n in range(1, 101)]
    reader.read(*sends, HTTP_OLD)
    assert len(reader.samples) == 1
    assert reader.results() == {"sample": 1}


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/tokenize", "/"])
def test_routes_without_a_model_are_no_samples(path: str) -> None:
    """Health checks are many and fast: they would drown the latencies that matter."""
    reader = Reader()
    reader.read(HTTP_NEW.but(name=f"POST {path}", more={"http.route": path, "url.path": path}))
    assert reader.samples == []


def test_an_http_span_has_no_first_token() -> None:
    """Response headers are not a first token, and the span ends with the last chunk."""
    assert sample_of(HTTP_NEW).ttft_s is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("openai.RateLimitError", Outcome.BUSY),
        ("429", Outcome.BUSY),
        ("openai.InternalServerError", Outcome.ERROR),
        ("APIConnectionError", Outcome.ERROR),
    ],
)
def test_a_client_that_was_refused_is_no_success(error: str, outcome: Outcome) -> None:
    """Client spans say why they failed in error.type, as a status or as an exception's name."""
    sample = sample_of(GENAI.but(status=2, lasted_s=0.02, more={"error.type": error}).without("gen_ai.none"))
    assert sample.outcome is outcome
    assert sample.ttft_s is None


def test_litellm_carries_the_call_on_its_root() -> None:
    """Its default version puts the model's attributes on the server span and makes no span of the call."""
    told = GENAI.but(name="Received Proxy Server Request", kind=SERVER)
    assert sample_of(told).model == "gpt-oss-20b"
    reader = Reader()
    reader.read(told.without("gen_ai.request.model"))
    assert reader.samples == []


def test_both_spellings_of_usage_are_read() -> None:
    """The convention renamed prompt and completion tokens; half the world has not."""
    old = GENAI.without("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    sample = sample_of(old.but(more={"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 9}))
    assert (sample.prompt_tokens, sample.output_tokens) == (7, 9)


def test_texts_of_a_sample_are_bounded() -> None:
    """Ids and models come from outside: a megabyte of either would be copied along the whole way."""
    sample = sample_of(
        VLLM_V0.but(more={"gen_ai.request.id": "x" * 9999, "gen_ai.response.model": "m" * 9999})
    )
    assert (len(sample.request_key), len(sample.model)) == (64, 64)


def test_redis_spans_of_a_proxy_are_not_calls() -> None:
    """LiteLLM makes dozens of client spans for each request."""
    reader = Reader()
    reader.read(GENAI.but(name="SET", kind=CLIENT))
    assert reader.samples == []


@pytest.mark.parametrize("emitter", EMITTERS, ids=emitter_id)
def test_an_emitter_reads_an_empty_span_without_falling_over(emitter: Emitter) -> None:
    """Any field may be missing on the wire: the answer is None or UnusableSpan, nothing else."""
    for name in ("", "llm_request", "x Req y", "chat m", "POST /v1/completions"):
        span = Span(name=name, attributes={"gen_ai.request.model": AnyValue(string_value="m")})
        with contextlib.suppress(UnusableSpan):
            assert emitter.read(span, 0.0) is None
