"""Opens listeners: TCP or unix socket, with TLS whose certificates are read again when they change."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
from pathlib import Path

import grpc

from admission.runtime.settings import ListenerConfig, OverloadConfig, TlsFiles

LOG = logging.getLogger(__name__)
MAX_MESSAGE_BYTES = 4 * 2**20
MAX_HELLO_BYTES = 16 * 2**20
"""A Hello announces every permit of its session, at most 65,536 of some 200 bytes."""


class ListenError(RuntimeError):
    """An address cannot be listened on; the text names it, the reason, and the setting to change."""


def server_options(overload: OverloadConfig, max_message_bytes: int) -> list[tuple[str, int]]:
    """Channel arguments that bound what waits inside gRPC, where nobody could refuse it in time."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.server.max_pending_requests", overload.pending_calls),
        ("grpc.server.max_pending_requests_hard_limit", overload.pending_calls * 5 // 4),
        # Windows that grow with the traffic would hide seconds of messages from us.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 128 * 1024),
        # A machine that died says nothing: ask, and give up on it.
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def add_listener(server: grpc.aio.Server, config: ListenerConfig, setting: str) -> str:
    """Binds; returns the address bound (with the port chosen for port 0). ListenError when it cannot be.

    `setting` is the path of the configuration key, for the message.
    """
    if config.is_exposed:
        LOG.warning("listener_insecure", extra={"address": config.address, "setting": setting})
    if config.is_unix:
        return _add_unix(server, config, setting)
    _probe(config.address, setting)
    try:
        if config.tls.cert:
            port = server.add_secure_port(config.address, credentials_of(config.tls))
        else:
            port = server.add_insecure_port(config.address)
    except (RuntimeError, OSError) as error:
        raise ListenError(f"{setting}: cannot listen on {config.address}: {error}") from error
    if port == 0:
        raise ListenError(f"{setting}: cannot listen on {config.address}")
    return f"{config.address.rpartition(':')[0]}:{port}"


def _probe(address: str, setting: str) -> None:
    """Find out in its place what gRPC does not tell: whether the port is taken."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "::", int(port)))
        except OSError as error:
            taken = "the port is taken" if error.errno == errno.EADDRINUSE else str(error)
            raise ListenError(f"{setting}: cannot listen on {address}: {taken}") from error


def _add_unix(server: grpc.aio.Server, config: ListenerConfig, setting: str) -> str:
    path = Path(config.address.removeprefix("unix:"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_stale(path, setting)
    # The socket must never exist with wider permissions, not even for an instant.
    before = os.umask(0o777 & ~config.socket_mode)
    try:
        server.add_insecure_port(config.address)
    except (RuntimeError, OSError) as error:
        raise ListenError(f"{setting}: cannot listen on {config.address}: {error}") from error
    finally:
        os.umask(before)
    path.chmod(config.socket_mode)
    return config.address


def remove_socket(config: ListenerConfig) -> None:
    """Takes the file of a unix socket away after its server has stopped."""
    if config.is_unix:
        Path(config.address.removeprefix("unix:")).unlink(missing_ok=True)


def remove_stale(path: Path, setting: str) -> None:
    """Removes a socket left from a crash. ListenError: it answers, so it is another's, or it is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"{setting}: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
        except OSError as error:
            raise ListenError(f"{setting}: cannot listen on {path}: {error}") from error
    raise ListenError(f"{setting}: {path} is served by another process")


class Certificates:
    """Gives gRPC the newest certificates. Files that turn bad leave the last good ones in force."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamps = self._now()
        self.current = self._read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """New certificates if the files changed, else None. gRPC asks before each handshake."""
        try:
            stamps = self._now()
            if stamps == self._stamps:
                return None
            self.current = self._read()
        except (OSError, ValueError) as error:
            LOG.warning("certificate_bad", extra={"file": self._files.cert, "error": str(error)})
            return None
        self._stamps = stamps
        LOG.info("certificate_reloaded", extra={"file": self._files.cert})
        return self.current

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        key, cert = Path(files.key).read_bytes(), Path(files.cert).read_bytes()
        if b"PRIVATE KEY" not in key or b"CERTIFICATE" not in cert:
            raise ValueError(f"{files.cert}, {files.key}: not a PEM certificate and key")
        roots = Path(files.client_ca).read_bytes() if files.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=roots)

    def _now(self) -> tuple[int, ...]:
        names = [name for name in (self._files.cert, self._files.key, self._files.client_ca) if name]
        return tuple(Path(name).stat().st_mtime_ns for name in names)


def credentials_of(files: TlsFiles) -> grpc.ServerCredentials:
    """Server credentials that follow their files. OSError or ValueError when the files cannot be used now."""
    certificates = Certificates(files)
    credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
        certificates.current,
        certificates.changed,  # type: ignore[arg-type]  # None means: not changed
        require_client_authentication=bool(files.client_ca),
    )
    return credentials
