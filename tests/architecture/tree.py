"""Where the sources of this project are, for the tests that judge their shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("admission", "telemetry", "dashboard")
GENERATED = ("admission/v1", "admission/wire")
PROTO = ROOT / "proto"


def sources(*folders: str) -> list[Path]:
    """Every Python file under the folders that a person wrote."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not relative(path).startswith(GENERATED)]


def relative(path: Path) -> str:
    """The path as messages show it."""
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    """The file's syntax tree; a SyntaxError names the file."""
    return ast.parse(path.read_text(), relative(path))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full module name of each import in a file."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "."
