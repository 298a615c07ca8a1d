"""Which target does a span belong to?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from telemetry.config import TargetBinding

MAX_CACHED = 1024


class Binder:
    """Targets by the resource attributes of their spans, else by model; the only target takes all."""

    def __init__(self, targets: Sequence[TargetBinding]) -> None:
        self._bound = sorted((t for t in targets if t.spans), key=lambda t: -len(t.spans))
        self._by_model = [t for t in targets if not t.spans]
        self._only = targets[0].name if len(targets) == 1 and not self._bound else ""
        self._cache: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.keys = frozenset(key for target in targets for key in target.spans) | {
            "service.name",
            "service.instance.id",
            "model",
        }
        """The resource attributes that matter here."""

    def bind(self, sender: str, resource: Mapping[str, str], model: str) -> str:
        """The target's name, empty for none. `sender` stands for the resource in the cache."""
        if self._only:
            return self._only
        key = (sender, model)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._find(resource, model)
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return found

    def _find(self, resource: Mapping[str, str], model: str) -> str:
        told = {**resource, "model": model or resource.get("model", "")}
        for target in self._bound:
            if all(fnmatchcase(told.get(key, ""), glob) for key, glob in target.spans.items()):
                return target.name
        return self._find_by_model(told["model"])

    def _find_by_model(self, model: str) -> str:
        """A model without a name fits nobody, and `*` only where nobody else could be meant."""
        exact = [t for t in self._by_model if model and any(_fits(glob, model) for glob in t.models)]
        rest = [t for t in self._by_model if "*" in t.models]
        fitting = exact or (rest if len(self._by_model) == 1 and not self._bound else [])
        return fitting[0].name if len(fitting) == 1 else ""


def _fits(glob: str, model: str) -> bool:
    return glob != "*" and fnmatchcase(model, glob)
