"""`tidegate serve`: the sidecar itself."""

from __future__ import annotations

import typer

from admission.commands.output import ConfigOption, ExitCode, fail, loaded_or_exit


def serve(config: ConfigOption = None) -> None:
    """Run the sidecar until SIGTERM or ctrl-c. SIGHUP reads the file again. Works without any configuration."""
    loaded = loaded_or_exit(config)
    from admission.app import CannotStartError, run

    try:
        run(loaded)
    except CannotStartError as error:
        fail(str(error), ExitCode.CANNOT_START)
    raise typer.Exit(int(ExitCode.OK))
