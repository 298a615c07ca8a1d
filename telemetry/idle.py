"""HTTP connections that ask for nothing are closed, so that they never keep out those that do."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

CERTIFIED = "certified"
"""In the state of a request: False when callers are asked for a certificate and this one showed none."""


class CalmProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection without a request under way for `idle_s`, and the oldest of too many such.

    Uvicorn's own bounds do neither: its time runs between two requests only, and its limit on connections refuses
    the newest, whoever that is.
    """

    idle_s: ClassVar[float] = 5.0
    max_idle: ClassVar[int] = 256
    since = 0.0
    """When the connection came, on the loop's clock."""
    _look: asyncio.TimerHandle | None = None
    _looked_at: object = None

    @property
    def idle(self) -> bool:
        """Whether no request is under way; one whose header is not complete is none yet."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connects."""
        super().connection_made(transport)
        self.since = self.loop.time()
        certified = not self.config.ssl_ca_certs or bool(transport.get_extra_info("peercert"))
        self.app_state = {**self.app_state, CERTIFIED: certified}
        idle = [each for each in self.connections if isinstance(each, CalmProtocol) and each.idle]
        if len(idle) > self.max_idle:
            min(idle, key=lambda each: each.since).transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._look:
            self._look.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._looked_at = self.cycle
        self._look = self.loop.call_later(self.idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """Idle at two looks, with no request between them."""
        if self.idle and self.cycle is self._looked_at:
            self.transport.close()
        else:
            self._watch()
