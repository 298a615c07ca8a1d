"""How known traces name their columns and count their time, so that users need not convert them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from admission.simulation.inputs.arrival import TraceError
from admission.vocabulary import PriorityClass

MAX_SECONDS = 1e9
"""Over thirty years: not seconds from the start of a trace."""
MAX_TOKENS = 100_000_000
_CLASSES = {member.label: member for member in PriorityClass}
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

Parse = Callable[[Any], Any]
"""Raises ValueError with what is wrong: `must be ...`."""


def seconds(raw: Any) -> float:
    """A time in seconds from the start."""
    value = _number(raw)
    if not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"must be seconds from the start, 0 to {MAX_SECONDS:.0e}")
    return value


def milliseconds(raw: Any) -> float:
    """A time in milliseconds, as seconds."""
    return seconds(_number(raw) / 1e3)


def moment(raw: Any) -> float:
    """A date and time of day, as seconds since 1970."""
    try:
        found = datetime.fromisoformat(raw)
    except (TypeError, ValueError) as error:
        raise ValueError("must be a date and time such as 2023-11-16 18:15:46.68") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def tokens(raw: Any) -> int:
    """A count of tokens, possibly 0."""
    if type(raw) is str and len(raw) < 9 and raw.isdecimal():
        return int(raw)
    value = raw if type(raw) is int else _number(raw)
    if not 0 <= value <= MAX_TOKENS or value != int(value):
        raise ValueError(f"must be a whole number of tokens, 0 to {MAX_TOKENS:,}")
    return int(value)


def some_tokens(raw: Any) -> int:
    """A count of tokens, at least 1."""
    value = tokens(raw)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def text(raw: Any) -> str:
    """A name; numbers are names too."""
    if isinstance(raw, str):
        return raw.strip()
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError("must be text")


def priority(raw: Any) -> PriorityClass:
    """A priority class by its name."""
    found = _CLASSES.get(raw.strip().lower()) if isinstance(raw, str) else None
    if found is None:
        raise ValueError(f"must be one of {', '.join(_CLASSES)}")
    return found


def truth(raw: Any) -> bool:
    """Whether or not."""
    if isinstance(raw, bool):
        return raw
    found = _TRUTHS.get(str(raw).strip().lower())
    if found is None:
        raise ValueError("must be true or false")
    return found


def blocks(raw: Any) -> tuple[int | str, ...]:
    """Names of the blocks of a prompt, first to last."""
    if not isinstance(raw, list) or not all(type(name) in {int, str} for name in raw):
        raise ValueError("must be a list of block names")
    return tuple(raw)


def _number(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError("must be a number")  # noqa: TRY004 - a value in a file, no argument
    try:
        value = float(raw)
    except (ValueError, OverflowError) as error:
        raise ValueError("must be a number") from error
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """One field of an arrival: how it is parsed and the names that it goes by."""

    field: str
    parse: Parse
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of trace. The first three columns (arrival, prompt, answer) are needed, the rest is optional."""

    columns: tuple[Column, ...]
    from_first: bool = False
    """Times have an origin of their own: count from the first row."""

    def missing(self, names: Collection[str]) -> list[str]:
        """The needed columns that are not there."""
        return [column.names[0] for column in self.columns[:3] if not set(column.names) & set(names)]

    def found(self, names: Collection[str]) -> list[tuple[Column, str]]:
        """The columns that are there, each with the name that it has there."""
        pairs = ((column, next((n for n in column.names if n in names), None)) for column in self.columns)
        return [(column, name) for column, name in pairs if name is not None]


OWN = Dialect(
    (
        Column("at_s", seconds, ("arrival_s",)),
        Column("prompt_tokens", some_tokens, ("prompt_tokens",)),
        Column("output_tokens", tokens, ("output_tokens",)),
        Column("priority", priority, ("class", "priority")),
        Column("tenant", text, ("tenant", "client")),
        Column("session", text, ("session",)),
        Column("model", text, ("model",)),
        Column("max_tokens", tokens, ("max_tokens",)),
        Column("stream", truth, ("stream",)),
        Column("cached_tokens", tokens, ("cached_tokens", "reuse_tokens_inf")),
        Column("shared_tokens", tokens, ("shared_tokens",)),
        Column("prefix", text, ("prefix",)),
    )
)
AZURE = Dialect(
    (
        Column("at_s", moment, ("TIMESTAMP",)),
        Column("prompt_tokens", some_tokens, ("ContextTokens",)),
        Column("output_tokens", tokens, ("GeneratedTokens",)),
    ),
    from_first=True,
)
"""Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset)."""
MOONCAKE = Dialect(
    (
        Column("at_s", milliseconds, ("timestamp",)),
        Column("prompt_tokens", some_tokens, ("input_length",)),
        Column("output_tokens", tokens, ("output_length",)),
        Column("blocks", blocks, ("hash_ids",)),
    )
)
"""Mooncake (github.com/kvcache-ai/Mooncake): milliseconds, and the names of the prompt's 512-token blocks."""
BURSTGPT = Dialect(
    (
        Column("at_s", seconds, ("Timestamp",)),
        Column("prompt_tokens", some_tokens, ("Request tokens",)),
        Column("output_tokens", tokens, ("Response tokens",)),
        Column("session", text, ("Session ID",)),
        Column("model", text, ("Model",)),
    ),
    from_first=True,
)
"""BurstGPT (github.com/HPMLL/BurstGPT): seconds; an answer of 0 tokens is one that failed."""
_SHOWN = 200
_BY_TIME = {"arrival_s": OWN, "TIMESTAMP": AZURE, "timestamp": MOONCAKE, "Timestamp": BURSTGPT}


def recognise(names: Collection[str], where: str) -> Dialect:
    """The dialect whose columns these are, told by the name of its time.

    Raises:
        TraceError: none of them, two of them, or a needed column is missing.
    """
    times = [name for name in _BY_TIME if name in names]
    if "arrival_s" in times:
        times = ["arrival_s"]
    if len(times) != 1:
        problem = f"no column {', '.join(OWN.missing(names))}, only {', '.join(names)}"[:_SHOWN]
        if times:
            problem = f"{' and '.join(times)} both say when"
        raise TraceError(f"{where}: {problem}")
    dialect = _BY_TIME[times[0]]
    if missing := dialect.missing(names):
        raise TraceError(f"{where}: no column {', '.join(missing)}")
    if dialect is MOONCAKE and "chat_id" in names:
        # Traces with the same names and other units exist.
        raise TraceError(f"{where}: timestamp beside chat_id may be seconds: convert it to arrival_s")
    return dialect
