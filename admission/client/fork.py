"""What a forked child must not share with its parent; and whether gRPC can work in this process at all."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from admission.client.errors import ForkedError


class Forgetful(Protocol):
    """What do you have that belongs to the parent?"""

    def forget_parent(self) -> object:
        """Called in the child. Starts afresh, and returns what it had: it is kept, for to free it can harm the parent."""


class _Process:
    """Facts about this process. To free a loop of the parent's, for one, would unregister its wake-ups there."""

    def __init__(self) -> None:
        self.clients: WeakSet[Forgetful] = WeakSet()
        self.kept: list[object] = []
        self.grpc_started = False
        self.grpc_lost = False

    def in_child(self) -> None:
        self.grpc_lost = self.grpc_lost or self.grpc_started
        self.kept += [client.forget_parent() for client in list(self.clients)]


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.in_child)


def tell_of_forks(client: Forgetful) -> None:
    """From now on the client hears of it when it finds itself in a child; it may be freed all the same."""
    _PROCESS.clients.add(client)


def start_grpc() -> None:
    """Before gRPC is used. ForkedError where it had started before the fork: its threads do not come along."""
    if _PROCESS.grpc_lost:
        raise ForkedError
    _PROCESS.grpc_started = True
