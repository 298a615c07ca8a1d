"""What does a world need of anything that admits? The product's controller has it; so has every peer."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

from admission.core.model import Completion, Event, Reading, Sample, Ticket, TicketId

B = TypeVar("B", bound=Callable[..., Any])


class Look(NamedTuple):
    """What a policy shows of itself, in its own unit (KV tokens or requests); `limit` is infinite where nothing limits."""

    limit: float
    used: float
    in_flight: int
    queued: int


class Policy(Protocol):
    """Every input takes `now` in seconds, never less than before, and returns events; timers are data."""

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """A ticket asks to run."""

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """Its caller left, whether it waited or ran."""

    def first_token(self, id: TicketId, now: float) -> list[Event]:
        """The first output token came."""

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """New output chunks: (id, how many, seconds since the newest came)."""

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """An admitted ticket ended."""

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """The engine said something of itself, or did not answer."""

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """A span told of a finished request."""

    def wake(self, now: float) -> list[Event]:
        """Time has passed."""

    def next_wakeup(self) -> float | None:
        """When to call `wake` next; None: never by time alone."""

    def look(self, now: float) -> Look:
        """What it shows of itself."""


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A discovered policy: its name, its configuration's class, and what builds it of (configuration, seed, now)."""

    name: str
    config: type[Any]
    build: Callable[[Any, int, float], Policy]
    default: Callable[[], Any]
    """Its configuration when nobody says otherwise."""


_registered: dict[str, PolicyKind] = {}


def policy(name: str, config: type[Any], default: Callable[[], Any] | None = None) -> Callable[[B], B]:
    """Decorator: makes a builder of (configuration, seed, now) known as the policy of that name."""

    def register(build: B) -> B:
        _registered[name] = PolicyKind(name, config, build, default or config)
        return build

    return register


def discovered() -> dict[str, PolicyKind]:
    """Every policy in this folder, by name; a new one is a new file and nothing else."""
    package = import_module("admission.simulation.policies")
    for module in pkgutil.iter_modules(package.__path__, "admission.simulation.policies."):
        import_module(module.name)
    return dict(sorted(_registered.items()))
