"""What the host, the listeners and the sessions may be told; every class builds without arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import ClassVar

_FORBID: dict[str, str] = {"extra": "forbid"}


class Role(StrEnum):
    """What a caller may do."""

    CLIENT = "client"
    TELEMETRY = "telemetry"
    VIEWER = "viewer"
    OPERATOR = "operator"


def _positive(owner: object, *names: str) -> None:
    wrong = [name for name in names if getattr(owner, name) <= 0]
    if wrong:
        raise ValueError("\n".join(f"{name}: must be positive" for name in wrong))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate files of a listener, read again when they change. All empty: plain text."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    cert: str = ""
    """PEM file; empty: plain text."""
    key: str = ""
    """PEM file of its key."""
    client_ca: str = ""
    """With it, callers must show a certificate that it signed; over HTTP for /metrics only, as probes have none."""

    def __post_init__(self) -> None:
        """ValueError for half a key pair."""
        if bool(self.cert) != bool(self.key):
            raise ValueError("cert and key go together")
        if self.client_ca and not self.cert:
            raise ValueError("client_ca: needs cert and key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One address: `host:port`, `[v6]:port` or `unix:/path`. Beyond loopback it needs TLS or `insecure: true`."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    address: str = "127.0.0.1:50051"
    tls: TlsFiles = field(default_factory=TlsFiles)
    insecure: bool = False
    socket_mode: int = 0o600
    """Permission bits of a unix socket."""

    def __post_init__(self) -> None:
        """ValueError for an address that cannot be listened on safely."""
        if self.is_unix:
            if not self.address.removeprefix("unix:").startswith("/"):
                raise ValueError(f"address: {self.address!r} needs an absolute path after unix:")
            return
        host, colon, port = self.address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"address: {self.address!r} is not host:port or unix:/path")
        if not (is_loopback(host.strip("[]")) or self.tls.cert or self.insecure):
            raise ValueError(
                f"address: {self.address} is beyond loopback without TLS; set tls, or insecure: true"
            )

    @property
    def is_unix(self) -> bool:
        """Whether it is a unix socket."""
        return self.address.startswith("unix:")

    @property
    def is_exposed(self) -> bool:
        """Whether it is plain text beyond loopback, which was allowed on purpose."""
        host = self.address.rpartition(":")[0].strip("[]")
        return not (self.is_unix or self.tls.cert or is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesConfig:
    """Who may do what. Without names and tokens, whoever reaches a listener has that listener's roles."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    names: dict[str, tuple[Role, ...]] = field(default_factory=dict)
    """Roles by certificate name (SAN or common name)."""
    token_file: str = ""
    """Lines `role[,role] token`, sent as `authorization: Bearer <token>`; read again when it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Bounds and times of sessions. Seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    heartbeat_s: float = 0.5
    """How often a session is told to show that it is alive."""
    max_sessions: int = 4096
    """Sessions at once; more are refused."""
    max_waiting: int = 4096
    """Acquires of one session that may wait at once; more are refused with QUEUE_FULL."""
    max_held: int = 65_536
    """Permits that one session may hold or announce."""
    memo_s: float = 60.0
    """A key gets the same answer for this long after its end."""
    memo_entries: int = 32_768
    """Ended keys remembered, over all sessions; the oldest go first."""
    place_s: float = 10.0
    """How long the arrival of a waiter whose stream broke is remembered."""
    write_blocked_s: float = 1.0
    """A session that does not read for this long gets no grants until it does."""
    unseen_s: float = 2.0
    """No grants with decisions unacknowledged for this long."""
    max_outbox: int = 4096
    """Answers that may gather before the session is read no further."""

    def __post_init__(self) -> None:
        """ValueError naming every value that is not positive."""
        _positive(self, *(name for name in self.__slots__ if name != "__pydantic_config__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryConfig:
    """Bounds and times of unary calls. Seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    max_hold_s: float = 0.2
    """Acquire answers QUEUED after this long, half of it under strain; the same request_id rejoins its place."""
    rejoin_s: float = 2.0
    """A waiter whom nobody asks about for this long is cancelled."""
    place_s: float = 10.0
    """How long the arrival of a waiter whose caller left is remembered."""
    memo_s: float = 60.0
    """A refused request_id gets the same answer for this long; one whose permit has ended asks afresh."""
    memo_entries: int = 16_384
    """Ended request_ids remembered; the oldest go first."""

    def __post_init__(self) -> None:
        """ValueError naming every value that is not positive."""
        _positive(self, "max_hold_s", "rejoin_s", "place_s", "memo_s", "memo_entries")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadConfig:
    """When the sidecar itself is too busy and refuses before it decides. Seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    behind_s: float = 0.1
    """Refuse while inputs are handled this much later than they came."""
    recovered_s: float = 0.05
    """Admit again when they are handled no later than this."""
    probe_s: float = 0.02
    """How often that is measured."""
    grace_s: float = 3.0
    """After the start nobody is refused for this long: first calls of everything are slow."""
    slice_s: float = 0.02
    """Time that one message may keep the loop before its remaining acquires are refused."""
    pending_calls: int = 96
    """Calls that may wait inside gRPC before it drops new ones; beyond half of it, at random."""

    def __post_init__(self) -> None:
        """ValueError for values that are not positive or out of order."""
        _positive(self, "behind_s", "recovered_s", "probe_s", "slice_s", "pending_calls")
        if self.grace_s < 0.0:
            raise ValueError("grace_s: must not be negative")
        if self.recovered_s >= self.behind_s:
            raise ValueError("recovered_s: must be below behind_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """The ring of recorded inputs under `state_dir/journal`."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    enabled: bool = True
    """Whether inputs are recorded, for `tidegate replay`."""
    max_bytes: int = 256 * 2**20
    """Size of the ring; the oldest segment is deleted."""
    segment_bytes: int = 8 * 2**20
    """Size of one file."""
    batch: int = 64
    """Inputs encoded at once."""
    chunk_bytes: int = 64 * 2**10
    """Encoded bytes handed to the writing thread at once: each hand-over costs the loop a switch of threads."""
    flush_s: float = 0.25
    """Recorded inputs reach the disk after at most this."""
    buffer_bytes: int = 8 * 2**20
    """Encoded bytes that may wait for a slow disk; more are dropped and counted."""

    def __post_init__(self) -> None:
        """ValueError for values that are not positive or out of order."""
        _positive(self, "max_bytes", "segment_bytes", "batch", "chunk_bytes", "flush_s", "buffer_bytes")
        if self.segment_bytes + self.buffer_bytes > self.max_bytes:
            raise ValueError("max_bytes: must have room for segment_bytes and buffer_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything about the gRPC side of the sidecar."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID

    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    """Where clients ask for permits."""
    control: ListenerConfig | None = None
    """Monitor and control. Unset: a 0600 unix socket `control.sock` under the runtime directory."""
    roles: RolesConfig = field(default_factory=RolesConfig)
    session: SessionConfig = field(default_factory=SessionConfig)
    unary: UnaryConfig = field(default_factory=UnaryConfig)
    overload: OverloadConfig = field(default_factory=OverloadConfig)
    drain_s: float = 30.0
    """How long grants in flight may finish after SIGTERM."""
    reflection: bool = True
    """Whether gRPC reflection is served, for tools such as grpcurl."""

    def __post_init__(self) -> None:
        """ValueError when the control listener is on a clients' address."""
        if self.drain_s < 0:
            raise ValueError("drain_s: must not be negative")
        if not self.listeners:
            raise ValueError("listeners: must not be empty")
        clients = {each.address for each in self.listeners if not each.address.endswith(":0")}
        if self.control and self.control.address in clients:
            raise ValueError("control.address: must differ from the clients' listeners")
