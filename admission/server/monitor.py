"""MonitorService: snapshots, history and recent decisions, from copies that never touch the path of decisions."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import grpc

from admission.runtime.host import Host
from admission.runtime.settings import Role
from admission.server import picture
from admission.server.counts import Counts
from admission.server.gpus import GpuStates
from admission.server.handlers import Method
from admission.server.origins import KnowsOrigin, Origins
from admission.server.overload import LoopLag
from admission.server.points import Points
from admission.server.sessions import Sessions
from admission.server.translate import Tickets, seconds
from admission.server.unary import Leases
from admission.v1 import monitor_service_pb2 as wire
from admission.vocabulary import Mode, PriorityClass
from telemetry.history.memory import MemoryHistory
from telemetry.link import TelemetryView
from telemetry.processors.windows import Percentiles, Windows

_MIN_INTERVAL_S = 0.2
_MAX_WARNINGS = 64
_MAX_WATCHERS = 64
_MAX_TIMES = 2048
"""Decision times kept between two ticks."""
_SIDECAR = ""
"""The windows' name for what is not of a target."""


class Monitor:
    """Everything that is shown. `warn` and `telemetry` may be called by anyone on the loop."""

    def __init__(self, host: Host, windows: Windows, tickets: Tickets, version: str) -> None:
        self._host = host
        self._windows = windows
        self._tickets = tickets
        self._origins = Origins()
        self._started = host.now()
        self._warnings: dict[str, str] = {}
        self._watchers = 0
        self._decision_times: list[tuple[float, float]] = []
        self._sessions: Sessions | None = None
        self._leases: Leases | None = None
        self._lag: LoopLag | None = None
        self.counts = Counts(host.targets, windows, self._origins, host.now)
        for target, config in host.configs.items():
            self.counts.targets[target].shadowing = config.mode is Mode.SHADOW
        self.history = MemoryHistory()
        self._points = Points(host, self.counts, self.history)
        self.telemetry_view = TelemetryView()
        self.boot = secrets.token_bytes(8)
        self.version = version
        self.own_slos: Mapping[str, Collection[PriorityClass]] = {}
        """By target, the classes whose SLO the user set; all others are shown as defaults."""
        self._gpu_states = GpuStates(host.targets)
        self.draining = False
        self.on_decision_time: Callable[[float], None] | None = None
        """Also told each time to a first answer, in seconds."""
        self.percentiles: dict[tuple[str, str, str], Percentiles] = {}
        """By target, class and measure, over the last minute, as of the last tick."""

    def watch(self, sessions: Sessions, leases: Leases, lag: LoopLag) -> None:
        """Show these too."""
        self._sessions, self._leases, self._lag = sessions, leases, lag
        self._origins.add(sessions, leases)

    # ---- told

    def note_decision_time(self, took_s: float, now: float) -> None:
        """A ticket (or a message of them) got its first answer this long after it came."""
        if len(self._decision_times) < _MAX_TIMES:
            self._decision_times.append((took_s, now))
        if self.on_decision_time:
            self.on_decision_time(took_s)

    def telemetry(self, view: TelemetryView) -> None:
        """The newest of telemetry."""
        self.telemetry_view = view
        for target, change in self._gpu_states.changes(view.gpus):
            self._host.tell(target, change)

    def warn(self, key: str, text: str) -> None:
        """Show a warning until `text` is empty. At most 64 are kept, the first ones."""
        if not text:
            self._warnings.pop(key, None)
        elif key in self._warnings or len(self._warnings) < _MAX_WARNINGS:
            self._warnings[key] = text

    def tick(self, now: float) -> None:
        """Once a second: percentiles, and one point of history."""
        self.counts.flush()
        times, self._decision_times = self._decision_times, []
        for took_s, at in times:
            self._windows.add(_SIDECAR, "", "decision", took_s, at)
        found = {}
        for key in self._keys():
            each = self._windows.percentiles(*key, now)
            if each is not None:
                found[key] = each
        self.percentiles = found
        self._points.take(time.time(), now, self.percentiles, self.telemetry_view)

    def _keys(self) -> list[tuple[str, str, str]]:
        classes = picture.CLASS_LABELS
        keys = [
            (target, label, measure)
            for target in self._host.targets
            for label in classes
            for measure in picture.MEASURES
        ]
        return [*keys, (_SIDECAR, "", "decision")]

    # ---- shown

    def origin(self, id: Any) -> tuple[str, str] | None:
        """Request id and traceparent of a ticket, while it is remembered."""
        return self._origins.origin(id)

    def add_origin(self, known: KnowsOrigin) -> None:
        """Another way in for tickets."""
        self._origins.add(known)

    def warnings(self) -> list[str]:
        """One line each."""
        shown = list(self._warnings.values())
        routes = self._host.routes
        if routes.unknown_total:
            names = ", ".join(f"{name} ({count})" for name, count in list(routes.unknown.items())[:5])
            shown.append(f"{routes.unknown_total} tickets passed untracked, no target claims them: {names}")
        if self._lag and self._lag.behind:
            shown.append(f"the sidecar is overloaded: its loop is {self._lag.lag_s * 1000:.0f} ms behind")
        if self._tickets.unknown_classes:
            shown.append(
                f"{self._tickets.unknown_classes} tickets named an unknown class: taken as interactive"
            )
        return shown + self.telemetry_view.warnings

    def snapshot(self) -> wire.Snapshot:
        """Everything, as of now."""
        self.counts.count()
        now = self._host.now()
        facts = picture.Facts(
            host=self._host,
            counts=self.counts,
            own_slos=self.own_slos,
            percentiles=self.percentiles,
            telemetry=self.telemetry_view,
            now=now,
            unix_s=time.time(),
        )
        snapshot = picture.snapshot(facts)
        snapshot.version, snapshot.boot, snapshot.draining = self.version, self.boot, self.draining
        snapshot.uptime.FromNanoseconds(round((now - self._started) * 1e9))
        snapshot.sessions = len(self._sessions) if self._sessions is not None else 0
        snapshot.warnings.extend(self.warnings())
        picture.fill_percentiles(snapshot.decision_time, self.percentiles.get((_SIDECAR, "", "decision")))
        return snapshot

    # ---- served

    def methods(self) -> dict[str, Method]:
        """The service's methods, all for viewers."""
        role = Role.VIEWER
        return {
            "GetSnapshot": Method(
                "unary", wire.GetSnapshotRequest, wire.GetSnapshotResponse, role, self._get_snapshot
            ),
            "WatchSnapshots": Method(
                "server_stream", wire.WatchSnapshotsRequest, wire.WatchSnapshotsResponse, role, self._watch
            ),
            "GetHistory": Method(
                "unary", wire.GetHistoryRequest, wire.GetHistoryResponse, role, self._get_history
            ),
            "ListDecisions": Method(
                "unary", wire.ListDecisionsRequest, wire.ListDecisionsResponse, role, self._list_decisions
            ),
        }

    async def _get_snapshot(
        self, _request: wire.GetSnapshotRequest, _context: Any
    ) -> wire.GetSnapshotResponse:
        return wire.GetSnapshotResponse(snapshot=self.snapshot())

    async def _watch(self, request: wire.WatchSnapshotsRequest, context: Any) -> None:
        interval_s = seconds(request.interval) if request.HasField("interval") else 1.0
        if self._watchers >= _MAX_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} watch already")
        self._watchers += 1
        try:
            while True:
                await context.write(wire.WatchSnapshotsResponse(snapshot=self.snapshot()))
                await asyncio.sleep(max(interval_s, _MIN_INTERVAL_S))
        finally:
            self._watchers -= 1

    async def _get_history(self, request: wire.GetHistoryRequest, context: Any) -> wire.GetHistoryResponse:
        target = request.target or self._host.targets[0]
        if target not in self._host.targets:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no target {target!r}")
        since_s = seconds(request.since) if request.HasField("since") else 600.0
        lines = self.history.range(
            target, list(request.series), time.time(), since_s, min(request.max_points or 600, 3600)
        )
        series = [
            wire.Series(name=line.name, unit=line.unit, unix_s=line.unix_s, value=line.value)
            for line in lines
        ]
        return wire.GetHistoryResponse(series=series)

    async def _list_decisions(
        self, request: wire.ListDecisionsRequest, _context: Any
    ) -> wire.ListDecisionsResponse:
        found = self.counts.recent(
            request.target,
            request.match,
            min(request.max_results or 100, 1000),
            refused_only=request.refused_only,
        )
        return wire.ListDecisionsResponse(
            decisions=[
                picture.recorded(each, self._tickets.name(each.event.ticket.flow.tenant)) for each in found
            ]
        )
