"""vLLM: `llm_request`, of the V0 engine and of V1 before and after tracing became a package (0.17)."""

from __future__ import annotations

import re

from admission.core.model import Sample
from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import Span
from telemetry.processors.dedupe import Seen
from telemetry.spans import Rank
from telemetry.spans.reading import Bounds, count, number, request_key, span_s, text, whole_s

E2E = "gen_ai.latency.e2e"
TTFT = "gen_ai.latency.time_to_first_token"
QUEUE = "gen_ai.latency.time_in_queue"
PREFILL = "gen_ai.latency.time_in_model_prefill"
DECODE = "gen_ai.latency.time_in_model_decode"
INFERENCE = "gen_ai.latency.time_in_model_inference"
NEVER_SET_S = -1.0
"""Engine-side aborts leave stamps at 0.0, and differences of them are minus the machine's uptime."""


class Vllm:
    """One span for each sequence, made after the last token; none for requests that the client abandoned."""

    name = "vllm"
    rank = Rank.ENGINE

    def __init__(self) -> None:
        self._siblings = Seen(ttl_s=600.0, capacity=16_384)

    def claims(self, scope: str) -> bool:
        """`vllm.llm_engine` before 0.17, `vllm.tracing.otel` since."""
        return scope.startswith("vllm.")

    def wants(self, span: Span) -> bool:
        """Not the spans of start-up: model loading, graph capture."""
        return span.name == "llm_request"

    def read(self, span: Span, at: float) -> Sample | None:
        """The request; None for the further sequences of one with n > 1."""
        attributes = span.attributes
        key = request_key(span)
        if (count(attributes, "gen_ai.request.n") or 1) > 1:
            key = re.sub(r"^\d+_", "", key)
            if not self._siblings.add((key, span.start_time_unix_nano), at):
                return None
        bounds = Bounds(whole_s(span, number(attributes, E2E)), span_s(span))
        queue_s, prefill_s = number(attributes, QUEUE), number(attributes, PREFILL)
        return Sample(
            at=at,
            outcome=_outcome(queue_s, prefill_s, number(attributes, INFERENCE)),
            emitter=self.name,
            request_key=key,
            model=text(attributes, "gen_ai.response.model"),
            e2e_s=bounds.e2e_s,
            ttft_s=bounds.first_token(number(attributes, TTFT)),
            queue_s=bounds.part(queue_s),
            prefill_s=bounds.part(prefill_s),
            decode_s=bounds.part(number(attributes, DECODE)),
            prompt_tokens=count(attributes, "gen_ai.usage.prompt_tokens"),
            output_tokens=count(attributes, "gen_ai.usage.completion_tokens"),
        )


def _outcome(*parts: float | None) -> Outcome:
    never_ran = any(part is not None and part < NEVER_SET_S for part in parts)
    return Outcome.ABORTED if never_ran else Outcome.OK


def emitter() -> Vllm:
    """For discovery."""
    return Vllm()
