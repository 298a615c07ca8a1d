"""`tidegate`: the command line."""

from __future__ import annotations

import sys

EPILOG = (
    "Exit codes: 0 done; 1 done, and something is wrong; 2 the command line is wrong; 3 no sidecar answers; "
    "4 the sidecar refused; 5 the configuration is wrong; 6 cannot start."
)


def main() -> None:
    """Runs one command. The bare install has the client only and says so."""
    try:
        from admission.commands.registry import application  # noqa: PLC0415 - the bare install lacks typer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"admission", "telemetry", "dashboard"}:
            raise
        sys.stderr.write(f"tidegate: commands need {error.name}: pip install 'tidegate[server]'\n")
        sys.exit(6)
    application(EPILOG)()


if __name__ == "__main__":
    main()
