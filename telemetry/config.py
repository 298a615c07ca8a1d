"""What telemetry may be told: targets and how they are bound, listeners, intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import ClassVar, Literal
from urllib.parse import urlsplit


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; ValueError says what is wrong."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an empty host means every interface


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetBinding:
    """How spans, scrapes and GPUs find one target."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str = "default"
    """What commands, metrics and clients call it."""
    kind: Literal["generate", "pooled"] = "generate"
    """`generate`: answers token by token; `pooled`: embeddings, scores and the like."""
    models: tuple[str, ...] = ("*",)
    """Globs over model names."""
    metrics_urls: tuple[str, ...] = ("http://127.0.0.1:8000/metrics",)
    """The engine's own metrics, one URL for each replica; empty: none is scraped."""
    spans: Mapping[str, str] = field(default_factory=dict)
    """Resource attributes (or `model`) that the target's spans carry; values are globs, all must match."""
    gpus: tuple[str, ...] = ("all-local",)
    """UUIDs, or `all-local`."""

    def __post_init__(self) -> None:
        """ValueError for what cannot work."""
        if not self.name:
            raise ValueError("name: must not be empty")
        for url in self.metrics_urls:
            if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
                raise ValueError(f"metrics_urls: {url!r} is not an http(s) URL")


@dataclass(frozen=True, kw_only=True, slots=True)
class OtlpTls:
    """Certificate files of the OTLP listeners. All empty: plain text."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    cert: str = ""
    """PEM file; empty: plain text."""
    key: str = ""
    """PEM file of its key."""
    client_ca: str = ""
    """With it, senders must show a certificate that it signed."""

    def __post_init__(self) -> None:
        """ValueError for half a key pair."""
        if bool(self.cert) != bool(self.key):
            raise ValueError("tls: cert and key go together")
        if self.client_ca and not self.cert:
            raise ValueError("tls.client_ca: needs cert and key")


@dataclass(frozen=True, kw_only=True, slots=True)
class TelemetryConfig:
    """Everything the telemetry process needs. An empty address switches its listener off."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    targets: tuple[TargetBinding, ...] = (TargetBinding(),)
    otlp_grpc: str = "127.0.0.1:4317"
    """Where OTLP over gRPC is received."""
    otlp_http: str = "127.0.0.1:4318"
    """Where OTLP over HTTP is received."""
    scrape_interval_s: float = 1.0
    """How often the engine's metrics are read."""
    nvml: bool = True
    """Whether this machine's GPUs are read."""
    nvml_interval_s: float = 0.2
    """How often."""
    in_process: bool = False
    """Run the pipeline in slices on the admission loop instead of in a process of its own."""
    tls: OtlpTls = field(default_factory=OtlpTls)
    insecure: bool = False
    """Allow OTLP listeners beyond loopback in plain text."""
    tokens: tuple[str, ...] = ()
    """Bearer tokens that carry the telemetry role. With any, what comes without one is shown and never steers."""
    names: tuple[str, ...] = ()
    """Certificate names (SAN) that carry the telemetry role, as `tokens`; they need `tls.client_ca`."""
    restricted: bool = False
    """Without a token or name of the telemetry role nothing steers, even when none is configured; any `listen.roles` set it."""

    def __post_init__(self) -> None:
        """ValueError naming every setting that cannot work, one per line."""
        problems = [*self._listener_problems(), *self._interval_problems(), *self._target_problems()]
        if self.names and not self.tls.client_ca:
            problems.append("names: certificate names need tls.client_ca")
        if problems:
            raise ValueError("\n".join(problems))

    def _listener_problems(self) -> list[str]:
        problems = []
        for setting, address in (("otlp_grpc", self.otlp_grpc), ("otlp_http", self.otlp_http)):
            if not address:
                continue
            try:
                host, _ = split_address(address)
            except ValueError as error:
                problems.append(f"{setting}: {error}")
                continue
            if not is_loopback(host) and not self.tls.cert and not self.insecure:
                problems.append(
                    f"{setting}: {address} is beyond loopback without TLS; set tls, or insecure: true"
                )
        return problems

    def _interval_problems(self) -> list[str]:
        bounds = (
            ("scrape_interval_s", self.scrape_interval_s, 0.05, 300.0),
            ("nvml_interval_s", self.nvml_interval_s, 0.02, 60.0),
        )
        return [
            f"{name}: {value} is not within {low} to {high} s"
            for name, value, low, high in bounds
            if not low <= value <= high
        ]

    def _target_problems(self) -> list[str]:
        names = [target.name for target in self.targets]
        problems = [] if names else ["targets: must not be empty"]
        problems += [
            f"targets: {name!r} appears twice" for name in sorted(set(names)) if names.count(name) > 1
        ]
        return problems
