"""The whole configuration of a sidecar: its own sections, and the components' configurations per target."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from admission.core.settings import ControllerConfig
from admission.runtime.settings import JournalConfig, ListenerConfig, RolesConfig, ServerConfig, TlsFiles
from admission.vocabulary import PriorityClass
from telemetry.config import TargetBinding, TelemetryConfig
from telemetry.exporters.settings import ExportConfig

_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the sidecar answers: `host:port` or `unix:/path`. Beyond loopback it takes TLS, or `insecure` said aloud."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    grpc: tuple[str, ...] = ("127.0.0.1:50051",)
    """Where clients ask for permits."""
    control: str = ""
    """Control and monitor services. Empty: a unix socket of this user, see `control_address`."""
    http: str = "127.0.0.1:9464"
    """/metrics, /healthz, /readyz. Empty: none."""
    tls: TlsFiles = field(default_factory=TlsFiles)
    insecure: bool = False
    """Allow addresses beyond loopback in plain text."""
    roles: RolesConfig = field(default_factory=RolesConfig)

    def __post_init__(self) -> None:
        """ValueError naming every address that cannot be listened on safely."""
        addresses = [("grpc", address) for address in self.grpc]
        addresses += [(name, text) for name in ("control", "http") if (text := getattr(self, name))]
        problems = [f"{name}: {problem}" for name, text in addresses if (problem := self._problem(text))]
        problems += ["grpc: must not be empty"] * (not self.grpc)
        problems += ["control: must differ from the clients' addresses"] * (self.control in self.grpc)
        if problems:
            raise ValueError("\n".join(problems))

    def _problem(self, address: str) -> str:
        try:
            self.listener(address)
        except ValueError as error:
            return str(error).removeprefix("address: ")
        return ""

    def listener(self, address: str) -> ListenerConfig:
        """The address with this section's TLS. ValueError: not an address, or not a safe one."""
        return ListenerConfig(address=address, tls=self.tls, insecure=self.insecure)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Log lines on standard error."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    format: Literal["text", "json"] = "text"
    """`text`: key=value; `json`: one object a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """One target: how work finds it, how its controller decides, and which classes have an SLO that the user set."""

    binding: TargetBinding
    controller: ControllerConfig
    own_slo: frozenset[PriorityClass] = frozenset()

    @property
    def name(self) -> str:
        """The target's name."""
        return self.binding.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `tidegate serve` needs to know."""

    targets: tuple[TargetSettings, ...]
    listen: ListenConfig = field(default_factory=ListenConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    state_dir: str = "auto"
    """Where limits and learned values outlive a restart. `auto`: a directory of this user; `none`: memory only."""
    server: ServerConfig = field(default_factory=ServerConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    export: ExportConfig = field(default_factory=ExportConfig)
    log: LogConfig = field(default_factory=LogConfig)


SECTIONS = {
    "listen": ListenConfig,
    "telemetry": TelemetryConfig,
    "server": ServerConfig,
    "journal": JournalConfig,
    "export": ExportConfig,
    "log": LogConfig,
}
ROOTS = (*SECTIONS, "targets", "state_dir")
GIVEN_APART = {
    "telemetry": {"targets": "targets"},
    "server": dict.fromkeys(("listeners", "control", "roles"), "listen"),
}
"""Fields of a section's class that users give in another section: field to section."""


def state_directory(settings: Settings) -> Path | None:
    """The directory to write in, not created yet; None: memory only. systemd's STATE_DIRECTORY is used by `auto`."""
    if settings.state_dir == "none":
        return None
    if settings.state_dir != "auto":
        return Path(settings.state_dir).expanduser()
    if given := os.environ.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "tidegate"


def control_address(settings: Settings) -> str:
    """Where control and monitor services listen."""
    if settings.listen.control:
        return settings.listen.control
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return f"unix:{runtime}/tidegate/control.sock"
    directory = state_directory(settings) or Path("~/.local/state/tidegate").expanduser()
    return f"unix:{directory}/control.sock"
