"""Runs the demo: starts everything, plays the load twice, shows it, and takes everything down again."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import signal
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from rich.live import Live

from admission.simulation.demo.plan import DemoPlan, Ports, choose_ports, control_address, write_config
from admission.simulation.demo.screen import WITH, WITHOUT, Board, console, verdict
from admission.simulation.demo.stage import Stage
from admission.simulation.load import Load, LoadConfig, LoadReport

MIDDLEWARE = "admission.client.asgi.AdmissionMiddleware"
TOO_SLOW_RATIO = 0.03
_REFRESH_S = 0.5
_LINES_EVERY = 10


class Show:
    """One performance.

    Args:
        plan: what to play.
        folder: for configuration, state and logs; empty and ours.
        quiet: print nothing but the last table (or nothing at all before JSON).
    """

    def __init__(self, plan: DemoPlan, folder: Path, *, quiet: bool = False) -> None:
        self.plan = plan
        self.board = Board()
        self.stage = Stage(folder)
        self.speed_notes: dict[str, dict[str, float]] = {}
        self._folder = folder
        self._quiet = quiet
        self._console = console()
        self._arrivals = plan.arrivals()

    async def run(self) -> None:
        """Play both runs. The processes that it starts are the caller's to stop.

        Raises:
            StageError: a process did not come up.
        """
        ports, moved = choose_ports()
        self._say(self.plan.story(self._arrivals), *moved)
        await self._start_house(ports)
        with self._live() as live:
            await self._play(WITHOUT, ports, live)
            await self._play(WITH, ports, live)
        self._say(verdict(self.board), *self._slow_warnings())
        await self._keep(ports)

    def as_json(self) -> dict[str, Any]:
        """Both reports and what the machine made of them."""
        return {
            "engine": self.plan.engine,
            "trace_speed": self.plan.speed,
            "runs": {
                name: report.as_json() | {"machine": self.speed_notes.get(name, {})}
                for name, report in self.board.reports.items()
            },
        }

    async def _start_house(self, ports: Ports) -> None:
        config = write_config(self._folder, ports)
        self.stage.start("sidecar", [sys.executable, "-m", "admission.cli", "serve", "--config", str(config)])
        if self.plan.dashboard:
            command = [sys.executable, "-m", "admission.cli", "dashboard", "--port", str(ports.dashboard)]
            self.stage.start("dashboard", [*command, "--control", control_address(self._folder)])
        await self.stage.wait_for_port("sidecar", ports.grpc)
        if self.plan.dashboard:
            await self.stage.wait_for_port("dashboard", ports.dashboard)
            self._say(f"Dashboard: http://127.0.0.1:{ports.dashboard}  (moves in the second run)")

    async def _play(self, name: str, ports: Ports, live: Live | None) -> None:
        async with self._engine(name, ports) as port:
            load = Load(LoadConfig(port=port), self._arrivals)
            running = asyncio.create_task(load.run())
            try:
                await self._watch(name, load, running, live)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            self.speed_notes[name] = await asyncio.to_thread(_machine, port, self.board.reports[name])

    @contextlib.asynccontextmanager
    async def _engine(self, name: str, ports: Ports) -> AsyncIterator[int]:
        """The stand-in of one run: the same engine and noise, with the middleware or without."""
        protected = name == WITH
        port = ports.engine if protected else ports.bare
        command = [sys.executable, "-m", "admission.simulation.standin", "--port", str(port)]
        command += ["--engine", self.plan.engine]
        environment = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_SERVICE_NAME": "standin"}
        if protected:
            command += ["--middleware", MIDDLEWARE]
            command += ["--otlp-traces-endpoint", f"http://127.0.0.1:{ports.otlp_grpc}"]
            environment["TIDEGATE_ADDRESS"] = f"127.0.0.1:{ports.grpc}"
        self.board.notes[name] = "starts"
        self.stage.start(name, command, environment)
        await self.stage.wait_for_port(name, port)
        yield port
        if not (protected and self.plan.keep):
            await self.stage.stop(name)

    async def _watch(
        self, name: str, load: Load, running: asyncio.Task[LoadReport], live: Live | None
    ) -> None:
        ticks = 0
        while not running.done():
            await asyncio.wait([running], timeout=_REFRESH_S)
            self.stage.check(name)
            self.stage.check("sidecar")
            self._note(name, load, load.report(), live)
            ticks += 1
            if live is None and not self._quiet and ticks % _LINES_EVERY == 0:
                self._say(self.board.line(name))
        self._note(name, load, running.result(), live)
        self.board.notes[name] = "done"

    def _note(self, name: str, load: Load, report: LoadReport, live: Live | None) -> None:
        self.board.reports[name] = report
        self.board.notes[name] = (
            f"{min(report.seconds, self.plan.length_s):.0f} of {self.plan.length_s:.0f} s, {load.in_flight} open"
        )
        if live is not None:
            live.update(self.board.table("The same load, twice"), refresh=True)

    @contextlib.contextmanager
    def _live(self) -> Iterator[Live | None]:
        """A table that moves where a terminal shows it; else lines, and the table once at the end."""
        if self._quiet:
            yield None
        elif self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                yield live
                live.update(self.board.table("The same load, twice"), refresh=True)
        else:
            yield None
            self._console.print(self.board.table("The same load, twice"))

    def _slow_warnings(self) -> list[str]:
        return [
            f"This machine was busy ({name}): the engine model lost {note['lag_s']:.1f} s and the client was up to "
            f"{note['client_late_s']:.2f} s late, so these figures are worse than they should be."
            for name, note in self.speed_notes.items()
            if note["lag_s"] > TOO_SLOW_RATIO * self.plan.length_s or note["client_late_s"] > 0.25
        ]

    async def _keep(self, ports: Ports) -> None:
        if self.plan.keep:
            self._say(
                f"Kept running: http://127.0.0.1:{ports.dashboard}, engine on {ports.engine}. Ctrl-c ends it."
            )
            await asyncio.Event().wait()

    def _say(self, *lines: str) -> None:
        if not self._quiet:
            for line in lines:
                self._console.print(line)


def _machine(port: int, report: LoadReport) -> dict[str, float]:
    """What the run cost, from the stand-in's own account."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/standin", timeout=5) as answer:
        state = json.load(answer)
    return {
        "engine_cpu_s": state["cpu_s"],
        "engine_busy_s": state["busy_s"],
        "lag_s": state["lag_s"],
        "client_late_s": report.late_max_s,
    }


def perform(plan: DemoPlan, *, as_json: bool = False) -> int:
    """Run the demo to its end or to a signal; returns the exit code (130 after a signal).

    Raises:
        StageError: a process did not come up.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-", ignore_cleanup_errors=True) as folder:
        show = Show(plan, Path(folder), quiet=as_json)
        finished = asyncio.run(_until_signal(show))
    if not finished:
        sys.stderr.write("Stopped; nothing is left running.\n")
    elif as_json:
        sys.stdout.write(json.dumps(show.as_json(), indent=2) + "\n")
    return 0 if finished else 130


async def _until_signal(show: Show) -> bool:
    """True when the show ended by itself. Whatever happens, nothing is left running."""
    playing = asyncio.create_task(show.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, playing.cancel)
    atexit.register(show.stage.kill)
    await asyncio.wait([playing])
    # Here and not in the task that signals cancel: a second ctrl-c must not cut the taking down short.
    await show.stage.stop()
    if playing.cancelled():
        return False
    playing.result()
    return True
