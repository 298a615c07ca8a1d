"""OTLP/JSON to protobuf bytes: it is protobuf's JSON but for ids, which are hexadecimal there."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from google.protobuf import json_format

from telemetry.receivers.otlp_intake import Signal

ID_KEYS = frozenset({"traceId", "spanId", "parentSpanId"})
MAX_OBJECTS = 200_000
"""In one body: each costs some 10 us and 100 bytes, an attribute of a span has two."""


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """The bytes of the same request. Raises ValueError for what is not one; unknown fields are dropped.

    An id that is not hexadecimal becomes empty, so that only its span is refused.
    """
    try:
        told = json.loads(body, object_hook=_Objects().read)
        if not isinstance(told, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - for the sender it is one kind of error
        message = json_format.ParseDict(told, _request(signal), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError) as error:
        raise ValueError(type(error).__name__) from error
    return bytes(message.SerializeToString())


def _request(signal: Signal) -> Any:
    """The module for metrics comes with the GPU agent's; the one for traces only when somebody sends JSON."""
    if signal is Signal.METRICS:
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2  # noqa: PLC0415

        return metrics_service_pb2.ExportMetricsServiceRequest()
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    return trace_service_pb2.ExportTraceServiceRequest()


class _Objects:
    """Each JSON object as it is read: counted, and with its ids as protobuf wants them."""

    def __init__(self) -> None:
        self._read = 0

    def read(self, told: dict[str, Any]) -> dict[str, Any]:
        """The object. ValueError for one too many."""
        self._read += 1
        if self._read > MAX_OBJECTS:
            raise ValueError(f"more than {MAX_OBJECTS} JSON objects")
        for key in ID_KEYS & told.keys():
            told[key] = _base64(told[key])
        return told


def _base64(value: Any) -> str:
    try:
        return b64encode(bytes.fromhex(value)).decode()
    except (TypeError, ValueError):
        return ""
