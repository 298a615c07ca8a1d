"""Lays TIDEGATE_* environment variables over what the file says.

`TIDEGATE_LISTEN__HTTP=127.0.0.1:9465` sets `listen.http`: two underscores go one level down. A target is named by its
place or its name: `TIDEGATE_TARGETS__0__MODE=enforce`, `TIDEGATE_TARGETS__DEFAULT__MODE=enforce`. Values are YAML.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from admission.config.document import Document, Origin, parse_scalar
from admission.config.mistakes import Mistake, Path, shown, unknown_key, written

PREFIX = "TIDEGATE_"
CONFIG_FILE = "TIDEGATE_CONFIG"
OTHERS = frozenset(
    PREFIX + name
    for name in (
        *("CONFIG", "CONTROL_ADDRESS", "CONTROL_TOKEN"),
        *("ADDRESS", "TARGET", "FAIL", "DECISION_TIMEOUT_MS", "LOCAL_LIMIT", "OFF", "OFF_FILE"),
        *("CLASS_HEADER", "TENANT_HEADER", "TENANT_SECRET", "TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN"),
        *("PREFIX", "ROUTES", "METRICS_PATH", "MAX_BODY_BYTES"),
    )
)
"""Variables with our prefix that are not settings of the sidecar: they belong to the client and the commands."""

_ALMOST = 0.85
"""How alike an unknown name must be to a setting to be called a typo. Kubernetes puts names such as
TIDEGATE_SERVICE_HOST and TIDEGATE_PORT_50051_TCP_ADDR into every pod beside a Service called tidegate: no mistakes."""


def overlay(document: Document, environ: Mapping[str, str], roots: Collection[str]) -> list[Mistake]:
    """Puts the variables into the document, in order of name; gives what is wrong with them."""
    mistakes = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in OTHERS:
            mistakes += _assign(document, name, environ[name], roots)
    return mistakes


def _assign(document: Document, name: str, text: str, roots: Collection[str]) -> list[Mistake]:
    parts = name.removeprefix(PREFIX).lower().split("__")
    if parts[0] not in roots:
        typo = len(parts) > 1 or difflib.get_close_matches(parts[0], roots, 1, _ALMOST)
        return [Mistake(parts[0], shown(text), unknown_key(parts[0], roots), name)] if typo else []
    if not all(parts):
        return [Mistake(name, shown(text), "an empty name between two underscores", name)]
    try:
        value = parse_scalar(text) if text else ""
        path = _place(document, parts)
    except ValueError as error:
        return [Mistake(written(tuple(parts)), shown(text), str(error), name)]
    _forget(document, path)
    _remember(document, path, value, Origin("environment", name, written(path)))
    return []


def _place(document: Document, parts: list[str]) -> Path:
    """Makes the way to the last part and gives the path to it. ValueError: the way is blocked."""
    here: Any = document.value
    path: Path = ()
    for at, part in enumerate(parts):
        key = _key(here, path, part)
        if isinstance(here, list) and key == len(here):
            here.append({})
        path = (*path, key)
        if at == len(parts) - 1:
            return path
        if isinstance(here, dict) and here.get(str(key)) is None:
            here[str(key)] = [] if path == ("targets",) else {}
        here = here[key]
    raise AssertionError("a name has at least one part")


def _key(here: object, path: Path, part: str) -> str | int:
    if isinstance(here, dict):
        return part
    if not isinstance(here, list):
        raise ValueError(f"{written(path)} is a single value: it has no {part}")  # noqa: TRY004 - a mistake of the user
    if part.isdecimal() and int(part) <= len(here):
        return int(part)
    for at, item in enumerate(here):
        if isinstance(item, dict) and _plain(str(item.get("name", "default"))) == part:
            return at
    if not here and part == "default":
        return 0
    raise ValueError(
        f"{written(path)} has no entry {part}: expected a number from 0 to {len(here)} or a name there"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def _forget(document: Document, path: Path) -> None:
    for known in [known for known in document.origins if known[: len(path)] == path]:
        del document.origins[known]


def _remember(document: Document, path: Path, value: object, origin: Origin) -> None:
    here: Any = document.value
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    _mark(document, path, value, origin)


def _mark(document: Document, path: Path, value: object, origin: Origin) -> None:
    document.origins[path] = Origin(origin.source, origin.where, written(path))
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        _mark(document, (*path, key), item, origin)
