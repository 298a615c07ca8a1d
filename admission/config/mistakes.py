"""A mistake in the configuration: where, what was given, what is expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]

_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to correct. `where` is a file and line, or the name of an environment variable."""

    path: str
    value: str
    problem: str
    where: str = ""

    def __str__(self) -> str:
        """One line for people."""
        place = f"{self.where}: " if self.where else ""
        given = f" = {self.value}" if self.value else ""
        return f"{place}{self.path or '(whole file)'}{given}: {self.problem}"


class BadConfigurationError(Exception):
    """The configuration cannot be used. Holds every mistake found, never only the first."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


def written(path: Path) -> str:
    """The path as people write it: `targets[0].limit.floor_tokens`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """The value as written, cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say about a key that does not exist, with the nearest that does."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
    return f"unknown key, {hint}"
