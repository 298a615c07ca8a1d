"""`tidegate doctor`: will this engine and this configuration work together, and what is missing?"""

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
    from admission.commands.probes import Check
    from admission.config.schema import Settings
    from admission.v1.monitor_service_pb2 import Snapshot


def doctor(
    url: Annotated[
        str, typer.Argument(help="Of the engine. Default: every metrics URL of the configuration.")
    ] = "",
    control: ControlOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an engine and this configuration. Exit code 0 when nothing stands in the way, else 1."""
    from admission.commands.probes import State
    from admission.config.schema import control_address

    settings = loaded_or_exit(config).settings
    checks = list(_checks(settings, _urls(url, settings), control or control_address(settings)))
    if as_json:
        import dataclasses

        print_json([dataclasses.asdict(check) for check in checks])
    else:
        _print(checks)
    if any(check.state is State.PROBLEM for check in checks):
        raise typer.Exit(int(ExitCode.PROBLEM))


def _urls(url: str, settings: Settings) -> list[str]:
    from admission.commands.probes import metrics_url

    if not url:
        return [each for target in settings.targets for each in target.binding.metrics_urls]
    try:
        return [metrics_url(url)]
    except ValueError as error:
        fail(str(error), ExitCode.USAGE)


def _checks(settings: Settings, urls: list[str], control: str) -> list[Check]:
    from admission.commands import probes
    from admission.config.schema import state_directory

    checks = [check for url in urls for check in _of_engine(url, several=len(urls) > 1)]
    running = _running(control)
    checks += probes.gpus()
    checks += probes.modes(settings)
    checks += probes.slos(settings)
    checks += probes.ports(settings, ours=running is not None)
    checks += probes.files(settings)
    checks.append(probes.state_dir(state_directory(settings)))
    if running is not None:
        checks += probes.signals(running)
    return checks


def _of_engine(url: str, *, several: bool) -> list[Check]:
    import dataclasses
    from urllib.parse import urlsplit

    from admission.commands import probes

    found = list(probes.reach(url))
    if all(check.state is not probes.State.PROBLEM for check in found):
        found += probes.engine(url)
    if not several:
        return found
    place = urlsplit(url).netloc.rpartition("@")[2]
    return [dataclasses.replace(check, group=f"{check.group} {place}") for check in found]


def _running(address: str) -> Snapshot | None:
    """What the sidecar at its control address sees; None when none answers."""
    import grpc

    from admission.commands.sidecar import bearer, channel
    from admission.v1.monitor_service_pb2 import GetSnapshotRequest
    from admission.v1.monitor_service_pb2_grpc import MonitorServiceStub

    with channel(address) as opened:
        try:
            answer = MonitorServiceStub(opened).GetSnapshot(
                GetSnapshotRequest(), timeout=1, metadata=bearer()
            )
        except grpc.RpcError:
            return None
    return answer.snapshot


def _print(checks: list[Check]) -> None:
    from rich.markup import escape
    from rich.table import Table

    colours = {"ok": "green", "note": "yellow", "problem": "red"}
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "", "found", "advice"):
        table.add_column(heading, overflow="fold")
    last = ""
    for check in checks:
        state = f"[{colours[check.state]}]{check.state}[/{colours[check.state]}]"
        group = "" if check.group == last else f"[bold]{check.group}[/bold]"
        table.add_row(group, escape(check.name), state, escape(check.found), escape(check.advice))
        last = check.group
    console().print(table)
