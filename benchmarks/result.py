"""What a benchmark reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One figure. `bar` is what it was held against, `met` whether it was reached; None: there is no bar."""

    name: str
    value: float
    unit: str
    bar: str = ""
    met: bool | None = None
