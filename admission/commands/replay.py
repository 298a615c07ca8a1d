"""`tidegate replay`: run a recorded journal through the core again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from admission.commands.output import ExitCode, JsonOption, console, print_json

if TYPE_CHECKING:
    from admission.runtime.replay import ReplayReport

SHOWN = 20


def replay(
    journal: Annotated[Path, typer.Argument(help="A journal folder, or one segment of it.", exists=True)],
    as_json: JsonOption = False,
) -> None:
    """Decide every recorded input again. Exit code 0 when each decision is the recorded one, else 1."""
    import dataclasses

    from admission.runtime.replay import replay as run

    with console(stderr=True).status("replaying"):
        report = run(journal)
    if as_json:
        print_json({**dataclasses.asdict(report), "same": report.same})
    else:
        _print(report)
    raise typer.Exit(int(ExitCode.OK if report.same else ExitCode.PROBLEM))


def _print(report: ReplayReport) -> None:
    out = console()
    out.print(f"{report.segments} segments, {report.inputs:,} inputs, {report.events:,} events")
    for error in report.errors:
        out.print(f"unreadable: {error}", markup=False)
    for one in report.differences[:SHOWN]:
        out.print(f"{one.segment} input {one.index} {one.op} of {one.target} at {one.now:.3f}", markup=False)
        out.print(f"  recorded {one.recorded}; replayed {one.replayed}", markup=False)
    if report.different > SHOWN:
        out.print(f"... {report.different - SHOWN} more differ")
    out.print(_verdict(report))


def _verdict(report: ReplayReport) -> str:
    if report.different:
        return f"[red]{report.different:,} inputs are decided otherwise[/red]"
    return "[red]not everything could be read[/red]" if report.errors else "[green]same decisions[/green]"
