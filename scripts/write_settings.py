"""Writes the table of every setting into docs/configuration.md, from the classes that define them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from admission.config.bind import fields_of, label_of
from admission.config.load import load
from admission.config.schema import GIVEN_APART, SECTIONS
from admission.core.limits.fixed import FixedConfig

PAGE = Path(__file__).parents[1] / "docs/configuration.md"
BEGIN, END = "<!-- settings: written by scripts/write_settings.py -->", "<!-- end of settings -->"


def tables() -> str:
    """One table for each section of the file."""
    settings = load(None, {}).settings
    target = settings.targets[0]
    parts = [_table("`targets[]`: how work finds a target", target.binding)]
    parts.append(_table("`targets[]`: how it decides", target.controller))
    parts.append(_table("`targets[].limit` with `algorithm: fixed`", FixedConfig()))
    for name in SECTIONS:
        without = GIVEN_APART.get(name, {})
        parts.append(_table(f"`{name}`", getattr(settings, name), without))
    return "\n".join(parts)


def _table(title: str, value: Any, without: Mapping[str, str] | None = None) -> str:
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _rows("", value, without or {})]
    about = inspect.cleandoc(type(value).__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return "\n".join(
        [f"### {title}", "", about, "", "| setting | default | means |", "|---|---|---|", *rows, ""]
    )


def _rows(prefix: str, value: Any, without: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    kind: Any = type(value)
    texts = _field_texts(kind)
    for name in fields_of(kind):
        if name in without:
            continue
        held = getattr(value, name)
        if dataclasses.is_dataclass(held):
            yield from _rows(f"{prefix}{name}.", held, {})
        elif isinstance(held, Mapping) and held and all(map(dataclasses.is_dataclass, held.values())):
            for key, item in held.items():
                yield from _rows(f"{prefix}{name}.{label_of(key)}.", item, {})
        else:
            yield prefix + name, _shown(held), texts.get(name, "")


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, Enum):
        return f"`{label_of(value)}`"
    if isinstance(value, tuple | list | frozenset):
        return f"`{json.dumps([label_of(item) for item in value])}`"
    return f"`{json.dumps(value)}`" if not isinstance(value, Mapping) else "`{}`"


def _field_texts(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - the source of a class is a class
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(written))):
                found[name] = " ".join(written.split()).replace("|", "\\|")
    return found


def page(text: str) -> str:
    """The page with its tables written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    current = PAGE.read_text()
    if "--check" in sys.argv:
        sys.exit(0 if page(current) == current else f"{PAGE.name} is out of date: run `make docs`")
    PAGE.write_text(page(current))
