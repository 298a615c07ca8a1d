"""`tidegate demo`: the same overload without and with Tidegate, on this machine."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from admission.commands.output import ExitCode, JsonOption, fail


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="About 45 s instead of two minutes.")] = False,
    dashboard: Annotated[bool, typer.Option(help="Serve the dashboard beside it.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running until ctrl-c.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Overload a realistic engine stand-in with a real trace, without and with Tidegate, side by side."""
    if importlib.util.find_spec("httptools") is None:
        fail("the demo needs its extra: pip install 'tidegate[simulate,dashboard]'", ExitCode.CANNOT_START)
    if dashboard and importlib.util.find_spec("streamlit") is None:
        fail(
            "the dashboard needs its extra: pip install 'tidegate[dashboard]', or --no-dashboard",
            ExitCode.CANNOT_START,
        )
    from admission.simulation.demo.plan import FULL_S, QUICK_S, DemoPlan
    from admission.simulation.demo.show import perform
    from admission.simulation.demo.stage import StageError

    plan = DemoPlan(length_s=QUICK_S if quick else FULL_S, dashboard=dashboard, keep=keep)
    try:
        code = perform(plan, as_json=as_json)
    except StageError as error:
        fail(str(error), ExitCode.CANNOT_START)
    raise typer.Exit(code)
