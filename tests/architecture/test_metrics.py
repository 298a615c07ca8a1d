"""Every metric that we export is explained to the people who alert on it."""

from __future__ import annotations

import ast
import re

from tests.architecture.tree import PACKAGES, ROOT, parsed, sources

NAME = re.compile(r"tidegate_[a-z0-9_]+")
PAGE = ROOT / "docs/metrics.md"


def _exported() -> set[str]:
    """Metric names in the modules that use prometheus_client; a formatted part of a name becomes `.+`."""
    return {
        name.removesuffix("_total")
        for path in sources(*PACKAGES)
        if "prometheus_client" in path.read_text()
        for node in ast.walk(parsed(path))
        if (name := _text(node)) and NAME.fullmatch(name.replace(".+", "x"))
    }


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return "" if text.endswith("_") else text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)
    return ""


def _documented() -> set[str]:
    return {name.removesuffix("_total") for name in NAME.findall(PAGE.read_text())}


def test_every_exported_metric_is_documented() -> None:
    """An alert on a number that nobody explains wakes people for nothing."""
    exported, documented = _exported(), _documented()

    assert exported
    assert {name for name in exported if not any(re.fullmatch(name, known) for known in documented)} == set()


def test_every_documented_metric_is_exported() -> None:
    """A dashboard built from the page must not stay empty."""
    exported = _exported()

    assert {
        name for name in _documented() if not any(re.fullmatch(known, name) for known in exported)
    } == set()
