"""vLLM's metric names, V0 to 0.33; ranks of data parallelism are told apart by the label `engine`."""

from __future__ import annotations

from collections.abc import Sequence

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import Combine, EngineNames, Metric, PageSample


def capacity(samples: Sequence[PageSample]) -> float | None:
    """KV tokens of all engines of the page; the labels say "None" until the cache is laid out.

    Every rank has a series. Its `kv_cache_size_tokens` is the size of one rank, its `num_gpu_blocks` that of all
    ranks together (vllm/v1/engine/core_client.py adds them up before any is shown).
    """
    sizes = [_number(sample, "kv_cache_size_tokens") for sample in samples]
    if any(sizes):
        return sum(sizes)
    return (
        max(
            (_number(sample, "num_gpu_blocks") * _number(sample, "block_size") for sample in samples),
            default=0,
        )
        or None
    )


def _number(sample: PageSample, label: str) -> float:
    """The number in a label, 0 where there is none."""
    text = sample.labels.get(label, "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


ENGINE = EngineNames(
    kind=EngineKind.VLLM,
    prefix="vllm:",
    signals={
        SignalKind.RUNNING: (Metric(name="vllm:num_requests_running"),),
        SignalKind.WAITING: (Metric(name="vllm:num_requests_waiting"),),
        SignalKind.KV_USAGE_RATIO: (
            Metric(name="vllm:kv_cache_usage_perc", combine=Combine.WORST),
            Metric(name="vllm:gpu_cache_usage_perc", combine=Combine.WORST),
        ),
        SignalKind.PREEMPTIONS_TOTAL: (Metric(name="vllm:num_preemptions_total"),),
        SignalKind.PROMPT_TOKENS_TOTAL: (Metric(name="vllm:prompt_tokens_total"),),
        SignalKind.GENERATION_TOKENS_TOTAL: (Metric(name="vllm:generation_tokens_total"),),
        SignalKind.TTFT_COUNT_TOTAL: (Metric(name="vllm:time_to_first_token_seconds_count"),),
        SignalKind.ENGINE_REJECTIONS_TOTAL: (Metric(name="vllm:admission_rejections_total"),),
    },
    capacity_name="vllm:cache_config_info",
    capacity=capacity,
)
