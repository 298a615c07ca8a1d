"""The metric names of Text Generation Inference, which has no KV usage to show."""

from __future__ import annotations

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import EngineNames, Metric

ENGINE = EngineNames(
    kind=EngineKind.TGI,
    prefix="tgi_",
    signals={
        SignalKind.RUNNING: (Metric(name="tgi_batch_current_size"),),
        SignalKind.WAITING: (Metric(name="tgi_queue_size"),),
        SignalKind.ENGINE_REJECTIONS_TOTAL: (Metric(name="tgi_request_failure", only={"err": "overloaded"}),),
    },
)
