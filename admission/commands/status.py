"""`tidegate status`: what a running sidecar sees and does, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from admission.commands.output import ConfigOption, ControlOption, JsonOption, console, print_json
from admission.commands.sidecar import TIMEOUT_S, address_of, bearer, monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.v1.monitor_service_pb2 import Snapshot


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until ctrl-c.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between refreshes.", min=0.2)] = 1.0,
    control: ControlOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show mode, limit, queue, KV, GPUs, percentiles against the SLO, refusals, changes and what is missing."""
    address = address_of(control, config)
    if watch:
        _watch(address, interval, as_json)
    else:
        _once(address, as_json)


def _once(address: str, as_json: bool) -> None:
    from admission.v1.monitor_service_pb2 import GetSnapshotRequest

    with monitor(address) as service:
        snapshot = service.GetSnapshot(GetSnapshotRequest(), timeout=TIMEOUT_S, metadata=bearer()).snapshot
    if as_json:
        print_json(_plain(snapshot))
        return
    from admission.commands.screen import screen

    console().print(screen(snapshot))


def _plain(snapshot: Snapshot) -> object:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(
        snapshot, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _watch(address: str, interval: float, as_json: bool) -> None:
    from admission.v1.monitor_service_pb2 import WatchSnapshotsRequest

    request = WatchSnapshotsRequest()
    request.interval.FromMicroseconds(int(interval * 1e6))
    try:
        with monitor(address) as service:
            snapshots = (answer.snapshot for answer in service.WatchSnapshots(request, metadata=bearer()))
            _stream_json(snapshots) if as_json else _live(snapshots)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _stream_json(snapshots: Iterator[Snapshot]) -> None:
    """One JSON document a line."""
    import json
    import sys

    for snapshot in snapshots:
        sys.stdout.write(json.dumps(_plain(snapshot)) + "\n")
        sys.stdout.flush()


def _live(snapshots: Iterator[Snapshot]) -> None:
    from rich.live import Live

    from admission.commands.screen import screen

    with Live(console=console(), auto_refresh=False, screen=True) as live:
        for snapshot in snapshots:
            live.update(screen(snapshot), refresh=True)
