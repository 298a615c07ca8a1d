"""`tidegate mode`, `drain`, `limit` and `config reload`: change what a running sidecar does."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from admission.commands.output import (
    ConfigOption,
    ControlOption,
    ExitCode,
    JsonOption,
    TargetOption,
    console,
    fail,
    print_json,
)
from admission.commands.sidecar import TIMEOUT_S, address_of, bearer, control_service


class ModeName(StrEnum):
    """The modes by name."""

    SHADOW = "shadow"
    ENFORCE = "enforce"
    OFF = "off"


def mode(
    mode: Annotated[ModeName, typer.Argument(help="shadow records, enforce acts, off lets everything pass.")],
    target: TargetOption = "",
    control: ControlOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Switch a target's mode until the next restart."""
    from admission.v1.control_service_pb2 import SetModeRequest
    from admission.v1.types_pb2 import Mode

    with control_service(address_of(control, config)) as service:
        answer = service.SetMode(
            SetModeRequest(target=target, mode=Mode.Value(f"MODE_{mode.name}")),
            timeout=TIMEOUT_S,
            metadata=bearer(),
        )
    _say(list(answer.targets), f"mode {mode.value}", as_json)


def drain(
    stop: Annotated[bool, typer.Option("--stop", help="Admit again.")] = False,
    target: TargetOption = "",
    control: ControlOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop admitting to a target; what is in flight finishes."""
    from admission.v1.control_service_pb2 import SetDrainRequest

    with control_service(address_of(control, config)) as service:
        answer = service.SetDrain(
            SetDrainRequest(target=target, drain=not stop), timeout=TIMEOUT_S, metadata=bearer()
        )
    _say(list(answer.targets), "admitting" if stop else "draining", as_json)


def limit(
    tokens: Annotated[str, typer.Argument(help="KV tokens to hold the limit at, or `auto` for the law.")],
    hold_for: Annotated[
        float, typer.Option("--for", help="Seconds until the law takes over again.", min=1)
    ] = 3600,
    target: TargetOption = "",
    control: ControlOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the limit at a value for a time, or give it back to the law."""
    from admission.v1.control_service_pb2 import SetLimitRequest

    value = _tokens(tokens)
    request = SetLimitRequest(target=target, limit_tokens=value)
    if value:
        request.hold_for.FromMicroseconds(int(hold_for * 1e6))
    with control_service(address_of(control, config)) as service:
        answer = service.SetLimit(request, timeout=TIMEOUT_S, metadata=bearer())
    _say(
        list(answer.targets),
        f"limit held at {value:,} tokens for {hold_for:g} s" if value else "limit moves",
        as_json,
    )


def _tokens(text: str) -> int:
    if text == "auto":
        return 0
    plain = text.replace("_", "").replace(",", "")
    if not plain.isdecimal() or not 0 < int(plain) < 1 << 63:
        fail(f"expected a number of tokens or auto, not {text!r}", ExitCode.USAGE)
    return int(plain)


def _say(targets: list[str], what: str, as_json: bool) -> None:
    if as_json:
        print_json({"targets": targets, "done": what})
        return
    for name in targets:
        console().print(f"{name}: {what}", markup=False)
