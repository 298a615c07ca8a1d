"""`tidegate config check|show|reload`: what is configured, where each value comes from, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from admission.commands.output import (
    ConfigOption,
    ControlOption,
    ExitCode,
    JsonOption,
    console,
    fail,
    loaded_or_exit,
    print_json,
)

if TYPE_CHECKING:
    from admission.config.effective import Setting


def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check file and environment: every mistake at once. Exit code 0 when they can be used, else 1."""
    import os

    from admission.config.load import load
    from admission.config.mistakes import BadConfigurationError

    try:
        settings = load(config, os.environ).settings
    except BadConfigurationError as error:
        _report_mistakes(error, as_json)
        raise typer.Exit(int(ExitCode.PROBLEM)) from None
    modes = {target.name: target.controller.mode.name.lower() for target in settings.targets}
    if as_json:
        print_json({"ok": True, "targets": modes})
        return
    console().print(
        "The configuration can be used. " + ", ".join(f"{name}: {mode}" for name, mode in modes.items())
    )


def _report_mistakes(error: object, as_json: bool) -> None:
    import dataclasses

    from admission.config.mistakes import BadConfigurationError

    assert isinstance(error, BadConfigurationError)  # noqa: S101 - narrows a type
    if as_json:
        print_json({"ok": False, "mistakes": [dataclasses.asdict(mistake) for mistake in error.mistakes]})
        return
    for mistake in error.mistakes:
        console().print(f"[red]wrong[/red] {_escape(str(mistake))}")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def show(
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all/--changed", help="Defaults too, or only what you set.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Show every setting in force, and whether it is a default, from the file or from the environment."""
    import dataclasses

    from admission.config.effective import effective

    settings = [item for item in effective(loaded_or_exit(config)) if everything or item.source != "default"]
    if as_json:
        print_json([dataclasses.asdict(item) for item in settings])
        return
    _print_settings(settings)


def _print_settings(settings: list[Setting]) -> None:
    import json

    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "source"):
        table.add_column(heading, overflow="fold")
    for item in settings:
        origin = (
            item.source if item.source == "default" else f"[bold]{_escape(item.where or item.source)}[/bold]"
        )
        table.add_row(item.path, _escape(json.dumps(item.value, default=str)), origin)
    console().print(table)


def reload(control: ControlOption = "", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Make a running sidecar read its file again. A bad file changes nothing."""
    from google.protobuf.json_format import MessageToDict

    from admission.commands.sidecar import TIMEOUT_S, address_of, bearer, control_service
    from admission.v1.control_service_pb2 import ReloadRequest

    with control_service(address_of(control, config)) as service:
        answer = service.Reload(ReloadRequest(), timeout=TIMEOUT_S, metadata=bearer())
    if as_json:
        print_json(
            MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        )
    elif not answer.applied:
        fail("nothing was changed:\n" + "\n".join(f"  {line}" for line in answer.errors), ExitCode.PROBLEM)
    else:
        for line in answer.changed:
            console().print(f"changed {line}", markup=False)
        for line in answer.needs_restart:
            console().print(f"needs a restart {line}", markup=False)
    raise typer.Exit(0 if answer.applied else int(ExitCode.PROBLEM))
