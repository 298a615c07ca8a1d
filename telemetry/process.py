"""Runs the pipeline: in a process of its own that is started again when it dies, or on the caller's loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from typing import Any

from telemetry.config import OtlpTls, TargetBinding, TelemetryConfig
from telemetry.frames import Decoder, FrameError
from telemetry.guard import GuardedSink
from telemetry.link import TelemetrySink, TelemetryView
from telemetry.receivers.otlp_modules import check_otlp_modules

SLICE_BYTES = 8192
"""Read at each wake-up: some 40 samples, a millisecond or two of the admission loop."""
BACKOFF_S = (0.5, 10.0)
HEALTHY_S = 30.0
STOP_S = 3.0

log = logging.getLogger("telemetry")


class Telemetry:
    """What an application starts and stops. Everything arrives at `sink`, on the loop that called `start`."""

    def __init__(self, config: TelemetryConfig, sink: TelemetrySink) -> None:
        self._config = config
        self._sink = GuardedSink(sink)
        self._task: asyncio.Task[None] | None = None
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Of the telemetry process; None while there is none."""
        return self._child.pid if self._child is not None else None

    async def start(self) -> None:
        """Starts without waiting for the first measurement. Raises OtlpModulesError for a broken environment."""
        check_otlp_modules()
        if self._config.in_process:
            self._task = asyncio.create_task(_run_here(self._config, self._sink), name="telemetry")
            return
        self._child = Child(self._config, self._sink)
        self._task = asyncio.create_task(self._child.keep(), name="telemetry")

    async def stop(self) -> None:
        """Ends the pipeline, and the process with it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2 * STOP_S)
            self._task = None


class Child:
    """The telemetry process, its end of the link, and what is known of it while it is away."""

    def __init__(self, config: TelemetryConfig, sink: TelemetrySink) -> None:
        self._config = config
        self._sink = sink
        self._view = TelemetryView()
        self._viewed_at = time.monotonic()
        self._restarts = 0
        self._gone = asyncio.Event()
        self.pid: int | None = None

    def reading(self, target: str, reading: Any) -> None:
        """Passes it on."""
        self._sink.reading(target, reading)

    def sample(self, target: str, sample: Any) -> None:
        """Passes it on."""
        self._sink.sample(target, sample)

    def view(self, view: TelemetryView) -> None:
        """Passes it on, and remembers it for when the process is away."""
        view.counters["process_restarts"] = self._restarts
        self._view, self._viewed_at = view, time.monotonic()
        self._sink.view(view)

    async def keep(self) -> None:
        """Runs the process, again and again, until cancelled."""
        pause_s, longest_s = BACKOFF_S
        while True:
            started_at = time.monotonic()
            why = await self._run_once()
            if time.monotonic() - started_at > HEALTHY_S:
                pause_s = BACKOFF_S[0]
            text = f"the telemetry process {why}; it starts again in {pause_s:g} s"
            await self._show_absence(text, pause_s)
            self._restarts += 1
            pause_s = min(2 * pause_s, longest_s)

    async def _run_once(self) -> str:
        """One life of the process; the answer is how it ended."""
        ours, theirs = socket.socketpair()
        try:
            process = await self._spawn(theirs)
        except OSError as error:
            ours.close()
            return f"cannot be started ({error})"
        finally:
            theirs.close()
        try:
            return await self._follow(process, ours)
        finally:
            self.pid = None
            ours.close()
            await _end(process)

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "telemetry.process",
            str(theirs.fileno()),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
        self.pid = process.pid
        return process

    async def _follow(self, process: asyncio.subprocess.Process, ours: socket.socket) -> str:
        """Delivers what comes over the link until it breaks."""
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(encode_config(self._config))
                await process.stdin.drain()
            process.stdin.close()
        link = Link(ours, Decoder(self))
        link.open()
        try:
            await link.broken.wait()
        finally:
            link.close()
        if link.problem:
            return link.problem
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(process.wait(), STOP_S)
            return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"
        return "closed its link"

    async def _show_absence(self, text: str, for_s: float) -> None:
        """Meanwhile nothing is fresh, and people see why."""
        until = time.monotonic() + for_s
        while (left := until - time.monotonic()) > 0:
            self._sink.view(self._absent(text))
            await asyncio.sleep(min(left, 1.0))

    def _absent(self, text: str) -> TelemetryView:
        gone_s = time.monotonic() - self._viewed_at
        signals = [
            replace(s, state="stale", age_s=s.age_s + gone_s) if s.age_s is not None else s
            for s in self._view.signals
        ]
        gpus = [replace(gpu, age_s=gpu.age_s + gone_s) for gpu in self._view.gpus]
        warnings = [text, *self._view.warnings]
        return replace(self._view, signals=signals, gpus=gpus, ports={}, warnings=warnings)


class Link:
    """The admission loop's end: at most `SLICE_BYTES` each wake-up, so that a flood never stalls the loop."""

    def __init__(self, sock: socket.socket, decoder: Decoder) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder = decoder
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        self.problem = ""
        """Why we gave up on it; empty when the other side closed it."""

    def open(self) -> None:
        """Starts to deliver."""
        self._loop.add_reader(self._sock, self._read)

    def close(self) -> None:
        """Stops to deliver."""
        self._loop.remove_reader(self._sock)
        self.broken.set()

    def _read(self) -> None:
        try:
            data = self._sock.recv(SLICE_BYTES)
            if data:
                self._decoder.feed(data)
                return
        except BlockingIOError:
            return
        except FrameError as error:
            self.problem = f"sent garbage ({error})"
        except OSError:
            pass
        self.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asks, waits, insists. The closed link alone already ends it."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _run_here(config: TelemetryConfig, sink: TelemetrySink) -> None:
    from telemetry.pipeline import Pipeline  # noqa: PLC0415 - the other way round it loads in the child only

    while True:
        try:
            await Pipeline(config, sink).run()
        except Exception:
            log.exception("telemetry failed; it starts again in %g s", BACKOFF_S[1])
        await asyncio.sleep(BACKOFF_S[1])


def encode_config(config: TelemetryConfig) -> bytes:
    """For the process's standard input: tokens must not stand on a command line."""
    told = asdict(config)
    told["targets"] = [asdict(target) | {"spans": dict(target.spans)} for target in config.targets]
    return json.dumps(told).encode()


def decode_config(told: bytes) -> TelemetryConfig:
    """The configuration of `encode_config`. Raises ValueError or TypeError for anything else."""
    fields = json.loads(told)
    targets = [TargetBinding(**_tuples(target)) for target in fields.pop("targets")]
    tls = OtlpTls(**fields.pop("tls"))
    return TelemetryConfig(targets=tuple(targets), tls=tls, **_tuples(fields))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


async def _serve(config: TelemetryConfig, sock: socket.socket) -> None:
    """The child: works until its parent is gone or says so."""
    from telemetry.pipeline import Pipeline  # noqa: PLC0415 - heavy, and only the child's
    from telemetry.sender import LinkSender  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    sender = LinkSender(sock)
    loop.add_signal_handler(signal.SIGTERM, sender.closed.set)
    loop.add_reader(sock, lambda: _on_parent(sock, sender.closed.set))
    pipeline = loop.create_task(Pipeline(config, sender).run())
    closed = loop.create_task(_until(sender.closed.wait()))
    await asyncio.wait((pipeline, closed), return_when=asyncio.FIRST_COMPLETED)
    if pipeline.done():
        pipeline.result()
    pipeline.cancel()
    await asyncio.wait((pipeline,), timeout=STOP_S)


async def _until(ending: Coroutine[Any, Any, Any]) -> None:
    """Ends with the link, or when the parent died and somebody else holds its end of the link open."""
    parent = os.getppid()
    waiting = asyncio.ensure_future(ending)
    while os.getppid() == parent:
        done, _ = await asyncio.wait((waiting,), timeout=1.0)
        if done:
            return


def _on_parent(sock: socket.socket, close: Callable[[], None]) -> None:
    """The parent never writes: readable means gone."""
    with contextlib.suppress(BlockingIOError):
        try:
            if sock.recv(64):
                return
        except ConnectionError:
            pass
        asyncio.get_running_loop().remove_reader(sock)
        close()


def main(arguments: list[str]) -> int:
    """The process: the number of its link's descriptor as argument, the configuration on standard input."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # ctrl-c reaches the whole group; the parent ends us in order
    logging.basicConfig(level=logging.ERROR)  # warnings travel in the view, and the parent logs them
    config = decode_config(sys.stdin.buffer.read())
    with socket.socket(fileno=int(arguments[0])) as sock:
        asyncio.run(_serve(config, sock))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
