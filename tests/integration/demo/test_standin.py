"""The stand-in over real sockets: its timing, its shapes, its faults, its metrics."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission.simulation.engines import calibration
from admission.simulation.exchange import Attempt, Ending, Request, exchange
from admission.simulation.load import LoadConfig, body
from tests.integration.demo.conftest import Starter, get, post, state

pytestmark = pytest.mark.integration

ENGINE = "h100-llama3-8b"


async def ask(
    port: int, prompt: int, output: int, *, chat: bool = False, leave: int = 0, patience: float = 10.0
) -> Attempt:
    """One streamed request."""
    path = "/v1/chat/completions" if chat else "/v1/completions"
    headers = (("x-standin-output-tokens", str(output)),)
    raw = body(LoadConfig(chat=chat), prompt, 4096)
    return await exchange("127.0.0.1", port, Request(path, raw, headers, patience, leave))


async def until(port: int, **wanted: float) -> None:
    """Wait until the stand-in's state has these values; two seconds at most."""
    for _ in range(100):
        found = await state(port)
        if all(found[key] == value for key, value in wanted.items()):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"wanted {wanted}, found {found}")


async def test_lone_request_takes_the_model_s_time(start_standin: Starter) -> None:
    """TTFT and TPOT seen by a client are the closed form's, plus a few milliseconds of this machine."""
    port = await start_standin("--engine", ENGINE)
    config = calibration(ENGINE).config
    attempt = await ask(port, 1500, 60)
    ttft, tpot = config.step_s(1500, 0, 1500), config.step_s(0, 1, 1530)
    assert attempt.ending is Ending.SERVED
    assert (attempt.prompt_tokens, attempt.output_tokens, attempt.chunks) == (1500, 60, 60)
    assert ttft <= (attempt.ttft_s or 0) <= ttft + 0.1
    assert (attempt.tpot_s or 0) == pytest.approx(tpot, rel=0.25)


@pytest.mark.parametrize("chat", [False, True])
async def test_sixteen_tokens_a_chunk(start_standin: Starter, chat: bool) -> None:
    """The first token comes alone, then sixteen at a time: chunks are not tokens, and a role is neither."""
    port = await start_standin("--engine", ENGINE, "--tokens-per-chunk", "16")
    attempt = await ask(port, 100, 65, chat=chat)
    assert (attempt.output_tokens, attempt.chunks) == (65, 5)


async def test_unstreamed_answers_have_usage(start_standin: Starter) -> None:
    """A body without stream gets one JSON answer."""
    port = await start_standin("--engine", ENGINE)
    status, answer = await post(port, "/v1/completions", {"prompt": "abcdefgh", "max_tokens": 5, "n": 2})
    assert status == 200
    assert [choice["text"] for choice in answer["choices"]] == [" tok" * 5] * 2
    assert answer["usage"]["completion_tokens"] == 10
    models = await get(port, "/v1/models")
    assert b'"id": "standin"' in models


async def test_leaving_frees_kv(start_standin: Starter) -> None:
    """Who leaves mid-stream, or while waiting, gives everything back."""
    port = await start_standin("--engine", ENGINE, "--max-num-seqs", "1")
    streaming = asyncio.create_task(ask(port, 4000, 4000, leave=30))
    await until(port, running=1)
    waiting = asyncio.create_task(ask(port, 4000, 4000, patience=0.2))
    assert (await waiting).ending is Ending.IMPATIENT
    assert (await streaming).ending is Ending.LEFT
    await until(port, running=0, waiting=0, kv_usage_ratio=0.0, aborted_total=2, open_calls=0)


async def test_metrics_have_vllm_s_names(start_standin: Starter) -> None:
    """A scrape parses, and its counts are those of what was asked."""
    port = await start_standin("--engine", ENGINE)
    await ask(port, 1000, 10)
    families = {f.name: f for f in text_string_to_metric_families((await get(port, "/metrics")).decode())}
    values = {s.name: s.value for f in families.values() for s in f.samples if "bucket" not in s.name}
    for name, value in {
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:num_preemptions_total": 0,
        "vllm:prompt_tokens_total": 1000,
        "vllm:generation_tokens_total": 10,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:inter_token_latency_seconds_count": 9,
        "vllm:request_time_per_output_token_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_count": 1,
    }.items():
        assert values[name] == value, name
    (info,) = families["vllm:cache_config_info"].samples
    assert int(info.labels["block_size"]) * int(info.labels["num_gpu_blocks"]) == 460_000
    reasons = {s.labels["finished_reason"]: s.value for s in families["vllm:request_success"].samples}
    assert reasons["stop"] == 1


async def test_own_limit_answers_200_with_an_error_to_streams(start_standin: Starter) -> None:
    """VLLM's own refusal looks like success to whoever reads only the status; the client counts it as failed."""
    port = await start_standin("--engine", ENGINE, "--max-num-queued-reqs", "1")
    first = asyncio.create_task(ask(port, 4000, 4000, leave=200))
    await until(port, running=1)
    refused = await ask(port, 100, 10)
    assert (refused.status, refused.ending, refused.reason) == (200, Ending.FAILED, "error 503")
    status, answer = await post(port, "/v1/completions", {"prompt": "hi"})
    assert (status, answer["error"]["code"]) == (503, 503)
    assert (
        b'admission_rejections_total{engine="0",model_name="standin",reason="max_num_queued_reqs"} 2.0'
        in (await get(port, "/metrics"))
    )
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_faults_on_demand(start_standin: Starter) -> None:
    """Slow, stalled and down are what the scenarios need; a wrong wish is refused."""
    port = await start_standin("--engine", ENGINE)
    plain = await ask(port, 1000, 30)
    assert (await post(port, "/standin", {"slow": 3.0}))[0] == 200
    slow = await ask(port, 1000, 30)
    assert (slow.tpot_s or 0) == pytest.approx(3 * (plain.tpot_s or 0), rel=0.3)
    await post(port, "/standin", {"slow": 1.0, "stall_s": 0.5})
    assert 0.5 <= ((await ask(port, 1000, 2)).ttft_s or 0) < 0.8
    cut = asyncio.create_task(ask(port, 1000, 4000))
    await until(port, running=1)
    await post(port, "/standin", {"down_s": 0.5})
    assert (await cut).ending is Ending.FAILED
    assert (await ask(port, 10, 2)).status == 503
    await asyncio.sleep(0.6)
    assert (await ask(port, 10, 2)).ending is Ending.SERVED
    assert (await post(port, "/standin", {"fast": 1}))[0] == 400
    assert (await post(port, "/standin", {"slow": 0}))[0] == 400


async def test_bad_requests_are_answered(start_standin: Starter) -> None:
    """Wrong bodies are 400, unknown routes 404, in vLLM's error shape."""
    port = await start_standin("--engine", ENGINE)
    status, answer = await post(port, "/v1/completions", {"prompt": 5})
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")
    assert (await post(port, "/v1/nowhere", {}))[0] == 404
