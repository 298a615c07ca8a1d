"""Are the installed OTLP modules the real ones? `xds-protos` overwrites them with ancient copies."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from google.protobuf.descriptor import Descriptor

NEEDED = {
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2": (
        "ExportMetricsServiceResponse",
        "partial_success",
    ),
    "opentelemetry.proto.metrics.v1.metrics_pb2": ("Metric", "exponential_histogram"),
}
REMEDY = (
    "the package xds-protos overwrites the OTLP modules of opentelemetry-proto and they cannot share an environment: "
    "pip uninstall xds-protos && pip install --force-reinstall opentelemetry-proto googleapis-common-protos"
)


class OtlpModulesError(RuntimeError):
    """The OTLP modules are missing or not the real ones; the text says how to repair the environment."""


def check_otlp_modules(needed: Mapping[str, tuple[str, str]] = NEEDED) -> None:
    """Raises OtlpModulesError unless every module has its message with its field."""
    for module, (message, name) in needed.items():
        try:
            descriptor: Descriptor = getattr(import_module(module), message).DESCRIPTOR
        except (ImportError, AttributeError, TypeError) as error:
            raise OtlpModulesError(
                f"{module} cannot be used ({error}); if it was once installed, {REMEDY}"
            ) from error
        if name not in descriptor.fields_by_name:
            raise OtlpModulesError(f"{module}: {message} has no field {name}: {REMEDY}")
