"""Between the wire and the core: the only file on the path of decisions that knows both."""

from __future__ import annotations

from hashlib import blake2b

from google.protobuf.duration_pb2 import Duration

from admission.core.model import (
    Admitted,
    Completion,
    Flow,
    Held,
    Queued,
    Rejected,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, Verdict

_MAX_PATIENCE_S = 86_400.0
_CACHE = 4096
_NAME_CHARS = 256
_ID_CHARS = 128
_CLASSES = {each.label: each for each in PriorityClass} | {"": PriorityClass.INTERACTIVE}
_OUTCOMES = {int(each): each for each in Outcome} | {0: Outcome.LOST}

ADMITTED = int(Verdict.ADMITTED)
QUEUED = int(Verdict.QUEUED)
REJECTED = int(Verdict.REJECTED)
SHED = int(Verdict.SHED)


def seconds(duration: Duration) -> float:
    """A wire duration in seconds, never negative, at most a day."""
    value = float(duration.seconds) + float(duration.nanos) * 1e-9
    return min(max(value, 0.0), _MAX_PATIENCE_S)


def set_duration(duration: Duration, value_s: float) -> None:
    """Write seconds into a wire duration."""
    nanos = round(value_s * 1e9)
    duration.seconds, duration.nanos = divmod(nanos, 1_000_000_000)
    # A set duration of zero must be there, not absent.
    duration.SetInParent()


def route(ticket: words.Ticket) -> tuple[str, str]:
    """Target and model as far as anything keeps them."""
    return ticket.target[:_NAME_CHARS], ticket.model[:_NAME_CHARS]


def identity(ticket: words.Ticket) -> tuple[str, str]:
    """Request id and traceparent as far as anything keeps them."""
    return id_of(ticket.request_id), ticket.traceparent[:_ID_CHARS]


def id_of(name: str) -> str:
    """A caller's own name for something. A long one ends in its hash: two of them must not become the same."""
    if len(name) <= _ID_CHARS:
        return name
    return name[: _ID_CHARS - 32] + blake2b(name.encode(), digest_size=16).hexdigest()


class Tickets:
    """Reads tickets. Tenant names leave here hashed with `key`, so that nothing behind ever holds one."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._flows: dict[tuple[str, str, str], Flow] = {}
        self._names: dict[str, str] = {}
        self.unknown_classes = 0

    def read(self, owner: str, no: int, ticket: words.Ticket, place_s: float = 0.0) -> Ticket:
        """The core's ticket. `place_s` is a wait that we remember ourselves; the longer one counts."""
        priority = _CLASSES.get(ticket.priority_class)
        if priority is None:
            # Nobody is promoted by this: "interactive" could have been named as well.
            self.unknown_classes += 1
            priority = PriorityClass.INTERACTIVE
        waited_s = seconds(ticket.waited) if ticket.HasField("waited") else 0.0
        return Ticket(
            TicketId(owner, no),
            priority,
            self._flow(ticket.tenant, ticket.model, ticket.endpoint),
            ticket.prompt_tokens,
            ticket.prompt_bytes,
            ticket.max_tokens,
            ticket.n or 1,
            ticket.stream,
            seconds(ticket.patience) if ticket.HasField("patience") else None,
            max(waited_s, place_s),
        )

    def held(self, owner: str, held: wire.Held) -> Held:
        """A permit announced again."""
        return Held(
            self.read(owner, held.no, held.ticket),
            seconds(held.age),
            held.first_token,
            held.chunks,
            held.local,
        )

    def _flow(self, tenant: str, model: str, endpoint: str) -> Flow:
        key = tenant, model, endpoint = tenant[:_NAME_CHARS], model[:_NAME_CHARS], endpoint[:_NAME_CHARS]
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= _CACHE:
                self._flows.clear()
            name = self.tenant(tenant)
            flow = self._flows[key] = Flow(name, model, endpoint)
        return flow

    def tenant(self, name: str) -> str:
        """The keyed hash under which a tenant is known within."""
        if name in {"", "anonymous"}:
            return "anonymous"
        hashed = "t" + blake2b(name.encode(), key=self._key, digest_size=8).hexdigest()
        if len(self._names) >= _CACHE:
            self._names.clear()
        self._names[hashed] = name[:128]
        return hashed

    def name(self, hashed: str) -> str:
        """The name to show for a hash, from memory only; the hash itself when it is forgotten."""
        return self._names.get(hashed, hashed)


def completion(finish: words.Finish) -> Completion:
    """How a permit ended; what the wire leaves out is None."""
    return Completion(
        _OUTCOMES.get(finish.outcome, Outcome.LOST),
        finish.prompt_tokens or None,
        finish.cached_tokens or None,
        finish.output_tokens or None,
        seconds(finish.ttft) if finish.HasField("ttft") else None,
        seconds(finish.decode) if finish.HasField("decode") else None,
    )


def mode(number: int) -> Mode:
    """A mode of the wire; ValueError for none."""
    return Mode(number)


def decide(decision: words.Decision, event: Admitted | Queued | Rejected | Shed, target: str) -> None:
    """Write the core's answer into a wire decision whose `no` is set by the caller."""
    kind = type(event)
    if kind is Admitted:
        admit(decision, event, target)  # type: ignore[arg-type]
        return
    decision.target = target
    if kind is Queued:
        decision.verdict = QUEUED  # type: ignore[assignment]
        _queue(decision, event)  # type: ignore[arg-type]
    else:
        decision.verdict = REJECTED if kind is Rejected else SHED  # type: ignore[assignment]
        _refuse(decision, event)  # type: ignore[arg-type]


def gone(decision: words.Decision, target: str) -> None:
    """What is said of a permit that has ended before its caller was told of it."""
    decision.target, decision.verdict = target, SHED  # type: ignore[assignment]
    decision.reason = int(Reason.CANCELLED)  # type: ignore[assignment]
    decision.detail = "the permit was given back or ended in the meantime"


def admit(decision: words.Decision, event: Admitted, target: str) -> None:
    """`decide` for an admission, which is what nearly every decision is."""
    decision.verdict = ADMITTED  # type: ignore[assignment]
    decision.target = target
    if event.waited_s > 0.0:
        set_duration(decision.waited, event.waited_s)
    if event.advice is not None:
        advice = event.advice
        decision.advice.MergeFrom(
            words.Advice(max_tokens=advice.max_tokens, batch=advice.batch, model=advice.model)
        )
    if event.shadow is not None:
        decision.shadow = True
        _shadow(decision, event.shadow)


def _shadow(decision: words.Decision, would: Rejected | Shed | Queued) -> None:
    if isinstance(would, Queued):
        decision.shadow_verdict = QUEUED  # type: ignore[assignment]
        _queue(decision, would)
        return
    decision.shadow_verdict = REJECTED if isinstance(would, Rejected) else SHED  # type: ignore[assignment]
    _refuse(decision, would)


def _queue(decision: words.Decision, event: Queued | Rejected) -> None:
    decision.position = event.position
    set_duration(decision.expected_wait, event.expected_wait_s)


def _refuse(decision: words.Decision, event: Rejected | Shed) -> None:
    decision.reason = int(event.reason)  # type: ignore[assignment]
    _why(decision, event.why)
    if event.retry_after_s is not None:
        set_duration(decision.retry_after, event.retry_after_s)
    if isinstance(event, Shed):
        set_duration(decision.waited, event.waited_s)
    elif event.position:
        _queue(decision, event)


def _why(decision: words.Decision, why: Why) -> None:
    decision.detail = why.detail
    decision.measured = why.measured
    decision.threshold = why.threshold
    decision.unit = why.unit
