"""The compiled NVML stand-in, and processes that sample it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nvml_stub.stub import StubFile, build, compiler, environment

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in with every function."""
    if compiler() is None:
        pytest.skip("needs a C compiler to build the NVML stand-in")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(tmp_path: Path) -> StubFile:
    """What the stand-in answers: one GPU of 24 GiB with 20 GiB used, until the test says otherwise."""
    return StubFile(
        tmp_path / "gpus",
        **{"0.uuid": "GPU-aaaa", "0.used": 20 << 30, "0.util": 50, "0.power": 350500, "0.temp": 61},
    )


class Watch:
    """A process that samples, and the lines it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def until(self, wanted: Callable[[dict[str, Any]], bool], within_s: float = 20.0) -> dict[str, Any]:
        """The first line from now on that is wanted."""
        end = time.monotonic() + within_s
        while True:
            line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            if wanted(line):
                return line

    def reading(self, kind: str, value: float | None = None, member: str = "GPU-aaaa") -> dict[str, Any]:
        """The next reading of this kind, with this value if one is given."""
        return self.until(
            lambda line: (
                line.get("reading") == kind
                and line["member"] == member
                and (value is None or line["value"] == value)
            )
        )

    def during(self, duration_s: float) -> list[dict[str, Any]]:
        """Everything printed in the next while."""
        end = time.monotonic() + duration_s
        lines = []
        while (left_s := end - time.monotonic()) > 0:
            try:
                lines.append(self._lines.get(timeout=left_s))
            except queue.Empty:
                break
        return lines


@pytest.fixture
def watch(library: Path, gpus: StubFile) -> Iterator[Callable[..., Watch]]:
    """Starts the receiver on the stand-in, or on another build of it."""
    started: list[Watch] = []

    def start(of: Path | None = library) -> Watch:
        env = environment(of or Path("/nonexistent/none"), gpus.path)
        script = Path(__file__).with_name("watch.py")
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**env, "PYTHONPATH": str(ROOT)},
        )
        started.append(Watch(process))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait(timeout=10)
        assert one.process.stdout is not None
        one.process.stdout.close()
