"""Which target does a ticket belong to? By its name, else by globs over the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

_CACHE = 4096
_NAMES = 64


class Routes:
    """Target by (name, model). What belongs to none is counted by name, for at most 64 names."""

    def __init__(self, models: Mapping[str, Sequence[str]]) -> None:
        self._models = dict(models)
        self._cache: dict[tuple[str, str], str | None] = {}
        self.unknown: dict[str, int] = {}
        """Tickets that no target claims, by what they named; "(others)" has the rest."""
        self.unknown_total = 0

    def models(self, target: str) -> Sequence[str]:
        """The globs of a target."""
        return self._models[target]

    def find(self, target: str, model: str) -> str | None:
        """The target's name; None when no target claims the ticket, which is counted."""
        try:
            found = self._cache[target, model]
        except KeyError:
            found = self._remember(target, model)
        if found is None:
            self._count(f"target {target}" if target else f"model {model or '(none)'}")
        return found

    def _remember(self, target: str, model: str) -> str | None:
        if len(self._cache) >= _CACHE:
            self._cache.clear()
        found = self._cache[target, model] = self._search(target, model)
        return found

    def _search(self, target: str, model: str) -> str | None:
        if target:
            return target if target in self._models else None
        for name, globs in self._models.items():
            if not model or any(fnmatchcase(model, glob) for glob in globs):
                return name
        return None

    def _count(self, name: str) -> None:
        self.unknown_total += 1
        if name not in self.unknown and len(self.unknown) >= _NAMES:
            name = "(others)"
        self.unknown[name] = self.unknown.get(name, 0) + 1
