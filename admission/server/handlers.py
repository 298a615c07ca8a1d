"""Turns methods into gRPC handlers: corrupt protobuf and missing roles are answered before a method runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from admission.runtime.settings import Role

Check = Callable[[Any, Role], str]
"""(context, role) -> why not; empty when the caller may."""


class Corrupt:
    """Stands for a message that could not be parsed."""


CORRUPT = Corrupt()


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its kind ("unary", "server_stream", "both_stream"), messages, role and function."""

    kind: str
    request: type[Message]
    response: type[Message]
    role: Role
    call: Callable[..., Any]


def handler_of(service: str, methods: dict[str, Method], check: Check | None) -> grpc.GenericRpcHandler:
    """The handler of a whole service. Without `check` everybody may call it."""
    return grpc.method_handlers_generic_handler(
        service, {name: _handler(method, check) for name, method in methods.items()}
    )


def _handler(method: Method, check: Check | None) -> grpc.RpcMethodHandler[Any, Any]:
    make = {
        "unary": (grpc.unary_unary_rpc_method_handler, _unary),
        "server_stream": (grpc.unary_stream_rpc_method_handler, _server_stream),
        "both_stream": (grpc.stream_stream_rpc_method_handler, _both_stream),
    }
    kind, wrap = make[method.kind]
    handler: grpc.RpcMethodHandler[Any, Any] = kind(
        wrap(method, check), _parser(method.request), method.response.SerializeToString
    )
    return handler


def _parser(message: type[Message]) -> Callable[[bytes], Message | Corrupt]:
    def parse(data: bytes) -> Message | Corrupt:
        try:
            return message.FromString(data)
        except DecodeError:
            return CORRUPT

    return parse


async def refuse_corrupt(context: Any) -> None:
    """Ends the call of a sender of garbage."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not valid protobuf of this method")


async def _admit(context: Any, request: object, role: Role, check: Check | None) -> None:
    if check is not None:
        why = check(context, role)
        if why:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
    if request is CORRUPT:
        await refuse_corrupt(context)


def _unary(method: Method, check: Check | None) -> Callable[[Any, Any], Awaitable[Any]]:
    call, role = method.call, method.role

    async def handle(request: Any, context: Any) -> Any:
        if check is not None or request is CORRUPT:
            await _admit(context, request, role, check)
        return await call(request, context)

    return handle


def _server_stream(method: Method, check: Check | None) -> Callable[[Any, Any], Awaitable[None]]:
    async def handle(request: Any, context: Any) -> None:
        await _admit(context, request, method.role, check)
        await method.call(request, context)

    return handle


def _both_stream(method: Method, check: Check | None) -> Callable[[Any, Any], Awaitable[None]]:
    async def handle(_requests: Any, context: Any) -> None:
        await _admit(context, None, method.role, check)
        await method.call(context)

    return handle
