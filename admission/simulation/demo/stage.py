"""Child processes, each in a process group of its own, and their certain end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_S = 4.0
_POLL_S = 0.05
_TAIL_BYTES = 2_000
_FOREIGN = ("TIDEGATE_", "OTEL_")
"""Settings of the user's own installation, which must not steer ours."""


class StageError(RuntimeError):
    """A process that did not come up; the message carries the end of its log."""


class Stage:
    """Starts processes and stops them. Logs go to files under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Start a process and return its id. Starting and noting it cannot be interrupted by a signal's callback."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**ours, **(environment or {})},
                start_new_session=True,
            )
        self._running[name] = process
        return process.pid

    def pid(self, name: str) -> int:
        """The id of a running process, which is its group's."""
        return self._running[name].pid

    async def wait_for_port(self, name: str, port: int, timeout_s: float = 30.0) -> None:
        """Wait until a process listens on 127.0.0.1:port.

        Raises:
            StageError: it ended, or did not listen in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                self._check(name, deadline)
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                return

    def check(self, name: str) -> None:
        """Raise StageError when a process has ended by itself."""
        self._check(name, float("inf"))

    def _check(self, name: str, deadline: float) -> None:
        ended = self._running[name].poll()
        if ended is not None:
            raise StageError(f"{name} ended with {ended}:\n{self.tail(name)}")
        if time.monotonic() > deadline:
            raise StageError(f"{name} does not listen:\n{self.tail(name)}")

    def tail(self, name: str) -> str:
        """The end of a process's log."""
        return (self._folder / f"{name}.log").read_bytes()[-_TAIL_BYTES:].decode(errors="replace")

    async def stop(self, *names: str) -> None:
        """End processes by SIGTERM to their groups, by SIGKILL after 4 s; without names all of them."""
        ending = {
            name: self._running[name] for name in names or tuple(self._running) if name in self._running
        }
        groups = list(ending.values())
        for process in groups:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while any(map(_alive, groups)) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells of a group's end
            await asyncio.sleep(_POLL_S)
        _kill(groups)
        for name in ending:
            self._running.pop(name, None)

    def kill(self) -> None:
        """End everything at once, without a chance to tidy up."""
        _kill(list(self._running.values()))
        self._running.clear()


def _kill(groups: list[subprocess.Popen[bytes]]) -> None:
    for process in groups:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group's id is its leader's; it stays taken while any member lives, so no stranger can be hit.
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        process.poll()


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """Whether any member of the group lives. The leader is reaped here, its children by whoever adopts them."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
