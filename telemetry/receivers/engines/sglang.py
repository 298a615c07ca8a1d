"""SGLang's metric names; tensor, pipeline and expert ranks repeat a number, data-parallel ranks add to it."""

from __future__ import annotations

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import Combine, EngineNames, Metric

# With priority scheduling the total stands under priority="" beside a series for each priority.
_TOTAL = {"priority": ""}


ENGINE = EngineNames(
    kind=EngineKind.SGLANG,
    prefix="sglang:",
    signals={
        SignalKind.RUNNING: (Metric(name="sglang:num_running_reqs", only=_TOTAL),),
        SignalKind.WAITING: (Metric(name="sglang:num_queue_reqs", only=_TOTAL),),
        SignalKind.KV_USAGE_RATIO: (Metric(name="sglang:token_usage", combine=Combine.WORST),),
        SignalKind.KV_CAPACITY_TOKENS: (Metric(name="sglang:max_total_num_tokens"),),
        SignalKind.PREEMPTIONS_TOTAL: (Metric(name="sglang:num_retracted_requests_total"),),
        SignalKind.PROMPT_TOKENS_TOTAL: (Metric(name="sglang:prompt_tokens_total"),),
        SignalKind.GENERATION_TOKENS_TOTAL: (Metric(name="sglang:generation_tokens_total"),),
        SignalKind.TTFT_COUNT_TOTAL: (Metric(name="sglang:time_to_first_token_seconds_count"),),
    },
    copies=frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_cp_rank", "pid"}),
)
