"""Runs the command as users do, and asks it what users ask."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc

READY_S = 20.0


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Serving:
    """One sidecar process with its files under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tidegate.yaml"
        self.state = folder / "state"
        self.grpc, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.process: subprocess.Popen[bytes] | None = None
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run"), "XDG_STATE_HOME": str(folder)}
        self.environ.pop("TIDEGATE_CONFIG", None)
        self.write("")

    def write(self, more: str) -> None:
        """The file: the ports of this test, and more."""
        ports = f'listen: {{grpc: ["{self.grpc}"], http: "{self.http}"}}\n'
        state = f"state_dir: {self.state}\n" if "state_dir" not in more else ""
        quiet = 'telemetry: {otlp_grpc: "", otlp_http: "", nvml: false}\n'
        self.config.write_text(ports + quiet + state + more)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Starts the process, without waiting."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "admission.cli", "serve", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                env=self.environ,
            )
        return self.process

    def start(self) -> None:
        """Starts, and waits until it is ready."""
        process = self.spawn()
        until = time.monotonic() + READY_S
        while self.get("/readyz")[0] != 200:
            assert process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)
        self._settle(until)

    def _settle(self, until: float) -> None:
        """Waits until it answers promptly: while its loop is late it keeps no books, by design."""
        prompt = 0
        while prompt < 10 and time.monotonic() < until:
            asked = time.monotonic()
            self.get("/healthz")
            prompt = prompt + 1 if time.monotonic() - asked < 0.03 else 0
            time.sleep(0.05)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command of the same user with the same file."""
        command = [sys.executable, "-m", "admission.cli", *arguments]
        environ = {**self.environ, "TIDEGATE_CONFIG": str(self.config)}
        return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=30, check=False)

    def status(self) -> dict[str, Any]:
        """What `tidegate status --json` says."""
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    def get(self, path: str, accept: str = "") -> tuple[int, str]:
        """Status and body of a GET; status 0 when nobody listens."""
        request = urllib.request.Request(f"http://{self.http}{path}", headers={"accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def channel(self) -> grpc.Channel:
        """A client's channel."""
        return grpc.insecure_channel(self.grpc)

    def log(self) -> str:
        """Everything that it said."""
        return (self.folder / "log").read_text()

    def wait_for_log(self, words: str, within_s: float = 10.0) -> None:
        """Until it said the words."""
        until = time.monotonic() + within_s
        while words not in self.log():
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """Sends a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def terminate(self, within_s: float = 15.0) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(within_s)

    def kill(self) -> None:
        """Whatever happened, nothing stays."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
