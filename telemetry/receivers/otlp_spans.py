"""Trace payloads to samples: found by scope and name, seen once, on time, bound, and of the primary emitter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.core.model import Sample
from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import AnyValue, ResourceSpans, Span, TraceRequest
from telemetry.config import TargetBinding
from telemetry.processors.binding import Binder
from telemetry.processors.dedupe import Seen
from telemetry.processors.lateness import Lateness
from telemetry.processors.primary import Primaries
from telemetry.receivers import Emit
from telemetry.spans import Emitter, UnusableSpan, discover

MAX_PARTS = 65_536
"""Resources and scopes in one payload; what holds more holds nothing."""
MAX_SCOPES = 256
MAX_UNBOUND = 64
NAME_CHARS = 128
WITHOUT_ROLE = "spans arrive from senders without the telemetry role: they are shown and do not steer"
NAMING = ("service.name", "service.instance.id")


@dataclass(slots=True)
class Batch:
    """One payload under way: who takes what is in it, and when it came by both clocks of ours (seconds, ns)."""

    emit: Emit
    at: float
    wall_ns: int
    steers: bool = True
    """Whether its sender has the telemetry role; without it, what comes is shown and never steers."""
    rejected: int = 0
    """Malformed spans, which the sender is told about."""
    message: str = ""

    def count(self, target: str, emitter: str, result: str) -> None:
        """A request's span by what became of it; all three words are of closed sets."""
        self.emit.count(f"spans:{target}:{emitter}:{result}")


@dataclass(slots=True)
class _Sender:
    name: str
    resource: dict[str, str]


class SpanReader:
    """Everything known about spans between payloads. All of it is bounded."""

    def __init__(self, targets: Sequence[TargetBinding], emitters: Sequence[Emitter] | None = None) -> None:
        self._emitters = discover() if emitters is None else emitters
        self._binder = Binder(targets)
        self._models = {target.name: _only_model(target) for target in targets}
        self._seen = Seen()
        self._by_scope: dict[str, list[Emitter]] = {}
        self.lateness = Lateness()
        self.primaries = Primaries()
        self.unbound: Counter[str] = Counter()
        """How many requests' spans each unbound sender sent."""

    def read(self, request: TraceRequest, batch: Batch, slice_of: int = 256) -> Iterator[None]:
        """Emits the samples in `request`; yields after every `slice_of` parts for others to have the loop.

        ValueError for a payload of more than `MAX_PARTS` resources or scopes, before any of it is read.

        Counts `spans_received`, and `spans:<target>:<emitter>:<result>` for each span of a request, where result is
        sample, late, secondary, duplicate, malformed, unusable, unbound or without_role.
        """
        _check_parts(request)
        done = 0
        for resource_spans in request.resource_spans:
            done += 1
            if done % slice_of == 0:
                yield
            sender = _sender(resource_spans, self._binder.keys)
            for scope_spans in resource_spans.scope_spans:
                batch.emit.count("spans_received", len(scope_spans.spans))
                emitters = self._for_scope(scope_spans.scope.name)
                done += 1
                if done % slice_of == 0:
                    yield
                for span in scope_spans.spans:
                    self._offer(span, emitters, sender, batch)
                    done += 1
                    if done % slice_of == 0:
                        yield

    def _offer(self, span: Span, emitters: list[Emitter], sender: _Sender, batch: Batch) -> None:
        for emitter in emitters:
            if emitter.wants(span):
                self._take(span, emitter, sender, batch)
                return

    def _for_scope(self, scope: str) -> list[Emitter]:
        emitters = self._by_scope.get(scope)
        if emitters is None:
            if len(self._by_scope) >= MAX_SCOPES:
                self._by_scope.clear()
            emitters = self._by_scope[scope] = [e for e in self._emitters if e.claims(scope)]
        return emitters

    def _take(self, span: Span, emitter: Emitter, sender: _Sender, batch: Batch) -> None:
        """One span that an emitter wants."""
        problem = _malformed(span)
        if problem:
            batch.count("", emitter.name, "malformed")
            batch.rejected += 1
            batch.message = batch.message or problem
            return
        if not self._seen.add((span.trace_id, span.span_id, span.name), batch.at):
            batch.count("", emitter.name, "duplicate")
            return
        try:
            sample = emitter.read(span, batch.at)
        except UnusableSpan:
            batch.count("", emitter.name, "unusable")
            return
        if sample is not None:
            late_s = (batch.wall_ns - span.end_time_unix_nano) / 1e9
            on_time = self.lateness.judge(sender.name, late_s, batch.at)
            self._bind(sample, emitter, sender, batch, on_time=on_time)

    def _bind(
        self, sample: Sample, emitter: Emitter, sender: _Sender, batch: Batch, *, on_time: bool
    ) -> None:
        target = self._binder.bind(sender.name, sender.resource, sample.model)
        result = self._result(target, emitter, batch, on_time=on_time)
        batch.count(target, emitter.name, result)
        if result == "without_role":
            batch.emit.warn("spans_without_role", WITHOUT_ROLE)
        if result == "unbound":
            self._note_unbound(f"{sender.name} ({emitter.name})")
        elif result == "sample":
            sample.model = sample.model or sender.resource.get("model", "") or self._models[target]
            batch.emit.sample(target, without_fast_success(sample))

    def _result(self, target: str, emitter: Emitter, batch: Batch, *, on_time: bool) -> str:
        if not target:
            return "unbound"
        if not batch.steers:
            return "without_role"
        if not on_time:
            return "late"
        speaks = self.primaries.speaks(target, emitter.name, emitter.rank, batch.at)
        return "sample" if speaks else "secondary"

    def _note_unbound(self, label: str) -> None:
        if label in self.unbound or len(self.unbound) < MAX_UNBOUND:
            self.unbound[label] += 1


def _check_parts(request: TraceRequest) -> None:
    """Millions of empty messages fit into a few megabytes; honest senders group their spans."""
    parts = len(request.resource_spans)
    if parts <= MAX_PARTS:
        parts += sum(len(each.scope_spans) for each in request.resource_spans)
    if parts > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS} resources and scopes")


def without_fast_success(sample: Sample) -> Sample:
    """A refusal has no latency worth learning from: only that it was one, and how long it took."""
    if sample.outcome is not Outcome.BUSY:
        return sample
    return replace(sample, ttft_s=None, queue_s=None, prefill_s=None, decode_s=None)


def _malformed(span: Span) -> str:
    if len(span.trace_id) != 16 or len(span.span_id) != 8:
        return "a trace id has 16 bytes, a span id 8"
    if not any(span.trace_id) or not any(span.span_id):
        return "an id of zeros"
    if span.end_time_unix_nano < span.start_time_unix_nano:
        return "a span ends before it starts"
    return ""


def _sender(spans: ResourceSpans, keys: frozenset[str]) -> _Sender:
    """The resource, as far as anything here asks for it."""
    attributes = spans.resource.attributes
    told = {key: _text(attributes, key) for key in keys if key in attributes}
    name = "/".join(told[key] for key in NAMING if told.get(key))
    more = "".join(f" {key}={told[key]}" for key in sorted(told) if key not in NAMING)
    return _Sender((name or "unknown_service") + more, told)


def _text(attributes: Mapping[str, AnyValue], key: str) -> str:
    value = attributes[key]
    kind = value.WhichOneof("value")
    return str(getattr(value, kind))[:NAME_CHARS] if kind else ""


def _only_model(target: TargetBinding) -> str:
    """The model of a target that serves one: vLLM's spans do not name it."""
    model = target.models[0] if len(target.models) == 1 else ""
    return "" if set(model) & set("*?[") else model
