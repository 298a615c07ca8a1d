"""Files and functions stay small, and no name hides what a module is about."""

from __future__ import annotations

import ast

from tests.architecture.tree import PACKAGES, parsed, relative, sources

FILE_LINES = 400
FUNCTION_LINES = 60
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
OURS = (*PACKAGES, "tests", "benchmarks", "scripts")


def test_no_file_is_too_long() -> None:
    """A file that passes 400 lines holds two ideas."""
    long = {
        relative(path): lines
        for path in sources(*OURS)
        if (lines := path.read_text().count("\n")) > FILE_LINES
    }

    assert long == {}


def test_no_function_is_too_long() -> None:
    """A function that passes 60 lines, docstring apart, cannot be read at a glance."""
    long = [
        f"{relative(path)}:{node.lineno} {node.name} has {length} lines"
        for path in sources(*OURS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := _length(node)) > FUNCTION_LINES
    ]

    assert long == []


def test_no_module_has_an_empty_name() -> None:
    """`helpers` says where code was put, not what it does."""
    wrong = [
        relative(path)
        for path in sources(*OURS)
        if EMPTY_NAMES & {path.stem.lstrip("_"), path.parent.name}
        or path.stem.endswith(("_utils", "_helpers"))
    ]

    assert wrong == []


def test_every_module_opens_with_a_docstring() -> None:
    """One sentence at the top tells a reader whether this is the file to read."""
    silent = [relative(path) for path in sources(*OURS) if not ast.get_docstring(parsed(path))]

    assert silent == []


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the function without its docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) and first.end_lineno:
        total -= first.end_lineno - first.lineno + 1
    return total
