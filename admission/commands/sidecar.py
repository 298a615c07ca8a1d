"""Calls to a sidecar's control and monitor services, with every failure as one clear line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from admission.commands.output import ExitCode, fail, loaded_or_exit

if TYPE_CHECKING:
    import grpc

    from admission.v1.control_service_pb2_grpc import ControlServiceStub
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub

TIMEOUT_S = 3.0


def address_of(control: str, config: Path | None) -> str:
    """The control address: as given, else as the configuration says."""
    if control:
        return control
    from admission.config.schema import control_address

    return control_address(loaded_or_exit(config).settings)


@contextmanager
def monitor(address: str) -> Iterator[MonitorServiceStub]:
    """The monitor service; a failed call ends the command with its reason."""
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub

    with channel(address) as opened, _explained(address):
        yield MonitorServiceStub(opened)


@contextmanager
def control_service(address: str) -> Iterator[ControlServiceStub]:
    """The control service; a failed call ends the command with its reason."""
    from admission.v1.control_service_pb2_grpc import ControlServiceStub

    with channel(address) as opened, _explained(address):
        yield ControlServiceStub(opened)


def channel(address: str) -> grpc.Channel:
    """A channel to the address, with TLS when TIDEGATE_TLS_CA names an authority."""
    import grpc

    if ca := os.environ.get("TIDEGATE_TLS_CA"):
        credentials = grpc.ssl_channel_credentials(
            Path(ca).read_bytes(), _file("TIDEGATE_TLS_KEY"), _file("TIDEGATE_TLS_CERT")
        )
        return grpc.secure_channel(address, credentials)
    # Through a proxy of the environment a loopback address would leave the machine.
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])


def _file(variable: str) -> bytes | None:
    path = os.environ.get(variable)
    return Path(path).read_bytes() if path else None


def bearer() -> tuple[tuple[str, str], ...]:
    """Metadata with TIDEGATE_CONTROL_TOKEN, when there is one."""
    token = os.environ.get("TIDEGATE_CONTROL_TOKEN")
    return (("authorization", f"Bearer {token}"),) if token else ()


@contextmanager
def _explained(address: str) -> Iterator[None]:
    import grpc

    try:
        yield
    except grpc.RpcError as error:
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        details = (error.details() if isinstance(error, grpc.Call) else "") or code.name
        if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
            fail(f"no sidecar answers at {address} (start one: tidegate serve)", ExitCode.NOT_RUNNING)
        fail(f"the sidecar refused: {details} ({code.name})", ExitCode.REFUSED)
