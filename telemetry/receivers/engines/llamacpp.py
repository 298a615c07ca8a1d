"""The metric names of llama.cpp's server; its sequence limit is its number of slots, which it does not tell here."""

from __future__ import annotations

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import Combine, EngineNames, Metric

ENGINE = EngineNames(
    kind=EngineKind.LLAMACPP,
    prefix="llamacpp:",
    signals={
        SignalKind.RUNNING: (Metric(name="llamacpp:requests_processing"),),
        SignalKind.WAITING: (Metric(name="llamacpp:requests_deferred"),),
        SignalKind.KV_USAGE_RATIO: (Metric(name="llamacpp:kv_cache_usage_ratio", combine=Combine.WORST),),
        SignalKind.PROMPT_TOKENS_TOTAL: (Metric(name="llamacpp:prompt_tokens_total"),),
        SignalKind.GENERATION_TOKENS_TOTAL: (Metric(name="llamacpp:tokens_predicted_total"),),
    },
)
