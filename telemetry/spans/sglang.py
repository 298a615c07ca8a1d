"""SGLang: the root span `Req xxxxxxxx` of each request, with queue time from its `prefill_waiting` slice."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from admission.core.model import Sample
from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import Span
from telemetry.spans import Rank
from telemetry.spans.reading import Attributes, Bounds, count, number, request_key, span_s, text, whole_s

LATENCY = "gen_ai.latency."
SLICES = frozenset({"prefill_waiting", "prefill_forward"})
MAX_TRACES = 4096


@dataclass(slots=True)
class _Slices:
    """What came of a trace before its root. Seconds; nanoseconds of the emitter's wall clock."""

    queue_s: float | None = None
    prefilled_ns: int = 0


class Sglang:
    """The root ends at the tokenizer, also on abort; slices come from the scheduler, mostly earlier."""

    name = "sglang"
    rank = Rank.ENGINE

    def __init__(self) -> None:
        self._traces: OrderedDict[bytes, _Slices] = OrderedDict()

    def claims(self, scope: str) -> bool:
        """All its spans, down to one for each decode step, have this scope."""
        return scope == "sglang server"

    def wants(self, span: Span) -> bool:
        """The root, and the two slices that the root does not tell."""
        return " Req " in span.name or span.name in SLICES

    def read(self, span: Span, at: float) -> Sample | None:
        """The request; None for a slice."""
        if span.name in SLICES:
            self._keep(span)
            return None
        slices = self._traces.pop(span.trace_id, None) or _Slices()
        attributes = span.attributes
        bounds = Bounds(whole_s(span, number(attributes, LATENCY + "e2e")), span_s(span))
        queue_s = bounds.part(slices.queue_s)
        return Sample(
            at=at,
            outcome=_outcome(attributes),
            emitter=self.name,
            request_key=request_key(span),
            model=text(attributes, "gen_ai.response.model"),
            e2e_s=bounds.e2e_s,
            ttft_s=bounds.first_token(_ttft_s(span, slices)),
            queue_s=queue_s,
            prefill_s=_prefill_s(bounds.part(number(attributes, LATENCY + "time_in_model_prefill")), queue_s),
            decode_s=bounds.part(number(attributes, LATENCY + "time_in_model_decode")),
            prompt_tokens=count(attributes, "gen_ai.usage.prompt_tokens"),
            output_tokens=count(attributes, "gen_ai.usage.completion_tokens"),
            cached_tokens=count(attributes, "gen_ai.usage.cached_tokens"),
        )

    def _keep(self, span: Span) -> None:
        slices = self._traces.setdefault(span.trace_id, _Slices())
        if span.name == "prefill_waiting":
            slices.queue_s = (slices.queue_s or 0.0) + span_s(span)
        else:
            slices.prefilled_ns = max(slices.prefilled_ns, span.end_time_unix_nano)
        self._traces.move_to_end(span.trace_id)
        if len(self._traces) > MAX_TRACES:
            self._traces.popitem(last=False)


def _ttft_s(span: Span, slices: _Slices) -> float | None:
    """As told; 0.5.6 tells nothing, there the end of the prefill slice comes nearest."""
    told = number(span.attributes, LATENCY + "time_to_first_token")
    if told is not None or not slices.prefilled_ns:
        return told
    return (slices.prefilled_ns - span.start_time_unix_nano) / 1e9


def _prefill_s(told: float | None, queue_s: float | None) -> float | None:
    """SGLang's prefill time includes the queue: without the queue's it says nothing of prefill."""
    return max(0.0, told - queue_s) if told is not None and queue_s is not None else None


def _outcome(attributes: Attributes) -> Outcome:
    """An abort has latencies and no token counts; 0.5.6 has neither, and shows no aborts."""
    if "abort" in text(attributes, "gen_ai.response.finish_reasons"):
        return Outcome.ABORTED
    told = number(attributes, LATENCY + "e2e", LATENCY + "time_in_model_inference") is not None
    counted = number(attributes, "gen_ai.usage.completion_tokens") is not None
    return Outcome.ABORTED if told and not counted else Outcome.OK


def emitter() -> Sglang:
    """For discovery."""
    return Sglang()
