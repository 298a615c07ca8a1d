"""What the pages read: the sidecar's MonitorService, asked at most once a second for all sessions together."""

from __future__ import annotations

import argparse
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import grpc

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import monitor_service_pb2_grpc as monitor_grpc
from dashboard.picture import Decisions, History, Line, Picture
from dashboard.rates import Rates, RateWindow

SNAPSHOT_EVERY_S = 0.9
HISTORY_EVERY_S = 1.9
HISTORY_S = 600
TIMEOUT_S = 1.0
AWAY_AFTER_S = 2.5
_MAX_POINTS = 300
_MAX_DECISIONS = 200
_MAX_TARGETS_KEPT = 64
_CHANNEL = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 16 * 2**20),
    ("grpc.enable_http_proxy", 0),
)
_T = TypeVar("_T")


class Monitor(Protocol):
    """The three questions asked of a sidecar. Each raises grpc.RpcError."""

    def snapshot(self) -> monitor.Snapshot:
        """Everything, as of now."""
        ...

    def history(self, target: str) -> monitor.GetHistoryResponse:
        """The last ten minutes of a target."""
        ...

    def decisions(self, target: str) -> monitor.ListDecisionsResponse:
        """The latest refusals of a target."""
        ...


class GrpcMonitor:
    """The real thing. `address` is host:port or unix:/path; it connects at the first call, and again by itself."""

    def __init__(
        self, address: str, *, credentials: grpc.ChannelCredentials | None = None, token: str = ""
    ) -> None:
        self._stub = monitor_grpc.MonitorServiceStub(_channel(address, credentials))
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def snapshot(self) -> monitor.Snapshot:
        """Everything, as of now."""
        request = monitor.GetSnapshotRequest()
        return self._stub.GetSnapshot(request, timeout=TIMEOUT_S, metadata=self._metadata).snapshot

    def history(self, target: str) -> monitor.GetHistoryResponse:
        """The last ten minutes of a target."""
        request = monitor.GetHistoryRequest(target=target, max_points=_MAX_POINTS)
        request.since.FromSeconds(HISTORY_S)
        return self._stub.GetHistory(request, timeout=TIMEOUT_S, metadata=self._metadata)

    def decisions(self, target: str) -> monitor.ListDecisionsResponse:
        """The latest decisions of a target."""
        # In shadow a refusal is an admitted ticket that says so: not `refused_only`.
        request = monitor.ListDecisionsRequest(target=target, max_results=_MAX_DECISIONS)
        return self._stub.ListDecisions(request, timeout=TIMEOUT_S, metadata=self._metadata)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address, options=_CHANNEL)
    return grpc.secure_channel(address, credentials, options=_CHANNEL)


class _Kept(Generic[_T]):
    """An answer that is asked for again when it is `every_s` old; who comes while another asks gets the old one."""

    def __init__(self, every_s: float, clock: Callable[[], float], empty: _T) -> None:
        self._value = empty
        self._every_s = every_s
        self._clock = clock
        self._asked_at: float | None = None
        self._lock = threading.Lock()

    def get(self, ask: Callable[[_T], _T]) -> _T:
        if self._due() and self._lock.acquire(blocking=self._asked_at is None):
            try:
                if self._due():
                    self._value = ask(self._value)
                    self._asked_at = self._clock()
            finally:
                self._lock.release()
        return self._value

    def _due(self) -> bool:
        return self._asked_at is None or self._clock() - self._asked_at >= self._every_s


class Source:
    """One for all sessions of a dashboard process; safe to call from several threads. No method raises for a sidecar that is away."""

    def __init__(self, asked: Monitor, address: str, clock: Callable[[], float]) -> None:
        self._monitor = asked
        self._address = address
        self._clock = clock
        self._window = RateWindow()
        self._seen: monitor.Snapshot | None = None
        self._seen_at = clock()
        self._error = ""
        self._snapshot = _Kept(SNAPSHOT_EVERY_S, clock, "")
        self._history: OrderedDict[str, _Kept[History]] = OrderedDict()
        self._decisions: OrderedDict[str, _Kept[Decisions]] = OrderedDict()

    def picture(self) -> Picture:
        """The newest snapshot, or the last one and why the sidecar is away."""
        self._error = self._snapshot.get(self._ask_snapshot)
        return self._last()

    def _last(self) -> Picture:
        age = self._clock() - self._seen_at
        grace = self._seen is not None and age < AWAY_AFTER_S
        return Picture(self._seen, age, "" if grace else self._error, self._address)

    def rates(self, target: str) -> Rates:
        """Rates per second of a target over the last ten seconds."""
        return self._window.rates(target)

    def history(self, target: str) -> History:
        """The last ten minutes of a target; what was known when the sidecar is away."""
        kept = self._of(self._history, target, History())
        return kept.get(lambda old: self._ask_history(target, old))

    def decisions(self, target: str) -> Decisions:
        """The latest refusals of a target."""
        kept = self._of(self._decisions, target, Decisions())
        return kept.get(lambda old: self._ask_decisions(target, old))

    def _of(self, all_kept: OrderedDict[str, _Kept[_T]], target: str, empty: _T) -> _Kept[_T]:
        kept = all_kept.setdefault(target, _Kept(HISTORY_EVERY_S, self._clock, empty))
        while len(all_kept) > _MAX_TARGETS_KEPT:
            all_kept.popitem(last=False)
        return kept

    def _ask_snapshot(self, _: str) -> str:
        try:
            snapshot = self._monitor.snapshot()
        except grpc.RpcError as error:
            return explain(error, self._address)
        self._seen, self._seen_at = snapshot, self._clock()
        self._window.add(snapshot)
        return ""

    def _ask_history(self, target: str, old: History) -> History:
        if self._error:
            return replace(old, error=self._error)
        try:
            return read_history(self._monitor.history(target), self._last().unix_now)
        except grpc.RpcError as error:
            return replace(old, error=explain(error, self._address))

    def _ask_decisions(self, target: str, old: Decisions) -> Decisions:
        if self._error:
            return replace(old, error=self._error)
        try:
            return Decisions(tuple(self._monitor.decisions(target).decisions))
        except grpc.RpcError as error:
            return replace(old, error=explain(error, self._address))


def read_history(answer: monitor.GetHistoryResponse, at: float = 0.0) -> History:
    """The wire's series as lines, as of `at` in unix seconds; points without a partner are left out."""
    lines = {}
    for series in answer.series:
        points = sorted(zip(series.unix_s, series.value, strict=False))
        lines[series.name] = Line([at for at, _ in points], [value for _, value in points], series.unit)
    return History(lines, at=at)


_EXPLAINED = {
    grpc.StatusCode.UNAVAILABLE: "nobody answers at {address}",
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer within 1 s from {address}",
    grpc.StatusCode.UNIMPLEMENTED: "the sidecar at {address} is older than this dashboard and cannot answer",
    grpc.StatusCode.UNAUTHENTICATED: "{address} refuses this viewer: a token or certificate is missing",
    grpc.StatusCode.PERMISSION_DENIED: "{address} refuses this viewer: the role `viewer` is missing",
    grpc.StatusCode.NOT_FOUND: "the sidecar at {address} has no history of this target",
}


def explain(error: grpc.RpcError, address: str) -> str:
    """One line for people about a call that failed."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    return _EXPLAINED.get(code, f"{{address}} answered {code.name}").format(address=address)


def find_address(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """The control address: `--control` first, then TIDEGATE_CONTROL_ADDRESS, then the socket's usual place."""
    parser = argparse.ArgumentParser(prog="dashboard", add_help=False, allow_abbrev=False)
    parser.add_argument("--control", default="")
    known, _ = parser.parse_known_args(list(arguments))
    usual = Path(environ.get("XDG_RUNTIME_DIR", "/tmp")) / "tidegate" / "control.sock"  # noqa: S108  only looked at
    return known.control or environ.get("TIDEGATE_CONTROL_ADDRESS", "") or f"unix:{usual}"


def open_source(arguments: Sequence[str], environ: Mapping[str, str], clock: Callable[[], float]) -> Source:
    """A source for the address and credentials that arguments and environment name. OSError: a certificate file cannot be read."""
    address = find_address(arguments, environ)
    token = environ.get("TIDEGATE_CONTROL_TOKEN", "")
    return Source(GrpcMonitor(address, credentials=_credentials(environ), token=token), address, clock)


def _credentials(environ: Mapping[str, str]) -> grpc.ChannelCredentials | None:
    """TLS when TIDEGATE_TLS_CA names an authority; with TIDEGATE_TLS_CERT and _KEY a certificate of our own."""

    def content(name: str) -> bytes | None:
        path = environ.get(name)
        return Path(path).read_bytes() if path else None

    ca = content("TIDEGATE_TLS_CA")
    if ca is None:
        return None
    return grpc.ssl_channel_credentials(ca, content("TIDEGATE_TLS_KEY"), content("TIDEGATE_TLS_CERT"))
