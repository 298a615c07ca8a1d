"""What all emitters share: attribute values as they really arrive, and durations that can be true."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from admission.vocabulary import Outcome
from admission.wire.otlp_pb2 import AnyValue, Span
from telemetry.spans import UnusableSpan

Attributes = Mapping[str, AnyValue]

KIND_INTERNAL = 1
KIND_SERVER = 2
KIND_CLIENT = 3
STATUS_ERROR = 2

LONGEST_S = 86_400.0
KEY_CHARS = 64
FAST_REFUSAL_S = 0.05
"""A 503 sooner than this is the server refusing work, not failing at it."""


def number(attributes: Attributes, *keys: str) -> float | None:
    """The first of `keys` that holds a finite number; some emitters send numbers as text."""
    for key in keys:
        value = attributes.get(key)
        if value is None:
            continue
        found = _number(value)
        if found is not None and math.isfinite(found):
            return found
    return None


def _number(value: AnyValue) -> float | None:
    if (
        told := value.double_value or value.int_value
    ):  # fields that are not set read as 0: half the cost of asking
        return float(told)
    kind = value.WhichOneof("value")
    if kind == "double_value":
        return value.double_value
    if kind == "int_value":
        return float(value.int_value)
    if kind != "string_value":
        return None
    try:
        return float(value.string_value)
    except ValueError:
        return None


def count(attributes: Attributes, *keys: str) -> int | None:
    """The first of `keys` that holds a number of things, 0 or more and below 2^31."""
    found = number(attributes, *keys)
    return int(found) if found is not None and 0 <= found < 2**31 else None


def text(attributes: Attributes, *keys: str, longest: int = KEY_CHARS) -> str:
    """The first non-empty text among `keys`, cut to `longest` characters; empty when there is none."""
    for key in keys:
        value = attributes.get(key)
        if value is not None and value.string_value:
            return value.string_value[:longest]
    return ""


def request_key(span: Span, *more: str) -> str:
    """What names the request: its own id where the emitter gives one, else the trace's."""
    keys = ("gen_ai.request.id", "rid", "x_request_id", *more)
    return text(span.attributes, *keys) or span.trace_id.hex()


def span_s(span: Span) -> float:
    """End minus start by the emitter's clock, in seconds."""
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def whole_s(span: Span, told: float | None = None) -> float:
    """The attempt's whole duration in seconds: as told, else by the span. Raises UnusableSpan."""
    whole = told if told is not None else span_s(span)
    if not 0 < whole <= LONGEST_S:
        raise UnusableSpan(f"a request of {whole:g} s")
    return whole


@dataclass(slots=True, frozen=True)
class Bounds:
    """What the parts of a request may be at most, in seconds."""

    e2e_s: float
    span_s: float

    def part(self, value: float | None) -> float | None:
        """A part of the request: never negative, never beyond the whole; what is far off is not known."""
        if value is None or value < 0 or value > 1.5 * max(self.span_s, self.e2e_s):
            return None
        return min(value, self.e2e_s)

    def first_token(self, value: float | None) -> float | None:
        """Time to the first token; one after the end, or of no time at all, is not known."""
        return value if value is not None and 0 < value <= self.e2e_s else None


def http_outcome(status: int | None, e2e_s: float, *, failed: bool) -> Outcome:
    """What an HTTP status means here: a refusal is back-pressure, never a fast success."""
    if status is None:
        return Outcome.ERROR if failed else Outcome.OK
    if status == 429 or (status in {503, 529} and e2e_s < FAST_REFUSAL_S):
        return Outcome.BUSY
    if status == 499:
        return Outcome.ABORTED
    if status >= 500 or (failed and status < 400):
        return Outcome.ERROR
    return Outcome.INVALID if status >= 400 else Outcome.OK
