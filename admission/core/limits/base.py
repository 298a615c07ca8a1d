"""How much may be in flight? The question that every limit algorithm answers, once a second."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeVar

from admission.core.model import Why

C = TypeVar("C", bound=type)


@dataclass(slots=True)
class Load:
    """What a limit sees at its tick. Tokens, except where the name says otherwise."""

    used: int = 0
    in_flight: int = 0
    untracked: int = 0
    refused_for_limit: bool = False
    """Since the last tick the limit alone kept a ticket waiting."""
    refused_for_other: bool = False
    """Since the last tick something else did: prefill, KV, slots."""
    excess: float | None = None
    """1 - TPOT/SLO: over 0 is room, under 0 congestion, None no signal."""
    lasting: float | None = None
    """The same over all that ended lately, the last cut's cause included; None: too few."""
    excess_why: Why = field(default_factory=Why)
    congested: Why | None = None
    """Set at KV critical, a preemption, or when the engine itself said busy."""
    kv_hot: bool = False
    room: float = 1.0
    """Share of the limit that the most urgent class that was refused may use."""
    mean_cost: float = 512.0
    capacity: float | None = None
    """KV that the engine has, None when it does not say."""
    frozen: bool = False


class Limit(Protocol):
    """A limit in tokens that moves. It is told the time and never asks for it."""

    name: str
    adapts: bool
    """Whether it may begin from what was saved or from what runs already; a number chosen by hand may not."""

    @property
    def value(self) -> int:
        """The limit now, at least 1."""

    @property
    def requests(self) -> int | None:
        """How many requests may be in flight, whatever they cost; None: tokens alone are counted."""

    @property
    def good(self) -> int:
        """The value to go on from after a restart: while it climbs back, the one it climbs to."""

    def on_tick(self, load: Load, now: float) -> Why | None:
        """Move, or not; the reason when it moved."""

    def override(self, value: int) -> None:
        """Go on from this value."""

    def reconfigure(self, config: Any) -> None:
        """Go on with other settings of the same algorithm."""

    def after_outage(self) -> None:
        """The engine is back: start low, and climb to the last good value in steps."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A discovered algorithm: its name, its configuration's class, its constructor."""

    name: str
    config: type[Any]
    build: Callable[[Any], Limit]


_registered: dict[str, Algorithm] = {}


def algorithm(name: str, config: type[Any]) -> Callable[[C], C]:
    """Decorator: makes a class known as the limit algorithm of that name."""

    def register(cls: C) -> C:
        _registered[name] = Algorithm(name, config, cls)
        return cls

    return register


def discovered() -> dict[str, Algorithm]:
    """Every algorithm in this folder, by name; a new one is a new file and nothing else."""
    package = import_module("admission.core.limits")
    for module in pkgutil.iter_modules(package.__path__, "admission.core.limits."):
        import_module(module.name)
    return dict(sorted(_registered.items()))
