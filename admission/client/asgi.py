"""Admission control as a pure ASGI class: `--middleware admission.client.asgi.AdmissionMiddleware`."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from admission.client.aio import AsyncClient, Permit
from admission.client.answers import own_fault
from admission.client.calls import Answer
from admission.client.errors import SettingsError
from admission.client.inbox import Inbox, Message, Receive
from admission.client.meter import Meter, Send
from admission.client.refusal import body_of, headers_of, status_of
from admission.client.request import Facts, read_json, read_multipart
from admission.client.routes import Routes
from admission.client.settings import ClientSettings
from admission.client.skim import skim_json
from admission.client.tickets import TicketMaker
from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Outcome

_LOG = logging.getLogger("tidegate.client")
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_UNWATCHED_S = 0.02
_PARSE_AT_ONCE_BYTES = 256 * 1024
_LONGEST_NUMBER = 18


class AdmissionMiddleware:
    """Guards the inference routes of an ASGI application; everything else passes untouched.

    Settings come from keyword arguments (see ClientSettings), else from TIDEGATE_ environment variables. Wrong
    settings fail the application's start-up with one line; an application without lifespan gets SettingsError.
    """

    def __init__(self, app: App, **settings: Any) -> None:
        self.app = app
        self._problem: SettingsError | None = None
        try:
            chosen = ClientSettings.from_environment(**settings)
        except SettingsError as error:
            _LOG.critical("%s", error)
            self._problem, chosen = error, ClientSettings()
        self._settings = chosen
        self._routes = Routes(chosen.route_list, chosen.prefix)
        self._tickets = TicketMaker(chosen)
        self.client = AsyncClient(chosen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if self._problem is not None:
            await self._refuse_to_start(scope, receive, send)
            return
        route = self._routes.route(scope) if scope["type"] == "http" else ""
        if route and not self.client.passing_all:
            await self._guard(route, scope, receive, send)
        elif self._settings.metrics_path and self._asks_for_metrics(scope):
            await _respond(
                send,
                200,
                [(b"content-type", b"text/plain; version=0.0.4")],
                self.client.metrics_text().encode(),
            )
        else:
            await self.app(scope, receive, send)

    async def _guard(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        inbox = Inbox(receive, self._settings.max_body_bytes)
        permit: Permit | None = None
        try:
            with self.client.containment.at("request"):
                permit = await self._ask(route, scope, inbox)
            if permit is None:
                await self._run_unasked(scope, inbox, send)
            elif permit.pending:
                permit.finish(Outcome.ABORTED)
            elif permit.admitted:
                await self._run(permit, scope, inbox, send)
            else:
                await self._refuse(permit.answer, scope, send)
        finally:
            inbox.close()
            if permit is not None:  # without a final message the caller had left; else this changes nothing
                permit.finish(Outcome.ABORTED)

    async def _run(self, permit: Permit, scope: Scope, inbox: Inbox, send: Send) -> None:
        answered = functools.partial(self._tickets.answered, scope["headers"])
        meter = Meter(send, permit, inbox, self.client.containment, answered)
        try:
            await self.app(scope, inbox.receive, meter.send)
        except BaseException as error:
            meter.failed(error)
            raise
        meter.returned()

    async def _run_unasked(self, scope: Scope, inbox: Inbox, send: Send) -> None:
        """The caller left, or we failed to ask: the fail policy rules the latter."""
        if inbox.disconnected or self._settings.fail == "open":
            await self.app(scope, inbox.receive, send)
        else:
            await self._refuse(own_fault(refuse=True), scope, send)

    async def _ask(self, route: str, scope: Scope, inbox: Inbox) -> Permit | None:
        """A decided permit, or a pending one when the caller left while it waited; None: the caller left before."""
        facts = Facts()
        with self.client.containment.at("facts"):
            facts = await self._facts(scope, inbox)
        if inbox.disconnected:
            return None
        permit = self.client.ask(self._ticket(route, scope, facts))
        try:
            await self._wait(permit, inbox)
        except BaseException:
            permit.finish(Outcome.ABORTED)
            raise
        return permit

    async def _wait(self, permit: Permit, inbox: Inbox) -> None:
        """Most decisions come at once; from then on the caller's leaving is watched for."""
        if permit.pending and not inbox.disconnected:
            await asyncio.wait({permit.future()}, timeout=_UNWATCHED_S)
        while permit.pending and not inbox.disconnected:
            watched = inbox.next_message()
            futures = {permit.future()} if watched is None else {permit.future(), watched}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)

    def _ticket(self, route: str, scope: Scope, facts: Facts) -> Ticket:
        with self.client.containment.at("ticket"):
            return self._tickets.ticket(route, scope["headers"], facts)
        return Ticket(target=self._settings.target, endpoint=route)

    async def _facts(self, scope: Scope, inbox: Inbox) -> Facts:
        headers = dict(scope["headers"])
        if headers.get(b"content-type", b"").startswith(b"multipart/"):
            self.client.count("unread_bodies", "multipart")
            return read_multipart(await inbox.start())
        too_long = _stated(headers.get(b"content-length", b"")) > self._settings.max_body_bytes
        body = None if too_long else await inbox.body()
        if body is None:
            self.client.count("unread_bodies", "length")
            return Facts()
        try:
            return read_json(body) if len(body) <= _PARSE_AT_ONCE_BYTES else await skim_json(body)
        except (ValueError, RecursionError):
            self.client.count("unread_bodies", "not_json")
            return Facts()

    async def _refuse(self, answer: Answer, scope: Scope, send: Send) -> None:
        names = {name for name, _ in scope["headers"]}
        status = status_of(answer, has_credentials=bool(names & {b"authorization", b"x-api-key"}))
        await _respond(send, status, headers_of(answer, status), body_of(answer, status, scope["path"]))

    def _asks_for_metrics(self, scope: Scope) -> bool:
        return (
            scope["type"] == "http"
            and scope.get("method") == "GET"
            and scope["path"] == self._settings.metrics_path
        )

    async def _refuse_to_start(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._problem is not None  # noqa: S101 - the caller has looked
        if scope["type"] != "lifespan":
            raise self._problem
        await receive()
        await send({"type": "lifespan.startup.failed", "message": str(self._problem)})


def _stated(length: bytes) -> float:
    """Bytes by the Content-Length header; 0 when it states none. Python refuses numbers of thousands of digits."""
    digits = length.lstrip(b"0")
    if not digits.isdigit():
        return 0
    return int(digits) if len(digits) <= _LONGEST_NUMBER else float("inf")


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    message: Message = {"type": "http.response.body", "body": body}
    await send(message)
