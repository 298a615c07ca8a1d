"""The gRPC side of the sidecar: puts the services on their listeners, and starts, drains and stops them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from admission.core.model import Reading, Sample
from admission.runtime.host import Host
from admission.runtime.settings import ListenerConfig, Role, ServerConfig
from admission.server import listen
from admission.server.answers import Answers
from admission.server.control import Control, Reload
from admission.server.early import Early
from admission.server.handlers import Method, handler_of
from admission.server.monitor import Monitor
from admission.server.overload import LoopLag
from admission.server.roles import Roles
from admission.server.sessions import Sessions
from admission.server.stream import SessionStreams
from admission.server.translate import Tickets
from admission.server.unary import Leases
from admission.v1 import admission_service_pb2 as wire
from telemetry.link import TelemetryView
from telemetry.processors.windows import Windows

LOG = logging.getLogger(__name__)
ADMISSION = "admission.v1.AdmissionService"
MONITOR = "admission.v1.MonitorService"
CONTROL = "admission.v1.ControlService"
_TICK_S = 0.25
_POINT_S = 1.0
_LAST_WORDS_S = 0.2


class TelemetryIntake:
    """Hands what telemetry measured to the host, and its view to the monitor. Unknown targets are counted."""

    def __init__(self, host: Host, monitor: Monitor) -> None:
        self._host = host
        self._monitor = monitor
        self._targets = frozenset(host.targets)
        self.unclaimed = 0

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value."""
        if target in self._targets:
            self._host.observe(target, reading)
        else:
            self.unclaimed += 1

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request of a span."""
        if target in self._targets:
            self._host.sample(target, sample)
            self._monitor.counts.spanned(target, sample, self._host.now())
        else:
            self.unclaimed += 1

    def view(self, view: TelemetryView) -> None:
        """Once a second: everything shown to people."""
        self._monitor.telemetry(view)


class TidegateServer:
    """Services on listeners. Build it, `start` it on the loop of the host, `drain` it on SIGTERM, `stop` it.

    `runtime_dir` is where the control socket goes when no control listener is configured.
    """

    def __init__(
        self,
        host: Host,
        config: ServerConfig | None = None,
        *,
        runtime_dir: Path,
        version: str = "",
        tenant_key: bytes = b"",
        windows: Windows | None = None,
        reload: Reload | None = None,
    ) -> None:
        self._host = host
        self._config = config or ServerConfig()
        self._control_config = self._config.control or ListenerConfig(
            address=f"unix:{runtime_dir.absolute() / 'control.sock'}"
        )
        self.roles = Roles(self._config.roles)
        self.lag = LoopLag(self._config.overload, host.now)
        tickets = Tickets(tenant_key or secrets.token_bytes(16))
        early = Early(host)
        overload = self._config.overload
        lease_ttl_s = min(each.lease.ttl_s for each in host.configs.values())
        self.monitor = Monitor(host, windows or Windows(), tickets, version)
        note = self.monitor.note_decision_time
        self.sessions = Sessions(host, self._config.session, overload, tickets, early, self.lag)
        self.sessions.boot, self.sessions.lease_ttl_s = self.monitor.boot, lease_ttl_s
        self.leases = Leases(host, self._config.unary, overload, tickets, early, self.lag, note, lease_ttl_s)
        self.monitor.watch(self.sessions, self.leases, self.lag)
        self._streams = SessionStreams(self.sessions, host, note)
        self._control = Control(host, reload)
        # The parties to an answer come first: a monitor may ask them where the ticket came from.
        host.listen(Answers(self.sessions, self.leases))
        host.listen(self.monitor.counts)
        self.sink = TelemetryIntake(host, self.monitor)
        self._health = health.aio.HealthServicer()
        self._servers: list[grpc.aio.Server] = []
        self._bound: list[ListenerConfig] = []
        self._ticker: asyncio.Task[None] | None = None
        self.addresses: list[str] = []
        """Where clients ask, with the ports chosen."""
        self.control_address = ""

    @property
    def ready(self) -> bool:
        """Whether new work is welcome."""
        return bool(self.addresses) and not self.monitor.draining

    # ---- life

    async def start(self) -> None:
        """Listen. ListenError when an address cannot be had; then nothing listens."""
        clients, control = self._server(listen.MAX_HELLO_BYTES), self._server()
        self._serve_clients(clients)
        self._serve_control(control)
        addresses = [
            self._bind(clients, each, f"listen.grpc[{index}]")
            for index, each in enumerate(self._config.listeners)
        ]
        self.control_address = self._bind(control, self._control_config, "listen.control")
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        for server in (clients, control):
            await server.start()
            self._servers.append(server)
        self.addresses = addresses
        self.lag.start()
        self._ticker = asyncio.create_task(self._tick())
        LOG.info("listening", extra={"addresses": addresses, "control": self.control_address})

    async def drain(self, drain_s: float | None = None) -> bool:
        """Readiness false, waiters answered, permits in flight may finish. True when all of them did in time."""
        bound_s = self._config.drain_s if drain_s is None else drain_s
        self.monitor.draining = True
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        # Told first, so that a client takes the answers to its waiters for what they are.
        self.sessions.announce_drain(bound_s)
        for target in self._host.targets:
            self._host.set_drain(target, True)
        LOG.info("draining", extra={"in_flight": self._in_flight(), "bound_s": bound_s})
        until = self._host.now() + bound_s
        while self._in_flight() and self._host.now() < until:  # noqa: ASYNC110 - many things may end it
            await asyncio.sleep(0.05)
        # The last answers leave before the streams are cut.
        await asyncio.sleep(min(_LAST_WORDS_S, bound_s))
        return not self._in_flight()

    async def stop(self, grace_s: float = 0.5) -> None:
        """Close every listener and stream."""
        if self._ticker:
            self._ticker.cancel()
        self.lag.stop()
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))
        self._servers.clear()
        self.addresses = []
        # Only what this server bound: after a start that failed, a socket there may be another's.
        bound, self._bound = self._bound, []
        for each in bound:
            listen.remove_socket(each)

    # ---- within

    def _bind(self, server: grpc.aio.Server, config: ListenerConfig, setting: str) -> str:
        address = listen.add_listener(server, config, setting)
        self._bound.append(config)
        return address

    def _in_flight(self) -> int:
        return self.sessions.tracked + self.leases.tracked

    async def _tick(self) -> None:
        """Housekeeping several times a second, history once a second. It must survive what it meets."""
        point_at = self._host.now()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._host.now()
            try:
                self.sessions.tick(now)
                self.leases.tick(now)
                if now >= point_at:
                    point_at = max(point_at + _POINT_S, now)
                    self.roles.refresh()
                    self._show_failures()
                    self.monitor.tick(now)
            except Exception:
                LOG.exception("tick_failed")

    def _show_failures(self) -> None:
        failures = self._host.failures
        if failures:
            told = ", ".join(f"{who} {count} times" for who, count in sorted(failures.items()))
            self.monitor.warn("failures", f"failed within, see the log: {told}")

    def _server(self, max_message_bytes: int = listen.MAX_MESSAGE_BYTES) -> grpc.aio.Server:
        return grpc.aio.server(options=listen.server_options(self._config.overload, max_message_bytes))

    def _serve_clients(self, server: grpc.aio.Server) -> None:
        methods = {
            "Acquire": Method(
                "unary", wire.AcquireRequest, wire.AcquireResponse, Role.CLIENT, self.leases.acquire
            ),
            "Report": Method(
                "unary", wire.ReportRequest, wire.ReportResponse, Role.CLIENT, self.leases.report
            ),
            "Release": Method(
                "unary", wire.ReleaseRequest, wire.ReleaseResponse, Role.CLIENT, self.leases.release
            ),
            "Session": Method(
                "both_stream", wire.SessionRequest, wire.SessionResponse, Role.CLIENT, self._streams.serve
            ),
        }
        self._add(server, ADMISSION, methods)
        self._add_common(server, [ADMISSION])

    def _serve_control(self, server: grpc.aio.Server) -> None:
        self._add(server, MONITOR, self.monitor.methods())
        self._add(server, CONTROL, self._control.methods())
        self._add_common(server, [MONITOR, CONTROL])

    def _add(self, server: grpc.aio.Server, service: str, methods: dict[str, Method]) -> None:
        check = None if self.roles.open else self.roles.check
        server.add_generic_rpc_handlers((handler_of(service, methods, check),))

    def _add_common(self, server: grpc.aio.Server, services: Sequence[str]) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._config.reflection:
            names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", ADMISSION):
            await self._health.set(service, status)
