"""A page is read for what it says: sums over ranks, worst of ratios, absent for what is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import EngineNames, discover
from telemetry.receivers.exposition import read_page, wanted_lines
from tests.telemetry.receivers import pages


def test_a_vllm_page_gives_every_signal_that_vllm_has() -> None:
    """These are the readings that the law steers by."""
    page = read_page(pages.vllm().encode())
    assert (page.engine, page.problem, page.invalid) == (EngineKind.VLLM, "", 0)
    assert page.values == {
        SignalKind.RUNNING: 7.0,
        SignalKind.WAITING: 3.0,
        SignalKind.KV_USAGE_RATIO: 0.25,
        SignalKind.KV_CAPACITY_TOKENS: 16000.0,
        SignalKind.PREEMPTIONS_TOTAL: 5.0,
        SignalKind.PROMPT_TOKENS_TOTAL: 120000.0,
        SignalKind.GENERATION_TOKENS_TOTAL: 64000.0,
        SignalKind.TTFT_COUNT_TOTAL: 310.0,
        SignalKind.ENGINE_REJECTIONS_TOTAL: 3.0,
    }


def test_data_parallel_ranks_add_up_and_the_fullest_cache_counts() -> None:
    """Four ranks hold four times the requests and tokens; KV marks act on the worst member."""
    values = read_page(pages.vllm(engines=4).encode()).values
    assert values[SignalKind.RUNNING] == 28.0
    assert values[SignalKind.KV_CAPACITY_TOKENS] == 64000.0
    assert values[SignalKind.KV_USAGE_RATIO] == 1.0


def test_the_old_name_of_kv_usage_is_understood() -> None:
    """VLLM renamed it between 0.8 and 0.12."""
    values = read_page(pages.vllm(kv="vllm:gpu_cache_usage_perc").encode()).values
    assert values[SignalKind.KV_USAGE_RATIO] == 0.25


def test_the_new_name_wins_where_both_stand() -> None:
    """Releases between the two had both, the old one frozen."""
    text = pages.vllm() + 'vllm:gpu_cache_usage_perc{engine="0"} 0.99\n'
    assert read_page(text.encode()).values[SignalKind.KV_USAGE_RATIO] == 0.25


def test_a_cache_that_is_not_laid_out_yet_has_no_capacity() -> None:
    """A capacity of 0 would mean that nothing ever fits."""
    text = pages.vllm().replace('num_gpu_blocks="1000"', 'num_gpu_blocks="None"')
    assert SignalKind.KV_CAPACITY_TOKENS not in read_page(text.encode()).values


def test_a_stated_cache_size_beats_blocks_times_block_size_and_is_that_of_one_rank() -> None:
    """For hybrid models the product is not what fits; blocks are already those of all ranks, the size is not."""
    text = pages.vllm(engines=2).replace('block_size="16"', 'block_size="16",kv_cache_size_tokens="12345"')
    assert read_page(text.encode()).values[SignalKind.KV_CAPACITY_TOKENS] == 24690.0


def test_tensor_parallel_copies_are_not_added() -> None:
    """Eight tensor ranks that each say 4 running are 4 running."""
    values = read_page(pages.sglang(tp=8).encode()).values
    assert values[SignalKind.RUNNING] == 4.0
    assert values[SignalKind.KV_CAPACITY_TOKENS] == 50000.0


def test_data_parallel_ranks_of_sglang_add_up_beside_their_copies() -> None:
    """Two replicas of four tensor ranks are two replicas."""
    values = read_page(pages.sglang(dp=2, tp=4).encode()).values
    assert values[SignalKind.RUNNING] == 8.0
    assert values[SignalKind.WAITING] == 4.0
    assert values[SignalKind.KV_USAGE_RATIO] == pytest.approx(0.4)
    assert values[SignalKind.KV_CAPACITY_TOKENS] == 100000.0


def test_series_of_single_priorities_are_part_of_the_total_already() -> None:
    """SGLang writes the total under an empty priority beside them."""
    assert read_page(pages.sglang(priorities=True).encode()).values[SignalKind.RUNNING] == 4.0


def test_first_tokens_of_streams_and_of_whole_answers_add_up() -> None:
    """The label is_streaming splits one count in two."""
    assert read_page(pages.sglang().encode()).values[SignalKind.TTFT_COUNT_TOTAL] == 25.0


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf", "-1.0"])
def test_what_cannot_be_is_counted_and_absent_never_zero(bad: str) -> None:
    """A zero would read as an idle engine."""
    page = read_page(pages.vllm().replace("} 7.0", f"}} {bad}").encode())
    assert SignalKind.RUNNING not in page.values
    assert page.invalid == 1
    assert page.values[SignalKind.WAITING] == 3.0


def test_a_percentage_is_no_ratio() -> None:
    """87 where 0.87 was meant must not mean a full cache for ever."""
    page = read_page(pages.vllm().replace("} 0.25", "} 87.0").encode())
    assert SignalKind.KV_USAGE_RATIO not in page.values
    assert page.invalid == 1


def test_rounding_above_one_is_one() -> None:
    """1.0000001 is a full cache, not garbage."""
    page = read_page(pages.vllm().replace("} 0.25", "} 1.0000001").encode())
    assert page.values[SignalKind.KV_USAGE_RATIO] == 1.0


def test_one_broken_line_does_not_cost_the_page() -> None:
    """The parser refuses a whole page for one bad line."""
    page = read_page((pages.vllm() + 'vllm:num_requests_running{engine="1" oops\n').encode())
    assert page.values[SignalKind.RUNNING] == 7.0
    assert page.invalid == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>Welcome</body></html>", "HTML"),
        (b'{"detail":"Not Found"}', "JSON"),
        (b"node_load1 0.5\n", "no metric of a known engine"),
        (b"vllm:some_new_name 1.0\n", "none of the known names under vllm:"),
        (b"\xff\xfe\x00\x80" * 50, "no metric of a known engine"),
    ],
)
def test_what_is_no_page_of_an_engine_says_what_it_is(body: bytes, says: str) -> None:
    """The reason is shown to people who have to find the mistake."""
    page = read_page(body)
    assert says in page.problem
    assert page.values == {}


def test_invalid_utf8_in_a_label_does_not_cost_the_value() -> None:
    """A model name in another encoding is no reason to be blind."""
    body = pages.vllm().encode().replace(b"meta-llama", b"\xff\xfellama")
    assert read_page(body).values[SignalKind.RUNNING] == 7.0


def test_of_two_engines_on_one_page_the_one_that_says_more_is_meant() -> None:
    """A router may pass on a few metrics of another engine."""
    text = "vllm:num_requests_running 1.0\n" + pages.sglang()
    assert read_page(text.encode()).engine is EngineKind.SGLANG


def test_the_lines_that_the_parser_sees_are_few() -> None:
    """Parsing a whole page costs 15 times as much, each second."""
    text = pages.vllm()
    [vllm] = [engine for engine in discover() if engine.kind is EngineKind.VLLM]
    assert len(wanted_lines(text, vllm.names)) < len(text.splitlines()) / 4


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    """Whatever answers on that port must not end the receiver."""
    assert read_page(body).problem


@given(st.text(alphabet='vllm:num_requests_running{}="01 .eE+-\n#', max_size=300))
def test_nothing_that_looks_like_a_page_makes_it_raise(text: str) -> None:
    """Half-written lines reach the parser itself."""
    read_page(("vllm:num_requests_running" + text).encode())


@pytest.mark.parametrize("engine", discover(), ids=lambda engine: str(engine.kind))
def test_every_table_keeps_its_promises(engine: EngineNames) -> None:
    """A new engine is one file; this is what its table must be."""
    assert engine.kind is not EngineKind.UNKNOWN
    assert all(name.startswith(engine.prefix) for name in engine.names)
    assert {SignalKind.RUNNING, SignalKind.WAITING} <= set(engine.signals)
    line = f"{engine.signals[SignalKind.RUNNING][0].name} 5\n"
    page = read_page(line.encode(), (engine,))
    assert page.engine is engine.kind
    assert page.values == {SignalKind.RUNNING: 5.0}


def test_a_page_of_llama_cpp_and_one_of_tgi_are_understood() -> None:
    """Both are named by their own prefix, and say less."""
    llama = (
        b"llamacpp:requests_processing 8\nllamacpp:requests_deferred 24\nllamacpp:tokens_predicted_total 5\n"
    )
    page = read_page(llama)
    assert (page.engine, page.values[SignalKind.WAITING]) == (EngineKind.LLAMACPP, 24.0)
    tgi = b'tgi_queue_size 3\ntgi_request_failure{err="overloaded"} 2\ntgi_request_failure{err="validation"} 9\n'
    page = read_page(tgi)
    assert page.engine is EngineKind.TGI
    assert page.values == {SignalKind.WAITING: 3.0, SignalKind.ENGINE_REJECTIONS_TOTAL: 2.0}
