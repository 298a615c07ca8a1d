"""Whose spans are these, and what does a finished request look like in them? One module for each emitter."""

from __future__ import annotations

import pkgutil
from enum import IntEnum
from importlib import import_module
from typing import Protocol

from admission.core.model import Sample
from admission.wire.otlp_pb2 import Span


class Rank(IntEnum):
    """Where an emitter stands: the nearer to the engine, the better its durations."""

    ENGINE = 1
    EDGE = 2
    CLIENT = 3


class UnusableSpan(ValueError):  # noqa: N818 - it says what the span is
    """A request's span whose numbers cannot be true; the message says which."""


class Emitter(Protocol):
    """How are the spans of one kind of server told from others, and read?"""

    name: str
    """The word in status, counters and samples."""
    rank: Rank

    def claims(self, scope: str) -> bool:
        """Whether spans of this instrumentation scope may be its own."""

    def wants(self, span: Span) -> bool:
        """Whether to read the span; looks at name and kind only, since most spans are not a request's."""

    def read(self, span: Span, at: float) -> Sample | None:
        """The finished request that the span tells; None when it only adds to what a later span tells.

        `at` is the receiver's clock at arrival, in monotonic seconds. Raises UnusableSpan.
        """


def discover() -> list[Emitter]:
    """A new emitter of every module of this package that has one, the nearest to the engine first."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    found: list[Emitter] = [module.emitter() for module in modules if hasattr(module, "emitter")]
    return sorted(found, key=lambda emitter: emitter.rank)
