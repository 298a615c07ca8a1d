"""`tidegate dashboard`: the page for people, beside a running sidecar."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from admission.commands.output import ConfigOption, ControlOption, ExitCode, fail
from admission.commands.sidecar import address_of


def dashboard(
    port: Annotated[int, typer.Option("--port", help="Where the page is served.", min=1, max=65535)] = 8501,
    address: Annotated[str, typer.Option("--address", help="Interface to listen on.")] = "127.0.0.1",
    control: ControlOption = "",
    config: ConfigOption = None,
) -> None:
    """Serve the dashboard until ctrl-c."""
    if importlib.util.find_spec("streamlit") is None:
        fail("the dashboard needs its extra: pip install 'tidegate[dashboard]'", ExitCode.CANNOT_START)
    arguments = command_line(port, address, address_of(control, config))
    os.execv(arguments[0], arguments)  # noqa: S606 - our own interpreter; signals then reach the page itself


def command_line(port: int, address: str, control: str) -> list[str]:
    """The program to become."""
    spec = importlib.util.find_spec("dashboard")
    folder = Path((spec and spec.origin) or "dashboard/__init__.py").parent
    options = {
        "server.port": port,
        "server.address": address,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(folder / "app.py"),
        *flags,
        "--",
        "--control",
        control,
    ]
