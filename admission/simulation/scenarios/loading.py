"""Reads families of scenarios from YAML: those in the package, or a file of one's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from admission.config.bind import WRONG, Binder
from admission.config.document import parse_document
from admission.config.load import read_text
from admission.config.mistakes import BadConfigurationError
from admission.simulation.scenarios.scenario import Scenario

_COMMON = "common"
"""A place for anchors (`&name`) that scenarios merge (`<<: *name`); never read itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One file: scenarios that ask the same question."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    about: str
    scenarios: dict[str, Scenario] = field(default_factory=dict)


def load_family(path: Path) -> dict[str, Scenario]:
    """The scenarios of a file, by name.

    Raises:
        BadConfigurationError: every mistake, each with its file, line and path.
    """
    return _family(read_text(path), path.name).scenarios


@functools.cache
def families() -> Mapping[str, Family]:
    """What comes with the package, by the name of the file."""
    folder = files("admission.simulation.scenarios") / "data"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    return {file.name.removesuffix(".yaml"): _family(file.read_text("utf-8"), file.name) for file in found}


@functools.cache
def scenarios() -> Mapping[str, Scenario]:
    """Every scenario that comes with the package, by name."""
    return {name: one for family in families().values() for name, one in family.scenarios.items()}


def scenario(name: str) -> Scenario:
    """One of them.

    Raises:
        ValueError: no such name; the message lists those that exist.
    """
    found = scenarios().get(name)
    if found is None:
        raise ValueError(f"no scenario {name!r}; there are {', '.join(scenarios())}")
    return found


def _family(text: str, file: str) -> Family:
    document = parse_document(text, file)
    raw: dict[str, Any] = {key: value for key, value in document.value.items() if key != _COMMON}
    binder = Binder(document)
    bound: Family = binder.bind(Family, raw, ())
    for name, one in bound.scenarios.items() if bound is not WRONG else ():
        for key in ("name", "family"):
            if getattr(one, key):
                binder.wrong(("scenarios", name, key), "is given by where it stands", getattr(one, key))
    if binder.mistakes:
        raise BadConfigurationError(binder.mistakes)
    named = {
        name: replace(one, name=name, family=file.removesuffix(".yaml"))
        for name, one in bound.scenarios.items()
    }
    return replace(bound, scenarios=named)
