"""The sidecar put together: what `tidegate serve` starts, reloads, drains and stops."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from admission.config.load import Loaded, load
from admission.config.log import set_up
from admission.config.mistakes import BadConfigurationError
from admission.config.reload import Reloaded, compare, merged
from admission.config.schema import Settings, TargetSettings, state_directory
from admission.core.model import TicketId, View
from admission.core.saved import SavedState
from admission.runtime.collector import calm_collector
from admission.runtime.host import Host, TargetSpec
from admission.runtime.journal import Journal
from admission.runtime.settings import Role
from admission.runtime.state import StateStore
from admission.runtime.tally import Tally, said
from admission.server.http import HttpServer, http_app
from admission.server.listen import ListenError
from admission.server.roles import TokenFileError, parse_tokens
from admission.server.service import TidegateServer
from telemetry.config import TelemetryConfig
from telemetry.exporters.gauges import Slo
from telemetry.exporters.prometheus import PrometheusExporter
from telemetry.exporters.trace_context import trace_id_of
from telemetry.link import TelemetryView
from telemetry.process import Telemetry
from telemetry.receivers.otlp_modules import OtlpModulesError

if TYPE_CHECKING:
    from telemetry.exporters.traces import DecisionTracer

LOG = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
SAY_EVERY_S = 60.0
FLUSH_EVERY_S = 0.25
LEAVE_ROOM_S = 1.0
"""Kept from the time for draining, to save the state and to stop telemetry."""


class CannotStartError(Exception):
    """The sidecar cannot run as configured; the text says why and which setting to change."""


class Sidecar:
    """Everything that runs. Build it inside a loop, `start` it, `drain` and `stop` it."""

    def __init__(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        self.loaded = loaded
        self._environ = environ
        self.state = "starting"
        # First what may be refused, then what takes hold of the state directory.
        telemetry = telemetry_config(loaded.settings)
        self.store = StateStore(state_directory(loaded.settings))
        saved = self.store.load()
        targets = loaded.settings.targets
        self.host = Host([_spec(target, saved.get(target.name)) for target in targets])
        self.server = TidegateServer(
            self.host,
            loaded.settings.server,
            runtime_dir=self.store.directory or Path.cwd(),
            version=installed_version(),
            tenant_key=self.store.key("tenant_key"),
            reload=self.reload,
        )
        self._show_own_slos()
        self.telemetry = Telemetry(telemetry, self.server.sink)
        self.metrics = PrometheusExporter(self, installed_version(), self._trace_id)
        self.server.monitor.on_decision_time = self.metrics.on_decision_time
        self.tally = Tally()
        self.http = self._http()
        self._journal: Journal | None = None
        self._tracer = self._make_tracer()
        self._tasks: list[asyncio.Task[None]] = []
        self._store_said = ""

    @property
    def settings(self) -> Settings:
        """What is in force."""
        return self.loaded.settings

    # ---- what exporters and the server ask

    def views(self) -> dict[str, View]:
        """Each target as shown."""
        return {name: self.host.view(name) for name in self.host.targets}

    def telemetry_view(self) -> TelemetryView:
        """The newest of telemetry."""
        return self.server.monitor.telemetry_view

    def session_count(self) -> int:
        """Clients attached."""
        return len(self.server.sessions)

    def slos(self) -> Iterator[Slo]:
        """What each class is held against."""
        for target in self.settings.targets:
            for rank, entry in target.controller.classes.items():
                configured = rank in target.own_slo
                if entry.slo.ttft_s is not None:
                    yield Slo(target.name, rank, "ttft", entry.slo.ttft_s, configured)
                yield Slo(target.name, rank, "tpot", entry.slo.tpot_s, configured)

    def protocol_counts(self) -> dict[tuple[str, str], int]:
        """What callers' messages came to, by (way, name)."""
        ways = {"session": self.server.sessions.counters, "unary": self.server.leases.counters}
        return {(way, name): total for way, counts in ways.items() for name, total in counts.items()}

    def not_ready(self) -> str:
        """Why no traffic should come; empty when it may."""
        if self.state != "serving":
            return self.state
        views = self.views().values()
        return "draining" if all(view.draining for view in views) else ""

    def traceparent(self, id: TicketId) -> str:
        """The W3C trace context that a ticket came with; empty when it had none."""
        origin = self.server.monitor.origin(id)
        return origin[1] if origin else ""

    def _trace_id(self, id: TicketId) -> str:
        return trace_id_of(self.traceparent(id))

    # ---- life

    async def start(self) -> None:
        """Listens and begins to watch. CannotStartError: an address is taken, or a file cannot be used."""
        self._listen_to_events()
        self.host.start()
        self._start_journal()
        try:
            await self.server.start()
            if self.http:
                await self.http.start()
            await self.telemetry.start()
        except (ListenError, OSError, OtlpModulesError) as error:
            await self.stop()
            raise CannotStartError(str(error)) from error
        self._show_store()
        self._repeat("save", SAVE_EVERY_S, self.save)
        self._repeat("say", SAY_EVERY_S, self.say)
        if self._tracer:
            self._repeat("traces", FLUSH_EVERY_S, self._flush_traces)
        self.state = "serving"
        self._say_started()

    async def drain(self) -> None:
        """Readiness goes false, waiters get an answer, what is in flight may finish in time."""
        self.state = "draining"
        await self.server.drain()

    async def stop(self) -> None:
        """Closes everything. May be called twice, and after a start that failed."""
        self.state = "stopped"
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.telemetry.stop()
        await self.server.stop()
        await self.save()
        if self.http:
            await self.http.stop()
        self.host.stop()
        await asyncio.to_thread(self._close_files)

    def _close_files(self) -> None:
        if self._journal:
            self._journal.close()
        if self._tracer:
            self._tracer.stop()
        self.store.close()

    # ---- reload

    async def reload(self) -> Reloaded:
        """Reads the file again. A bad one changes nothing."""
        try:
            fresh = await asyncio.to_thread(load, self.loaded.file, self._environ)
        except BadConfigurationError as error:
            lines = tuple(str(mistake) for mistake in error.mistakes)
            LOG.warning("reload_refused", extra={"mistakes": len(lines), "first": lines[0]})
            return Reloaded(errors=lines)
        changes = compare(self.loaded.settings, fresh.settings)
        self._apply(fresh)
        applied, waiting = changes.applied, changes.needs_restart
        LOG.info("reloaded", extra={"applied": ",".join(applied), "needs_restart": ",".join(waiting)})
        return Reloaded(changes=changes)

    def reload_soon(self) -> None:
        """For a signal handler."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.get_running_loop().create_task(self._reload_quietly(), name="reload"))

    async def _reload_quietly(self) -> None:
        try:
            await self.reload()
        except Exception:
            LOG.exception("reload_failed")

    def _apply(self, fresh: Loaded) -> None:
        old = {target.name: target.controller for target in self.loaded.settings.targets}
        settings = merged(self.loaded.settings, fresh.settings)
        for target in settings.targets:
            if target.controller == old[target.name]:
                continue
            self.host.reconfigure(target.name, target.controller)
            # An operator's live switch stays, unless the file says another mode than it did.
            if target.controller.mode is not old[target.name].mode:
                self.host.set_mode(target.name, target.controller.mode)
        set_up(settings.log)
        self.loaded = Loaded(settings, fresh.document, fresh.file)
        self._show_own_slos()

    def _show_own_slos(self) -> None:
        self.server.monitor.own_slos = {target.name: target.own_slo for target in self.settings.targets}

    # ---- what repeats

    async def save(self) -> None:
        """Writes limits and learned values; the disk is waited for elsewhere."""
        saved = self.host.saved()
        await asyncio.to_thread(self.store.save, saved)
        self._show_store()

    def _show_store(self) -> None:
        """Says once when the state directory turns bad, and when it is good again."""
        if self.store.problem != self._store_said:
            self._store_said = self.store.problem
            self.server.monitor.warn("state_dir", self.store.problem)
            LOG.warning("state_dir", extra={"state": self.store.problem or "good again"})

    async def say(self) -> None:
        """One line a target and minute."""
        for name, view in self.views().items():
            LOG.info("target", extra=said(name, view, self.tally.take(name)))

    async def _flush_traces(self) -> None:
        if self._tracer:
            self._tracer.flush()
            self.server.monitor.warn("export", self._tracer.problem)

    def _repeat(self, name: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            while True:
                await asyncio.sleep(every_s)
                try:
                    await work()
                except Exception:
                    LOG.exception("repeated_work_failed", extra={"work": name})

        self._tasks.append(asyncio.create_task(run(), name=name))

    # ---- parts

    def _listen_to_events(self) -> None:
        self.host.listen(self.metrics)
        self.host.listen(self.tally)
        if self._tracer:
            self.host.listen(self._tracer)

    def _start_journal(self) -> None:
        config = self.settings.journal
        if not config.enabled or not self.store.writable or self.store.directory is None:
            return

        def warn(text: str) -> None:
            self.server.monitor.warn("journal", text)
            LOG.warning("journal_off", extra={"reason": text})

        self._journal = Journal(self.store.directory / "journal", config, warn)
        self._journal.start(self.host.controllers)
        self.host.record_to(self._journal)

    def _http(self) -> HttpServer | None:
        address = self.settings.listen.http
        if not address:
            return None
        return HttpServer(
            http_app(self.metrics.gather, self.not_ready), self.settings.listen.listener(address)
        )

    def _make_tracer(self) -> DecisionTracer | None:
        export = self.settings.export
        if not export.otlp_endpoint:
            return None
        # The OpenTelemetry SDK weighs some 20 MB: only who exports spans carries it.
        from telemetry.exporters.traces import DecisionTracer  # noqa: PLC0415

        return DecisionTracer(export, self.traceparent)

    def _say_started(self) -> None:
        settings = self.settings
        LOG.info(
            "started",
            extra={
                "version": installed_version(),
                "config": self.loaded.file or "(none: defaults)",
                "grpc": ",".join(self.server.addresses),
                "control": self.server.control_address,
                "http": settings.listen.http or "off",
                "state_dir": self.store.directory if self.store.writable else "memory only",
            },
        )
        for target in settings.targets:
            mode = target.controller.mode.name.lower()
            note = "records, refuses nothing" if mode == "shadow" else ""
            default = len(target.own_slo) < len(target.controller.classes)
            slo = "default, not set by you" if default else "configured"
            LOG.info("target_ready", extra={"target": target.name, "mode": mode, "note": note, "slo": slo})


def _spec(target: TargetSettings, saved: SavedState | None) -> TargetSpec:
    return TargetSpec(name=target.name, models=target.binding.models, config=target.controller, saved=saved)


def telemetry_config(settings: Settings) -> TelemetryConfig:
    """What the telemetry process is told: its own section, and who has the telemetry role.

    OSError or TokenFileError: the token file cannot be used.
    """
    roles = settings.listen.roles
    names = [name for name, given in roles.names.items() if Role.TELEMETRY in given]
    tokens = parse_tokens(Path(roles.token_file).read_text()) if roles.token_file else {}
    senders = [token for token, given in tokens.items() if Role.TELEMETRY in given]
    config = settings.telemetry
    return dataclasses.replace(
        config,
        tokens=(*config.tokens, *senders),
        names=(*config.names, *names) if config.tls.client_ca else config.names,
        # Whoever names callers means that the others may not: also when it is nobody that may steer.
        restricted=config.restricted or bool(roles.names or roles.token_file),
    )


def installed_version() -> str:
    """The version of the installed distribution; `0+unknown` in a bare source tree."""
    try:
        return version("tidegate")
    except PackageNotFoundError:
        return "0+unknown"


def run(loaded: Loaded) -> None:
    """Serves until SIGTERM or SIGINT; a second one does not wait. CannotStartError: could not begin."""
    set_up(loaded.settings.log)
    asyncio.run(serve(loaded, os.environ))


async def serve(loaded: Loaded, environ: Mapping[str, str], started: asyncio.Event | None = None) -> None:
    """Runs one sidecar until a signal, on the running loop of the main thread."""
    try:
        sidecar = Sidecar(loaded, environ)
    except (OSError, TokenFileError) as error:
        raise CannotStartError(f"listen.roles.token_file: {error}") from error
    asked, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def leave() -> None:
        (hurry if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    loop.add_signal_handler(signal.SIGHUP, sidecar.reload_soon)
    await sidecar.start()
    calm_collector()
    if started:
        started.set()
    await asked.wait()
    LOG.info("stopping", extra={"in_flight": sum(view.in_flight for view in sidecar.views().values())})
    drained = asyncio.ensure_future(sidecar.drain())
    hurried = asyncio.ensure_future(hurry.wait())
    await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
    for task in (drained, hurried):
        task.cancel()
    await asyncio.gather(drained, hurried, return_exceptions=True)
    await sidecar.stop()
    LOG.info("stopped")
