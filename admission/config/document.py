"""Reads YAML into plain values and remembers where each of them was written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from admission.config.mistakes import BadConfigurationError, Mistake, Path, shown, written

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
MAX_DEPTH = 32

Source = Literal["default", "file", "environment"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written, for messages and for `config show`."""

    source: Source
    where: str
    path: str


@dataclass(slots=True)
class Document:
    """Plain values (dict, list, str, int, float, bool, None) and the origin of each path."""

    value: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Origin] = field(default_factory=dict)

    def origin(self, path: Path) -> Origin | None:
        """The origin of the path, or of the nearest thing written around it, else beside it."""
        for length in range(len(path), 0, -1) or (0,):
            if found := self.origins.get(path[:length]):
                return found
        return next((origin for known, origin in self.origins.items() if known[:1] == path[:1] != ()), None)

    def mistake(self, path: Path, problem: str, value: object = ...) -> Mistake:
        """A mistake at the path, named as the user wrote it."""
        origin = self.origin(path)
        exact = self.origins.get(path)
        name = exact.path if exact else written(path)
        return Mistake(name, "" if value is ... else shown(value), problem, origin.where if origin else "")


class _Loader(yaml.SafeLoader):
    """YAML without surprises: `off` and `no` are words, `1:30` is text, dates are text."""


_FLOAT = r"[-+]?(?:[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+(?:\.|\.?[eE][-+]?[0-9]+)|\.inf)|\.nan"

_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def parse_scalar(text: str) -> Any:
    """A value as YAML reads it, for one environment variable. ValueError: not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError("not a YAML value") from error


def parse_document(text: str, name: str) -> Document:
    """Reads the text of one file; `name` is the file as shown. BadConfigurationError: not a YAML mapping."""
    if len(text) > MAX_BYTES:
        raise BadConfigurationError([Mistake("", "", f"larger than {MAX_BYTES} bytes", name)])
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return _Reader(loader, name).document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = f"not YAML: {error.problem or error.context}"
        raise BadConfigurationError([Mistake("", "", problem, f"{name}:{line}")]) from error
    except yaml.YAMLError as error:
        raise BadConfigurationError([Mistake("", "", f"not YAML: {error}", name)]) from error
    finally:
        loader.dispose()


class _Reader:
    """Walks the YAML nodes once: values, origins, and keys written twice."""

    def __init__(self, loader: _Loader, name: str) -> None:
        self._loader = loader
        self._name = name
        self._seen = 0
        self._mistakes: list[Mistake] = []
        self._document = Document()

    def document(self, node: yaml.Node | None) -> Document:
        value = self._read(node, ()) if node is not None else None
        if value is not None and not isinstance(value, dict):
            self._mistakes.append(self._document.mistake((), "expected keys and values", value))
        if self._mistakes:
            raise BadConfigurationError(self._mistakes)
        self._document.value = value or {}
        return self._document

    def _read(self, node: yaml.Node, path: Path) -> Any:
        self._seen += 1
        if self._seen > MAX_VALUES or len(path) > MAX_DEPTH:
            # A file of a few lines can name itself, or grow without end, through anchors.
            raise yaml.YAMLError(f"more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        line = node.start_mark.line + 1
        self._document.origins[path] = Origin("file", f"{self._name}:{line}", written(path))
        if isinstance(node, yaml.MappingNode):
            return dict(self._mapping(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key in sorted(key for key, count in counts.items() if count > 1 and key != "<<"):
            self._mistakes.append(self._document.mistake((*path, key), "written twice"))
        self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            yield name, self._read(value, (*path, name))
