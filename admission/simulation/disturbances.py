"""What happens to an engine in the course of a run. Seconds from its start; `member` empty: all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slow:
    """Each step that begins from then on takes `factor` times as long."""

    from_s: float
    until_s: float
    factor: float
    member: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.from_s < self.until_s or not 0 < self.factor < math.inf:
            raise ValueError(f"Slow needs 0 <= from_s < until_s and a positive factor: {self}")

    @property
    def span(self) -> tuple[float, float]:
        """From when until when."""
        return self.from_s, self.until_s


@dataclass(frozen=True, slots=True)
class Stall:
    """No step begins for so long; what is under way ends."""

    at_s: float
    for_s: float
    member: str = ""

    def __post_init__(self) -> None:
        _check(self.at_s, self.for_s)

    @property
    def span(self) -> tuple[float, float]:
        """From when until when."""
        return self.at_s, self.at_s + self.for_s


@dataclass(frozen=True, slots=True)
class Restart:
    """All that is in flight fails, nothing answers for `down_s`, and the caches are cold afterwards."""

    at_s: float
    down_s: float
    member: str = ""

    def __post_init__(self) -> None:
        _check(self.at_s, self.down_s)

    @property
    def span(self) -> tuple[float, float]:
        """From when until when."""
        return self.at_s, self.at_s + self.down_s


@dataclass(frozen=True, slots=True)
class Lost:
    """A member is gone, for good unless `down_s` says when it is back: the others take its requests."""

    at_s: float
    member: str
    down_s: float = math.inf

    def __post_init__(self) -> None:
        _check(self.at_s, self.down_s)

    @property
    def span(self) -> tuple[float, float]:
        """From when until when."""
        return self.at_s, self.at_s + self.down_s


@dataclass(frozen=True, slots=True)
class Flush:
    """The prefix caches are emptied: each named prefix is cold until a request with it has been prefilled."""

    at_s: float
    member: str = ""

    def __post_init__(self) -> None:
        _check(self.at_s, 0.0)

    @property
    def span(self) -> tuple[float, float]:
        """An instant."""
        return self.at_s, self.at_s


Disturbance = Slow | Stall | Restart | Lost | Flush


def _check(at_s: float, for_s: float) -> None:
    if not at_s >= 0 or not for_s >= 0:
        raise ValueError(f"a disturbance needs times of at least 0, not {at_s} and {for_s}")
