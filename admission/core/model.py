"""What goes into the core and what comes out: plain values, times in monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from admission.vocabulary import (
    EngineState,
    Mode,
    Outcome,
    PriorityClass,
    Reason,
    SignalKind,
    Source,
    Verdict,
)


class TicketId(NamedTuple):
    """A ticket's name: unique for ever, chosen outside. Its owner is the session whose messages renew it."""

    owner: str
    no: int


class Flow(NamedTuple):
    """The stream a ticket belongs to for fairness and quota."""

    tenant: str = "anonymous"
    model: str = ""
    endpoint: str = ""


NO_FLOW = Flow()


@dataclass(slots=True, eq=False)
class Ticket:
    """One request that asks to run. Zero means unknown for every count; treat as frozen."""

    id: TicketId
    priority: PriorityClass = PriorityClass.INTERACTIVE
    flow: Flow = NO_FLOW
    prompt_tokens: int = 0
    prompt_bytes: int = 0
    max_tokens: int = 0
    n: int = 1
    stream: bool = True
    patience_s: float | None = None
    waited_s: float = 0.0


@dataclass(slots=True)
class Completion:
    """How an admitted request ended, as its holder or the engine's span tells it. None: unknown."""

    outcome: Outcome
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    engine_ttft_s: float | None = None
    decode_s: float | None = None


@dataclass(slots=True)
class Held:
    """A permit announced again by its holder."""

    ticket: Ticket
    age_s: float
    first_token: bool = False
    chunks: int = 0
    local: bool = False


@dataclass(slots=True)
class Reading:
    """One measured value. `member` names the engine process or the GPU (UUID) that it is about."""

    kind: SignalKind
    value: float
    at: float
    source: Source
    member: str = ""


@dataclass(slots=True)
class Sample:
    """One finished request as a span tells it, without prompt or answer. Durations in seconds, None: unknown."""

    at: float
    outcome: Outcome
    source: Source = Source.SPANS
    emitter: str = ""
    request_key: str = ""
    model: str = ""
    e2e_s: float | None = None
    ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first, None when it cannot be told."""
        if self.output_tokens is None or self.output_tokens < 2:
            return None
        if self.decode_s is not None:
            return self.decode_s / (self.output_tokens - 1)
        if self.e2e_s is None or self.ttft_s is None:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


class Why(NamedTuple):
    """A measured value against its threshold, and one line for people."""

    detail: str = ""
    measured: float = 0.0
    threshold: float = 0.0
    unit: str = ""
    source: Source = Source.LAW


@dataclass(slots=True)
class Advice:
    """Suggestions to the caller of an admitted ticket. Zero or empty: none."""

    max_tokens: int = 0
    batch: int = 0
    model: str = ""


@dataclass(slots=True)
class Queued:
    """The ticket waits; a final event follows."""

    ticket: Ticket
    position: int
    expected_wait_s: float


@dataclass(slots=True)
class Admitted:
    """The ticket may run now. With `shadow` set, that is what enforce would have said instead."""

    ticket: Ticket
    waited_s: float
    cost: int
    advice: Advice | None = None
    shadow: Rejected | Shed | Queued | None = None


@dataclass(slots=True)
class Rejected:
    """Refused on arrival. `retry_after_s` is None when coming back cannot help."""

    ticket: Ticket
    reason: Reason
    retry_after_s: float | None
    why: Why
    position: int = 0
    expected_wait_s: float = 0.0


@dataclass(slots=True)
class Shed:
    """Removed from the queue."""

    ticket: Ticket
    reason: Reason
    retry_after_s: float | None
    why: Why
    waited_s: float = 0.0


@dataclass(slots=True)
class ShadowDecided:
    """In shadow: the final word that enforce would have had on a ticket that it would have queued.

    The verdict QUEUED means that the request ended while enforce would have kept it waiting still.
    """

    ticket: Ticket
    verdict: Verdict
    reason: Reason | None
    waited_s: float


@dataclass(slots=True)
class Finished:
    """An admitted ticket ended. Durations in seconds from our own events, None: not seen."""

    ticket: Ticket
    completion: Completion
    waited_s: float
    held_s: float
    ttft_s: float | None
    tpot_s: float | None
    output_tokens: int | None
    good: bool | None
    """Finished whole within the SLO of its class; None: cannot be told."""


@dataclass(slots=True)
class LimitChanged:
    """The limit moved, in KV tokens."""

    old: int
    new: int
    why: Why


@dataclass(slots=True)
class LeaseExpired:
    """A permit that nobody renewed was taken back."""

    id: TicketId
    cost: int
    age_s: float


@dataclass(slots=True)
class GateChanged:
    """A gate (or the engine's state, the mode, the freeze) changed."""

    gate: str
    old: str
    state: str
    why: Why


Decision = Admitted | Queued | Rejected | Shed
Event = (
    Admitted | Queued | Rejected | Shed | ShadowDecided | Finished | LimitChanged | LeaseExpired | GateChanged
)


@dataclass(slots=True)
class GateView:
    """A gate as shown."""

    name: str
    state: str
    why: Why
    last_fired_at: float | None = None


@dataclass(slots=True)
class ClassView:
    """A class as shown."""

    priority: PriorityClass
    in_flight: int
    queued: int
    queued_prompt_tokens: int


@dataclass(slots=True)
class View:
    """A target as shown: a copy, never a handle into the core."""

    mode: Mode
    limit_algorithm: str
    limit: int
    used: int
    untracked: int
    in_flight: int
    queued: int
    prefill_budget: int
    pending_prompt_tokens: int
    prefill_rate: float
    kv_usage_ratio: float | None
    kv_capacity_tokens: int | None
    engine_running: int | None
    engine_waiting: int | None
    engine_state: EngineState
    sight: str
    frozen: str
    draining: bool
    tokens_per_chunk: float
    tpot_ratio: float | None
    slots: int | None
    classes: list[ClassView]
    gates: list[GateView]
    vram: dict[str, VramView]


@dataclass(slots=True)
class VramView:
    """What the VRAM watermark thinks of one GPU. Bytes."""

    rule: str
    rule_why: str
    free_bytes: int | None
    total_bytes: int | None
    baseline_bytes: int | None
    critical_free_bytes: int | None
    state: str
