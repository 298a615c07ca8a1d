"""`tidegate agent`: sample the GPUs of this node and send them to a sidecar elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from admission.commands.output import ExitCode, JsonOption, fail, print_json


def agent(
    endpoint: Annotated[str, typer.Argument(help="host:port of an OTLP/gRPC receiver.")] = "127.0.0.1:4317",
    interval: Annotated[float, typer.Option("--interval", help="Seconds between samples.")] = 1.0,
    host: Annotated[str, typer.Option("--host", help="Name of this node. Default: its own.")] = "",
    token: Annotated[
        str, typer.Option("--token", envvar="TIDEGATE_TOKEN", help="With the telemetry role.")
    ] = "",
    ca: Annotated[str, typer.Option("--ca", envvar="TIDEGATE_TLS_CA", help="Authority file: use TLS.")] = "",
    cert: Annotated[
        str, typer.Option("--cert", envvar="TIDEGATE_TLS_CERT", help="Own certificate file.")
    ] = "",
    key: Annotated[str, typer.Option("--key", envvar="TIDEGATE_TLS_KEY", help="Own key file.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="Plain text to another machine.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show what the GPUs report, send nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Sample GPUs through NVML and send OTLP metrics until SIGTERM or ctrl-c."""
    if once:
        raise typer.Exit(_show(as_json))
    from telemetry.agent import AgentConfig, run

    try:
        config = AgentConfig(
            endpoint=endpoint,
            interval_s=interval,
            host=host,
            token=token,
            ca=ca,
            cert=cert,
            key=key,
            insecure=insecure,
        )
    except ValueError as error:
        fail(str(error), ExitCode.USAGE)
    raise typer.Exit(run(config))


def _show(as_json: bool) -> int:
    from telemetry.agent import once as look

    if not as_json:
        return look()[0]
    code, found = look(write=lambda _: None)
    print_json(found)
    return code
