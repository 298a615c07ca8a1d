"""From an HTTP request to the ticket that asks for it."""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable

from admission.client.request import Facts
from admission.client.settings import ClientSettings
from admission.v1.types_pb2 import Ticket

_MAX_HEADER = 128
_MAX_KEYS = 4096


class TicketMaker:
    """Builds tickets under fixed settings. API keys leave it only as a keyed hash.

    A key is a tenant once the application has served it: an invented one, which costs nothing, stays anonymous.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._target = settings.target
        self._class = settings.class_header.lower().encode()
        self._tenant = settings.tenant_header.lower().encode()
        self._secret = settings.tenant_secret.encode()
        self._served: OrderedDict[str, None] = OrderedDict()

    def ticket(self, route: str, headers: Iterable[tuple[bytes, bytes]], facts: Facts) -> Ticket:
        """The ticket of one request."""
        named = dict(headers)
        return Ticket(
            target=self._target,
            endpoint=route,
            model=facts.model,
            stream=facts.stream,
            max_tokens=facts.max_tokens,
            n=facts.n,
            prompt_bytes=facts.prompt_bytes,
            prompt_tokens=facts.prompt_tokens,
            priority_class=_text(named.get(self._class)).lower(),
            tenant=self._tenant_of(named),
            request_id=_text(named.get(b"x-request-id")),
            traceparent=_text(named.get(b"traceparent")),
        )

    def answered(self, headers: Iterable[tuple[bytes, bytes]], status: int) -> None:
        """The application answered a request. 401 and 403 disown its key; other errors say nothing about it."""
        tenant = self._key_of(dict(headers)) if self._secret else ""
        if not tenant:
            return
        if status in {401, 403}:
            self._served.pop(tenant, None)
        elif status < 400:
            self._served[tenant] = None
            self._served.move_to_end(tenant)
            if len(self._served) > _MAX_KEYS:
                self._served.popitem(last=False)

    def _tenant_of(self, headers: dict[bytes, bytes]) -> str:
        if self._tenant and self._tenant in headers:
            return _text(headers[self._tenant])
        tenant = self._key_of(headers)
        if tenant not in self._served:
            return ""
        self._served.move_to_end(tenant)
        return tenant

    def _key_of(self, headers: dict[bytes, bytes]) -> str:
        """The tenant that the API key stands for; empty without a key."""
        key = headers.get(b"authorization") or headers.get(b"x-api-key")
        if not key or not self._secret:
            return ""
        key = key.removeprefix(b"Bearer ").strip()
        return "key-" + hmac.new(self._secret, key, hashlib.sha256).hexdigest()[:16]


def _text(value: bytes | None) -> str:
    return value.decode("latin-1")[:_MAX_HEADER] if value else ""
