"""May this ticket run at all? Three answers (None, Hold, Refuse) and three moments (check, commit, settle)."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

from admission.core.model import Completion, GateView, Reading, Ticket, Why
from admission.vocabulary import Reason, SignalKind

C = TypeVar("C", bound=type)


class Hold(NamedTuple):
    """Not yet. Time or a reading will change it."""

    reason: Reason
    why: Why


class Refuse(NamedTuple):
    """No, and when coming back may help."""

    reason: Reason
    why: Why
    retry_after_s: float


class Gate(Protocol):
    """A gate changes only in `observe`, `on_tick`, `commit` and `settle`; `check` may repeat."""

    name: str
    charges: bool
    """Does it want to know of admissions and ends?"""
    concerns: frozenset[SignalKind]
    """The readings that it wants to know of."""
    timed: bool
    """May time alone open it? Then it is asked `next_at`."""

    def check(self, ticket: Ticket, *, idle: bool, now: float) -> Hold | Refuse | None:
        """None lets it pass. `idle`: nothing of ours is on the engine."""

    def commit(self, ticket: Ticket, now: float) -> None:
        """The ticket was admitted."""

    def settle(self, ticket: Ticket, completion: Completion, now: float) -> None:
        """The ticket ended."""

    def observe(self, reading: Reading, now: float) -> bool:
        """Take a reading in. True when the gate's state changed."""

    def on_tick(self, now: float) -> bool:
        """A second passed. True when the gate's state changed."""

    def on_engine_start(self, now: float) -> None:
        """The engine came up, or came up again: what was learned of it is void."""

    def reconfigure(self, config: Any) -> None:
        """Go on with other settings."""

    def next_at(self) -> float | None:
        """When time alone may open it; None: only a tick or a reading does."""

    def view(self) -> GateView:
        """What to show."""


@dataclass(frozen=True, slots=True)
class GateKind:
    """A discovered gate: its name, its configuration's class, its constructor."""

    name: str
    config: type[Any]
    build: Callable[[Any], Gate]


_registered: dict[str, GateKind] = {}


def gate(name: str, config: type[Any]) -> Callable[[C], C]:
    """Decorator: makes a class known as the gate of that name."""

    def register(cls: C) -> C:
        _registered[name] = GateKind(name, config, cls)
        return cls

    return register


def discovered() -> dict[str, GateKind]:
    """Every gate in this folder, by name; a new one is a new file and a configuration."""
    package = import_module("admission.core.gates")
    for module in pkgutil.iter_modules(package.__path__, "admission.core.gates."):
        import_module(module.name)
    return dict(sorted(_registered.items()))


class QuietGate:
    """What a gate does at moments that do not concern it: nothing."""

    charges = False
    timed = False
    concerns: frozenset[SignalKind] = frozenset()

    def commit(self, ticket: Ticket, now: float) -> None:
        """Nothing to charge."""

    def settle(self, ticket: Ticket, completion: Completion, now: float) -> None:
        """Nothing to settle."""

    def observe(self, reading: Reading, now: float) -> bool:
        """No reading concerns it."""
        return False

    def on_tick(self, now: float) -> bool:
        """Time does not change it."""
        return False

    def on_engine_start(self, now: float) -> None:
        """It learns nothing of the engine."""

    def next_at(self) -> float | None:
        """It waits for no instant of its own."""
        return None
