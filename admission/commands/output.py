"""How commands speak: text for people, JSON for programs, exit codes that mean something."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from admission.config.load import Loaded


class ExitCode(IntEnum):
    """Documented in `tidegate --help`."""

    OK = 0
    PROBLEM = 1
    """The command ran and found something wrong."""
    USAGE = 2
    """The command line cannot be understood."""
    NOT_RUNNING = 3
    """No sidecar answers."""
    REFUSED = 4
    """The sidecar said no: unknown target, not allowed, out of range."""
    BAD_CONFIGURATION = 5
    CANNOT_START = 6
    """An address is taken, or a needed package is not installed."""


PIPE_COLUMNS = 120
"""Where no terminal says how wide it is."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="TIDEGATE_CONFIG", help="YAML file. None: defaults.")
]
ControlOption = Annotated[
    str,
    typer.Option(
        "--control", envvar="TIDEGATE_CONTROL_ADDRESS", help="Control address. Default: as configured."
    ),
]
TargetOption = Annotated[str, typer.Option("--target", "-t", help="Name of a target. Default: every target.")]


def console(*, stderr: bool = False) -> Console:
    """Standard output (or error) with colour where a person reads it."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def fail(text: str, code: ExitCode) -> NoReturn:
    """One or more lines on standard error, and out."""
    sys.stderr.write(f"tidegate: {text}\n")
    raise typer.Exit(int(code))


def loaded_or_exit(config: Path | None) -> Loaded:
    """The configuration; every mistake is printed before leaving."""
    import os

    from admission.config.load import load
    from admission.config.mistakes import BadConfigurationError

    try:
        return load(config, os.environ)
    except BadConfigurationError as error:
        count = len(error.mistakes)
        lines = "\n".join(f"  {mistake}" for mistake in error.mistakes)
        fail(
            f"the configuration has {count} mistake{'s' * (count > 1)}:\n{lines}", ExitCode.BAD_CONFIGURATION
        )
