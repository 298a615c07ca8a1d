"""Client spans of the GenAI conventions, of any library: LiteLLM, OpenLLMetry, the OTel OpenAI instrumentation."""

from __future__ import annotations

from admission.core.model import Sample
from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import Span
from telemetry.spans import Rank
from telemetry.spans.reading import (
    KIND_CLIENT,
    KIND_SERVER,
    STATUS_ERROR,
    Attributes,
    Bounds,
    count,
    http_outcome,
    number,
    request_key,
    span_s,
    text,
    whole_s,
)

OPERATIONS = ("chat", "text_completion", "generate_content", "embeddings")
OPENLLMETRY = frozenset({"openai.chat", "openai.completion", "openai.embeddings", "openai.response"})
LITELLM_ROOT = "Received Proxy Server Request"
STATUS_BY_ERROR = {"RateLimitError": 429, "APITimeoutError": 408, "APIConnectionError": 502}
FIRST_CHUNK = ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")


class GenAi:
    """The caller's view: the network and the client's own retries are inside its durations."""

    name = "genai"
    rank = Rank.CLIENT

    def claims(self, scope: str) -> bool:
        """Conventions have no scope of their own; engines that invent `gen_ai.*` names have their own emitter."""
        return not scope.startswith("vllm.") and scope != "sglang server"

    def wants(self, span: Span) -> bool:
        """`{operation} {model}` of kind CLIENT, and LiteLLM's root, which carries the attributes itself."""
        if span.kind == KIND_CLIENT:
            return span.name in OPENLLMETRY or span.name.partition(" ")[0] in OPERATIONS
        return span.kind == KIND_SERVER and span.name == LITELLM_ROOT

    def read(self, span: Span, at: float) -> Sample | None:
        """The call; None when it is not one to a model."""
        attributes = span.attributes
        model = text(attributes, "gen_ai.response.model", "gen_ai.request.model")
        if not model:
            return None
        bounds = Bounds(whole_s(span), span_s(span))
        outcome = _outcome(span, bounds.e2e_s)
        return Sample(
            at=at,
            outcome=outcome,
            emitter=self.name,
            request_key=request_key(span),
            model=model,
            e2e_s=bounds.e2e_s,
            ttft_s=bounds.first_token(number(attributes, *FIRST_CHUNK)) if outcome is Outcome.OK else None,
            prompt_tokens=count(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
            output_tokens=count(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
            cached_tokens=count(attributes, "gen_ai.usage.cache_read.input_tokens"),
        )


def _outcome(span: Span, e2e_s: float) -> Outcome:
    return http_outcome(_status(span.attributes), e2e_s, failed=span.status.code == STATUS_ERROR)


def _status(attributes: Attributes) -> int | None:
    status = count(attributes, "http.response.status_code", "http.status_code", "error.type")
    return status or STATUS_BY_ERROR.get(text(attributes, "error.type").rpartition(".")[2])


def emitter() -> GenAi:
    """For discovery."""
    return GenAi()
