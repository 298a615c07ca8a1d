"""ControlService: mode, drain, limit override and reload, for operators on the control listener."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import grpc

from admission.runtime.host import Host
from admission.runtime.settings import Role
from admission.server.handlers import Method
from admission.server.translate import seconds
from admission.v1 import control_service_pb2 as wire
from admission.vocabulary import Mode

LOG = logging.getLogger(__name__)
_HOLD_S = 3600.0
_MAX_LIMIT = 10**12


class ReloadOutcome(Protocol):
    """What did a reload do?"""

    @property
    def applied(self) -> bool:
        """False: nothing changed, `errors` says why."""

    @property
    def errors(self) -> Sequence[str]:
        """One line each: path, what is wrong, what is expected."""

    @property
    def changed(self) -> Sequence[str]:
        """Settings that changed."""

    @property
    def needs_restart(self) -> Sequence[str]:
        """Settings that changed in the file and take a restart."""


Reload = Callable[[], Awaitable[ReloadOutcome]]


class Control:
    """Changes what the sidecar does, and logs who asked for it."""

    def __init__(self, host: Host, reload: Reload | None) -> None:
        self._host = host
        self._reload = reload

    def methods(self) -> dict[str, Method]:
        """The service's methods, all for operators."""
        role = Role.OPERATOR
        return {
            "SetMode": Method("unary", wire.SetModeRequest, wire.SetModeResponse, role, self._set_mode),
            "SetDrain": Method("unary", wire.SetDrainRequest, wire.SetDrainResponse, role, self._set_drain),
            "SetLimit": Method("unary", wire.SetLimitRequest, wire.SetLimitResponse, role, self._set_limit),
            "Reload": Method("unary", wire.ReloadRequest, wire.ReloadResponse, role, self._reload_now),
        }

    async def _targets(self, name: str, context: Any) -> tuple[str, ...]:
        if not name:
            return self._host.targets
        if name not in self._host.targets:
            known = ", ".join(self._host.targets)
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no target {name!r}; there are: {known}")
        return (name,)

    async def _set_mode(self, request: wire.SetModeRequest, context: Any) -> wire.SetModeResponse:
        targets = await self._targets(request.target, context)
        try:
            mode = Mode(int(request.mode))
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "mode: expected SHADOW, ENFORCE or OFF")
            raise
        for target in targets:
            self._host.set_mode(target, mode)
        _log("mode_set", targets, context, mode=mode.name.lower())
        return wire.SetModeResponse(targets=targets)

    async def _set_drain(self, request: wire.SetDrainRequest, context: Any) -> wire.SetDrainResponse:
        targets = await self._targets(request.target, context)
        for target in targets:
            self._host.set_drain(target, request.drain)
        _log("drain_set", targets, context, drain=request.drain)
        return wire.SetDrainResponse(targets=targets)

    async def _set_limit(self, request: wire.SetLimitRequest, context: Any) -> wire.SetLimitResponse:
        targets = await self._targets(request.target, context)
        if request.limit_tokens > _MAX_LIMIT:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"limit_tokens: at most {_MAX_LIMIT}")
        limit = request.limit_tokens or None
        hold_s = seconds(request.hold_for) if request.HasField("hold_for") else _HOLD_S
        for target in targets:
            self._host.set_limit(target, limit, hold_s if limit else None)
        _log("limit_set", targets, context, limit_tokens=limit, hold_s=hold_s)
        return wire.SetLimitResponse(targets=targets)

    async def _reload_now(self, _request: wire.ReloadRequest, context: Any) -> wire.ReloadResponse:
        if self._reload is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this sidecar has no configuration file")
            return wire.ReloadResponse()
        outcome = await self._reload()
        _log("reloaded", (), context, applied=outcome.applied)
        return wire.ReloadResponse(
            applied=outcome.applied,
            errors=outcome.errors,
            changed=outcome.changed,
            needs_restart=outcome.needs_restart,
        )


def _log(event: str, targets: Sequence[str], context: Any, **facts: object) -> None:
    LOG.info(event, extra={"targets": list(targets), "peer": context.peer(), **facts})
