"""Who decides in front of a simulated engine: one file per policy, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from admission.core.settings import ControllerConfig
from admission.core.slo import SloConfig
from admission.simulation.policies.base import Look, Policy, PolicyKind, discovered
from admission.vocabulary import PriorityClass

__all__ = ["Look", "Policy", "PolicySpec", "build", "kind", "names"]


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by name, with an instance of its configuration's class; None: its defaults."""

    name: str
    config: Any = None


def names() -> list[str]:
    """All policies."""
    return list(discovered())


def kind(name: str) -> PolicyKind:
    """The policy of that name.

    Raises:
        ValueError: there is none; the message lists those that exist.
    """
    found = discovered().get(name)
    if found is None:
        raise ValueError(f"no policy {name!r}; there are {', '.join(names())}")
    return found


def build(
    spec: PolicySpec, *, seed: int, now: float, slos: Mapping[PriorityClass, SloConfig] | None = None
) -> Policy:
    """Make a policy; `slos` replaces the targets that its configuration names, class by class.

    Raises:
        ValueError: no such policy.
        TypeError: a configuration that is not its own.
    """
    found = kind(spec.name)
    config = found.default() if spec.config is None else spec.config
    if not isinstance(config, found.config):
        raise TypeError(f"{spec.name} takes a {found.config.__name__}, not a {type(config).__name__}")
    return found.build(config if slos is None else _with_slos(config, slos), seed, now)


def _with_slos(config: Any, slos: Mapping[PriorityClass, SloConfig]) -> Any:
    if isinstance(config, ControllerConfig):
        classes = dict(config.classes)
        for priority, slo in slos.items():
            classes[priority] = replace(classes[priority], slo=slo)
        return replace(config, classes=classes)
    if any(field.name == "slos" for field in fields(config)):
        return replace(config, slos={**config.slos, **slos})
    return config
