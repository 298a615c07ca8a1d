"""Turns plain values into the components' own configuration classes, and collects every mistake on the way."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from admission.config.document import Document
from admission.config.mistakes import Mistake, Path, unknown_key

WRONG: Final = object()
"""What binding gives for a value that cannot be used; its mistake is recorded."""

_TAGS = ("algorithm", "kind", "type")
_EXPECTED = {
    "float_type": "expected a number",
    "int_type": "expected a whole number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "finite_number": "expected a finite number",
}


class Binder:
    """Builds dataclasses from one document. Read `mistakes` afterwards: values that had one came back as WRONG."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.mistakes: list[Mistake] = []

    def bind(self, kind: Any, raw: object, path: Path, base: object = None) -> Any:
        """The raw value as `kind`. What the user left out comes from `base`, an instance, or from the class."""
        if get_origin(kind) in {typing.Union, types.UnionType}:
            return self._union(get_args(kind), raw, path, base)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self._dataclass(kind, raw, path, base)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._enum(kind, raw, path)
        origin = get_origin(kind)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(get_args(kind), raw, path, base)
        if isinstance(origin, type) and origin in {tuple, list, Sequence, frozenset}:
            return self._sequence(origin, get_args(kind), raw, path)
        return self._leaf(kind, raw, path)

    def wrong(self, path: Path, problem: str, value: object = ...) -> Any:
        """Records a mistake and gives WRONG."""
        self.mistakes.append(self._document.mistake(path, problem, value))
        return WRONG

    def _dataclass(self, kind: Any, raw: object, path: Path, base: object) -> Any:
        if isinstance(raw, kind):
            return raw
        raw = {} if raw is None else raw
        if not isinstance(raw, Mapping):
            return self.wrong(path, "expected keys and values", raw)
        base = base if isinstance(base, kind) else None
        before = len(self.mistakes)
        given = self._fields(kind, raw, path, base)
        if len(self.mistakes) > before:
            return WRONG
        try:
            return kind(**given) if base is None else dataclasses.replace(typing.cast("Any", base), **given)
        except (ValueError, TypeError) as error:
            return self._refused(kind, str(error), raw, path)

    def _refused(self, kind: Any, message: str, raw: Mapping[str, object], path: Path) -> Any:
        """A class that checks itself may open each line with a field: `jitter must be under 1`, `key: needs cert`."""
        for line in message.splitlines():
            name, _, problem = line.partition(" ")
            steps = name.removesuffix(":").split(".")
            says = name.endswith(":") or problem.startswith(("must ", "needs ", "is "))
            if says and steps[0] in fields_of(kind):
                self.wrong((*path, *steps), problem, raw.get(steps[0], ...) if len(steps) == 1 else ...)
            else:
                self.wrong(path, line)
        return WRONG

    def _fields(self, kind: Any, raw: Mapping[str, object], path: Path, base: object) -> dict[str, Any]:
        fields = fields_of(kind)
        for key in [key for key in raw if key not in fields]:
            self.wrong((*path, key), unknown_key(key, fields), raw[key])
        given = {}
        for name, (hint, field) in fields.items():
            default = getattr(base, name) if base is not None else default_of(field)
            if name in raw:
                given[name] = self.bind(hint, raw[name], (*path, name), default)
            elif default is dataclasses.MISSING:
                self.wrong((*path, name), "required")
        return given

    def _union(self, kinds: tuple[Any, ...], raw: object, path: Path, base: object) -> Any:
        if raw is None and type(None) in kinds:
            return None
        choices = [kind for kind in kinds if kind is not type(None)]
        if len(choices) == 1:
            return self.bind(choices[0], raw, path, base)
        if not all(dataclasses.is_dataclass(kind) for kind in choices):
            return self._leaf(typing.Union[tuple(choices)], raw, path)  # noqa: UP007 - built at run time
        return self._tagged({tag_of(kind): kind for kind in choices}, raw, path, base)

    def _tagged(self, choices: dict[str, Any], raw: object, path: Path, base: object) -> Any:
        raw = {} if raw is None else raw
        if not isinstance(raw, Mapping):
            return self.wrong(path, "expected keys and values", raw)
        tag = next((name for name in _TAGS if name in raw), "")
        chosen: Any = choices.get(str(raw[tag])) if tag else type(base)
        if chosen not in choices.values():
            return self.wrong((*path, tag or _TAGS[0]), f"expected {one_of(choices)}", raw.get(tag, ...))
        rest = raw if tag in fields_of(chosen) else {key: raw[key] for key in raw if key != tag}
        return self._dataclass(chosen, rest, path, base)

    def _enum(self, kind: type[Enum], raw: object, path: Path) -> Any:
        if isinstance(raw, kind):
            return raw
        members = {label_of(member): member for member in kind}
        if isinstance(raw, str) and raw.lower() in members:
            return members[raw.lower()]
        return self.wrong(path, f"expected {one_of(members)}", raw)

    def _mapping(self, args: tuple[Any, ...], raw: object, path: Path, base: object) -> Any:
        raw = {} if raw is None else raw
        if not isinstance(raw, Mapping):
            return self.wrong(path, "expected keys and values", raw)
        before = len(self.mistakes)
        # A map with structured values has entries of its own, such as the classes: what is written changes them.
        result = dict(base) if isinstance(base, Mapping) and dataclasses.is_dataclass(args[1]) else {}
        for key, value in raw.items():
            bound = self.bind(args[0], key, (*path, key))
            if bound is not WRONG:
                result[bound] = self.bind(args[1], value, (*path, key), result.get(bound))
        return result if len(self.mistakes) == before else WRONG

    def _sequence(self, origin: type[Any], args: tuple[Any, ...], raw: object, path: Path) -> Any:
        if not isinstance(raw, list | tuple):
            return self.wrong(
                path, "expected a list, in brackets" if isinstance(raw, str) else "expected a list", raw
            )
        if origin is tuple and Ellipsis not in args and len(raw) != len(args):
            return self.wrong(path, f"expected {len(args)} values", raw)
        before = len(self.mistakes)
        kinds = args if origin is tuple and Ellipsis not in args else (args[0],) * len(raw)
        items = [
            self.bind(kind, item, (*path, at)) for at, (kind, item) in enumerate(zip(kinds, raw, strict=True))
        ]
        if len(self.mistakes) > before:
            return WRONG
        return items if origin in {list, Sequence} else origin(items)

    def _leaf(self, kind: Any, raw: object, path: Path) -> Any:
        try:
            return _adapter(kind).validate_python(raw, strict=True)
        except ValidationError as error:
            problems = {problem_of(kind, dict(details)) for details in error.errors()}
            return self.wrong(path, " or ".join(sorted(problems)), raw)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


@functools.cache
def fields_of(kind: Any) -> dict[str, tuple[Any, dataclasses.Field[Any]]]:
    """The fields a user may write: name to (type, field)."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: (hints[field.name], field) for field in dataclasses.fields(kind) if field.init}


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The field's default, MISSING when it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def tag_of(kind: Any) -> str:
    """The name by which a user chooses this class among others: AimdConfig is `aimd`."""
    for name in _TAGS:
        if name in (fields := fields_of(kind)):
            hint, _ = fields[name]
            return str(get_args(hint)[0]) if get_origin(hint) is Literal else label_of(hint)
    return str(kind.__name__).removesuffix("Config").lower()


def label_of(member: Any) -> str:
    """An enum member as users write it: the name of a number, the value of a text."""
    if isinstance(member, Enum):
        return member.name.lower() if isinstance(member, IntEnum) else str(member.value).lower()
    return str(member)


def one_of(names: Mapping[str, object]) -> str:
    """The names as a choice, in their order."""
    return "one of " + ", ".join(names)


def problem_of(kind: Any, details: Mapping[str, Any]) -> str:
    """What is expected, in our words, from one error of pydantic."""
    if text := _EXPECTED.get(str(details["type"])):
        return text
    if get_origin(kind) is Literal:
        return f"expected {one_of(dict.fromkeys(str(arg) for arg in get_args(kind)))}"
    message = str(details["msg"])
    return message.replace("Input should be", "expected").removeprefix("Value error, ")
