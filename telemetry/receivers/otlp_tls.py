"""Certificates of the OTLP listeners, read again when their files change."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from telemetry.config import OtlpTls


class CertificateFiles:
    """The files of one listener. `changed` says whether any of them was written since the last look."""

    def __init__(self, tls: OtlpTls) -> None:
        self._tls = tls
        self._seen = self._stamp()

    def changed(self) -> bool:
        """A file that is missing for a moment, while it is replaced, has not changed yet."""
        try:
            stamp = self._stamp()
        except OSError:
            return False
        changed, self._seen = stamp != self._seen, stamp
        return changed

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """For gRPC. Raises OSError."""
        pair = (Path(self._tls.key).read_bytes(), Path(self._tls.cert).read_bytes())
        ca = Path(self._tls.client_ca).read_bytes() if self._tls.client_ca else None
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def credentials(self) -> grpc.ServerCredentials:
        """For gRPC: every handshake looks whether the files changed. Raises OSError."""
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(),
            self._newer,  # type: ignore[arg-type] # None means no change, which the stubs do not know
            require_client_authentication=bool(self._tls.client_ca),
        )

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            return self.configuration() if self.changed() else None
        except OSError:
            return None

    def refresh(self, context: ssl.SSLContext) -> bool:
        """For HTTP: new connections use the new pair. A pair that does not fit leaves the old one; False then."""
        if not self.changed():
            return True
        try:
            context.load_cert_chain(self._tls.cert, self._tls.key)
            if self._tls.client_ca:
                context.load_verify_locations(self._tls.client_ca)
        except (OSError, ssl.SSLError):
            return False
        return True

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        paths = (path for path in (self._tls.cert, self._tls.key, self._tls.client_ca) if path)
        stats = (Path(path).stat() for path in paths)
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)
