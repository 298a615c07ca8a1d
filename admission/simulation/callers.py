"""Who asks: how patient callers are, whether they come back, whether they ask at all; and one attempt of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from random import Random

from admission.core.model import TicketId
from admission.simulation.engine import Sequence
from admission.simulation.fate import Ending
from admission.simulation.fleet import Node
from admission.simulation.traces import Arrival

_BACKOFF_S = (1.0, 2.0, 4.0)
_STORM_S = (0.05, 0.1)


class Retry(StrEnum):
    """What a caller does that was refused, failed, or lost patience."""

    NONE = "none"
    BACKOFF = "backoff"
    """Again after 1, 2 and 4 s (+-50 %)."""
    STORM = "storm"
    """Again after 50 to 100 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """The behaviour of all callers of a run."""

    patience_s: float = 10.0
    """A caller leaves after so long without a first token, counted from the attempt's arrival."""
    retry: Retry | str = Retry.NONE
    retries: int = 3
    """More attempts at most."""
    honours_retry_after: bool = True
    """Whoever backs off waits at least as long as a refusal says. In a storm nobody listens."""
    noticed: bool = True
    """The engine learns that a caller left; else it works on for nobody."""
    leave_ratio: float = 0.0
    """Share of callers that leave while they read, as they meant to: they are not offered."""
    leave_within_s: float = 4.0
    """When they leave after their first token: uniform up to this."""
    bypass_ratio: float = 0.0
    """Share of requests that go to the engine without asking."""
    stream_ratio: float = 1.0
    """Share of the requests that stream, of those that their trace lets stream."""

    def __post_init__(self) -> None:
        Retry(self.retry)
        if not self.patience_s > 0 or self.retries < 0 or not self.leave_within_s > 0:
            raise ValueError("patience_s and leave_within_s must be over 0, retries not negative")
        for name in ("leave_ratio", "bypass_ratio", "stream_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")

    def pause_s(self, attempts: int, retry_after_s: float | None, random: Random) -> float | None:
        """Seconds until the next attempt after so many, None when there is none."""
        if self.retry == Retry.NONE or attempts > self.retries:
            return None
        if self.retry == Retry.STORM:
            return random.uniform(*_STORM_S)
        pause_s = _BACKOFF_S[min(attempts, len(_BACKOFF_S)) - 1] * random.uniform(0.5, 1.5)
        if retry_after_s is not None and self.honours_retry_after:
            return max(pause_s, retry_after_s)
        return pause_s


class Stage(IntEnum):
    """Where an attempt is."""

    ASKING = 0
    RUNNING = 1
    OVER = 2


@dataclass(slots=True, eq=False)
class Call:
    """One attempt of one caller. Seconds."""

    arrival: Arrival
    desk: int
    """Whose admission it asks; -1: nobody's."""
    stream: bool
    leaves: bool
    began_at: float
    attempts: int = 1
    refused: tuple[str, ...] = ()
    id: TicketId | None = None
    stage: Stage = Stage.ASKING
    admitted_at: float | None = None
    first_token_at: float | None = None
    node: Node | None = None
    sequence: Sequence | None = None
    elsewhere: int = 0
    """Output tokens made by the member that prefilled it, when another decodes."""
    hands_over: bool = False
    """The member that prefills it does not decode."""
    last: tuple[Ending, str] = (Ending.OPEN, "")
    """How it ended, while its caller pauses before the next attempt."""
    hit_tokens: int = 0
    """Prompt tokens that the prefix cache served."""
    told: int = 0
    """Chunks reported so far."""

    def chunks(self, chunk_tokens: int) -> int:
        """Chunks streamed so far, as of the engine's last catch-up."""
        if self.sequence is None or self.node is None:
            return self.told
        made = self.node.engine.generated(self.sequence) + self.elsewhere
        return made if chunk_tokens == 1 else -(-made // chunk_tokens)
