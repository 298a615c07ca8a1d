"""Keeps the client's own faults from its host: they are counted, logged once per place, and go no further."""

from __future__ import annotations

import logging
from types import TracebackType

from admission.client.counters import Counters

_LOG = logging.getLogger("tidegate.client")


class Containment:
    """`with containment.at("place"):` swallows Exception, never cancellation or exit."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._guards: dict[str, _Guard] = {}

    def at(self, place: str) -> _Guard:
        """The guard of a place; `place` is a literal in our code."""
        guard = self._guards.get(place)
        if guard is None:
            guard = self._guards[place] = _Guard(place, self._counters)
        return guard


class _Guard:
    __slots__ = ("_counters", "_place")

    def __init__(self, place: str, counters: Counters) -> None:
        self._place, self._counters = place, counters

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        self._counters.count("contained", self._place)
        if self._counters.values["contained", self._place] == 1:
            _LOG.error(
                "tidegate: a fault of our own in %s was contained",
                self._place,
                exc_info=(kind, error, trace),  # type: ignore[arg-type]
            )
        return True
