"""One request's life at the client, and the answer it got."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from admission.v1.types_pb2 import Finish, Ticket
from admission.vocabulary import Outcome, Reason, Verdict


class CallState(Enum):
    """Where a call stands."""

    WAITING = "waiting"
    HELD = "held"
    PASSED = "passed"
    """Let through without a permit, because the client is off."""
    ENDED = "ended"


@dataclass(slots=True)
class Answer:
    """The final answer to one ticket. Durations in seconds; zero means not stated."""

    verdict: Verdict
    reason: Reason | None = None
    detail: str = ""
    measured: float = 0.0
    threshold: float = 0.0
    unit: str = ""
    retry_after_s: float = 0.0
    position: int = 0
    expected_wait_s: float = 0.0
    waited_s: float = 0.0
    target: str = ""
    shadow: bool = False
    """Admitted because nothing is enforced; the other fields say what enforce would have answered."""
    local: bool = False
    """Decided by the client itself, without the sidecar."""
    advice_max_tokens: int = 0
    advice_model: str = ""

    @property
    def admitted(self) -> bool:
        """True when the request may run."""
        return self.verdict is Verdict.ADMITTED

    @property
    def text(self) -> str:
        """One line for people: what happened, measured against what, and when to come back."""
        if self.admitted:
            return "admitted"
        word = "removed from the queue" if self.verdict is Verdict.SHED else "not admitted"
        name = self.reason.name if self.reason is not None else "UNKNOWN"
        parts = [f"{word}: {name}"]
        if self.detail:
            parts.append(self.detail)
        elif self.threshold:
            parts.append(f"{self.measured:g} against {self.threshold:g} {self.unit}".rstrip())
        return ", ".join(parts)


@dataclass(slots=True)
class Usage:
    """What the engine said about a request's tokens. Zero: not stated."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One ticket from the question to its end."""

    ticket: Ticket
    asked_at: float
    no: int = 0
    state: CallState = CallState.WAITING
    answer: Answer | None = None
    queued: bool = False
    position: int = 0
    expected_wait_s: float = 0.0
    put_at: float = 0.0
    """When an answer was last waited for anew."""
    deadline: float = 0.0
    give_up_at: float = 0.0
    """Until when a queued call may wait."""
    admitted_at: float = 0.0
    first_token_at: float | None = None
    newest_at: float = 0.0
    chunks: int = 0
    unsent: int = 0
    """Chunks counted since the last progress report."""
    local: bool = False
    announced: bool = False
    """The sidecar knows that we hold it."""
    disowned: bool = False
    """The sidecar says that it ended; we keep it to ourselves."""
    context: Any = field(default=None, repr=False)
    """The shell's, such as a future."""

    def finish_message(self, outcome: Outcome, usage: Usage | None) -> Finish:
        """The report of its end, with engine TTFT and decode time when tokens were seen."""
        message = Finish(no=self.no, outcome=int(outcome))  # type: ignore[arg-type]
        if usage is not None:
            message.prompt_tokens = usage.prompt_tokens
            message.cached_tokens = usage.cached_tokens
            message.output_tokens = usage.output_tokens
        if self.first_token_at is not None:
            set_duration(message.ttft, self.first_token_at - self.admitted_at)
            set_duration(message.decode, self.newest_at - self.first_token_at)
        return message


def set_duration(message: Any, seconds: float) -> None:
    """Writes seconds (clamped at 0) into a protobuf Duration."""
    nanos = max(0, round(seconds * 1e9))
    message.seconds, message.nanos = divmod(nanos, 1_000_000_000)
    if nanos == 0:
        message.SetInParent()


def seconds_of(message: Any) -> float:
    """A protobuf Duration in seconds."""
    return float(message.seconds) + float(message.nanos) * 1e-9
