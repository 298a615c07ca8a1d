"""Every command by name."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from admission.commands.agent import agent
from admission.commands.calibrate import calibrate
from admission.commands.config import check, reload, show
from admission.commands.control import drain, limit, mode
from admission.commands.dashboard import dashboard
from admission.commands.demo import demo
from admission.commands.doctor import doctor
from admission.commands.replay import replay
from admission.commands.serve import serve
from admission.commands.simulate import simulate
from admission.commands.status import status

COMMANDS = (serve, doctor, agent, dashboard, demo, status, mode, drain, limit, replay, simulate, calibrate)


def application(epilog: str) -> typer.Typer:
    """The command line as a Typer application."""
    app = typer.Typer(
        name="tidegate",
        help="Adaptive admission control beside LLM inference servers.",
        epilog=epilog,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in COMMANDS:
        app.command(command.__name__)(command)
    configuration = typer.Typer(no_args_is_help=True, help="Check, show and reload the configuration.")
    for name, function in (("check", check), ("show", show), ("reload", reload)):
        configuration.command(name)(function)
    app.add_typer(configuration, name="config")
    app.callback()(_options)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidegate {installed_version()}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Adaptive admission control beside LLM inference servers."""


def installed_version() -> str:
    """The version of the installed distribution; `0+unknown` in a bare source tree."""
    try:
        return version("tidegate")
    except PackageNotFoundError:
        return "0+unknown"
