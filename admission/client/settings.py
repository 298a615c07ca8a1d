"""What a user may set in the client, by keyword or by TIDEGATE_ environment variables."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from admission.client.errors import SettingsError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """All settings of a client. Raises SettingsError, naming every wrong value at once."""

    address: str = "127.0.0.1:50051"
    """host:port or unix:/path of the sidecar."""
    target: str = ""
    """Empty: the sidecar finds it by the model."""
    fail: str = "open"
    """`open`: a local limit rules while the sidecar is away. `closed`: everything is refused meanwhile."""
    decision_timeout_ms: int = 250
    """No answer of any kind within this time is a missed decision."""
    local_limit: int = 64
    """Requests in flight at once before the first contact with a sidecar; after a break the limit may grow to it."""
    off: bool = False
    """True: everything passes untouched."""
    off_file: str = ""
    """While this file exists, everything passes untouched. Looked at twice a second."""
    class_header: str = "x-tidegate-class"
    tenant_header: str = ""
    """Empty: no header names a tenant. Set it only behind something that overwrites the header."""
    tenant_secret: str = ""
    """Key of the hash that turns API keys into tenants, once served. Empty: no tenant from API keys."""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token: str = ""
    """Sent as `authorization: Bearer`; beyond this machine only over TLS."""
    insecure: bool = False
    """True: the token may travel in clear."""
    prefix: str = ""
    """A path in front of the guarded routes, such as /llm."""
    routes: str = ""
    """More guarded routes, separated by commas."""
    metrics_path: str = ""
    """GET on this path answers the client's own counters. Empty: off."""
    max_body_bytes: int = 8 * 1024 * 1024
    """Longer bodies are not read; they take the class's mean cost."""

    def __post_init__(self) -> None:
        problems = [*self._address_problems(), *self._value_problems(), *self._path_problems()]
        if problems:
            raise SettingsError(problems)

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, **overrides: Any
    ) -> ClientSettings:
        """Settings from TIDEGATE_ variables; keyword arguments win. SettingsError names every problem."""
        variables = os.environ if environment is None else environment
        problems: list[str] = []
        known = {field.name for field in fields(cls)}
        problems += [f"{name} is not a setting" for name in overrides if name not in known]
        values = {name: value for name, value in overrides.items() if name in known}
        for name in known - values.keys():
            text = variables.get(f"TIDEGATE_{name.upper()}")
            if text is not None:
                _convert(name, text, values, problems)
        return _build(cls, values, problems)

    def _address_problems(self) -> list[str]:
        if self.address.startswith("unix:"):
            return [] if len(self.address) > len("unix:") else ["TIDEGATE_ADDRESS: unix: needs a path"]
        host, _, port = self.address.rpartition(":")
        if host and port.isdigit() and 0 < int(port) < 65536:
            return []
        return [f"TIDEGATE_ADDRESS: {self.address!r} is neither host:port nor unix:/path"]

    def _value_problems(self) -> list[str]:
        problems = []
        if self.fail not in {"open", "closed"}:
            problems.append(f"TIDEGATE_FAIL: {self.fail!r} is neither open nor closed")
        if not 1 <= self.decision_timeout_ms <= 60_000:
            problems.append(f"TIDEGATE_DECISION_TIMEOUT_MS: {self.decision_timeout_ms} is not in 1..60000")
        if not 1 <= self.local_limit <= 1_000_000:
            problems.append(f"TIDEGATE_LOCAL_LIMIT: {self.local_limit} is not in 1..1000000")
        if not 0 <= self.max_body_bytes <= 1 << 30:
            problems.append(f"TIDEGATE_MAX_BODY_BYTES: {self.max_body_bytes} is not in 0..1073741824")
        return problems

    def _path_problems(self) -> list[str]:
        problems = [
            f"TIDEGATE_{name}: cannot read {path}"
            for name, path in (
                ("TLS_CA", self.tls_ca),
                ("TLS_CERT", self.tls_cert),
                ("TLS_KEY", self.tls_key),
            )
            if path and not os.access(path, os.R_OK)
        ]
        if bool(self.tls_cert) != bool(self.tls_key):
            problems.append("TIDEGATE_TLS_CERT and TIDEGATE_TLS_KEY go together")
        problems += self._off_file_problems()
        if self.token and not (
            self.tls_ca or self.tls_cert or self.insecure or _on_this_machine(self.address)
        ):
            problems.append(
                f"TIDEGATE_TOKEN would travel in clear to {self.address}: set TIDEGATE_TLS_CA, or TIDEGATE_INSECURE=1"
            )
        urls = [("PREFIX", self.prefix), ("METRICS_PATH", self.metrics_path)]
        urls += [("ROUTES", route) for route in self.route_list]
        problems += [
            f"TIDEGATE_{name}: {path!r} does not start with /"
            for name, path in urls
            if path and not path.startswith("/")
        ]
        return problems

    def _off_file_problems(self) -> list[str]:
        try:
            is_directory = bool(self.off_file) and Path(self.off_file).is_dir()
        except OSError as error:
            return [f"TIDEGATE_OFF_FILE: cannot look at {self.off_file}: {error.strerror}"]
        return [f"TIDEGATE_OFF_FILE: {self.off_file} is a directory"] if is_directory else []

    @property
    def route_list(self) -> list[str]:
        """The additional guarded routes, one by one."""
        return [route.strip() for route in self.routes.split(",") if route.strip()]


_DEFAULTS = {field.name: field.default for field in fields(ClientSettings)}


def _on_this_machine(address: str) -> bool:
    """A unix socket, localhost or a loopback address; another name may resolve to anything."""
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _convert(name: str, text: str, values: dict[str, Any], problems: list[str]) -> None:
    default, text = _DEFAULTS[name], text.strip()
    if isinstance(default, bool):
        if text.lower() not in _TRUE | _FALSE:
            problems.append(f"TIDEGATE_{name.upper()}: {text!r} is not 0 or 1")
        else:
            values[name] = text.lower() in _TRUE
    elif isinstance(default, int):
        if not text.isascii() or not text.isdigit():
            problems.append(f"TIDEGATE_{name.upper()}: {text!r} is not a whole number")
        else:
            values[name] = int(text)
    elif text or default == "":
        values[name] = text


def _build(cls: type[ClientSettings], values: dict[str, Any], problems: list[str]) -> ClientSettings:
    try:
        settings = replace(cls(), **values)
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    except TypeError as error:
        raise SettingsError([*problems, str(error)]) from None
    if problems:
        raise SettingsError(problems)
    return settings
