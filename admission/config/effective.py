"""Every setting in force with its value and where it came from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from admission.config.bind import fields_of, label_of
from admission.config.document import Document, Source
from admission.config.load import Loaded
from admission.config.mistakes import Path
from admission.config.schema import GIVEN_APART, SECTIONS, Settings

Name = tuple[str, ...]
"""A setting by name: `("targets", "default", "mode")`. A target keeps its name when the list is reordered."""

_SECRET = ("telemetry", "tokens")
_USER_INFO = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force. `where` is a file and line or the name of a variable; empty for a default."""

    path: str
    value: Any
    source: Source
    where: str = ""


def effective(loaded: Loaded) -> list[Setting]:
    """Every setting, in the order of the schema; secrets are masked."""
    return [_setting(name, place, value, loaded.document) for name, place, value in _leaves(loaded.settings)]


def values(settings: Settings) -> dict[Name, Any]:
    """Name to value, unmasked: what a reload compares."""
    return {name: value for name, _, value in _leaves(settings)}


def _leaves(settings: Settings) -> Iterator[tuple[Name, Path, Any]]:
    for name in SECTIONS:
        yield from _walk((name,), (name,), getattr(settings, name), GIVEN_APART.get(name, {}))
    yield ("state_dir",), ("state_dir",), settings.state_dir
    for at, target in enumerate(settings.targets):
        for part in (target.binding, target.controller):
            yield from _walk(("targets", target.name), ("targets", at), part, {})


def _walk(name: Name, place: Path, value: Any, without: Collection[str]) -> Iterator[tuple[Name, Path, Any]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner: Mapping[Any, Any] = {
            key: getattr(value, key) for key in fields_of(type(value)) if key not in without
        }
    elif isinstance(value, Mapping) and any(dataclasses.is_dataclass(item) for item in value.values()):
        inner = value
    else:
        yield name, place, _plain(value)
        return
    for key, item in inner.items():
        label = label_of(key)
        yield from _walk((*name, label), (*place, label), item, ())


def _plain(value: Any) -> Any:
    """The value as the user would write it."""
    if isinstance(value, Enum):
        return label_of(value)
    if isinstance(value, tuple | list | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {label_of(key): _plain(item) for key, item in value.items()}
    return value


def _setting(name: Name, place: Path, value: Any, document: Document) -> Setting:
    origin = document.origins.get(place)
    if place[:2] == _SECRET and value:
        value = f"({len(value)} hidden)"
    if isinstance(value, list):
        value = [_USER_INFO.sub("//***@", item) if isinstance(item, str) else item for item in value]
    if origin is None:
        return Setting(".".join(name), value, "default")
    return Setting(".".join(name), value, origin.source, origin.where)
