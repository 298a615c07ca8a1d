"""How inputs and events read in a journal: plain tuples of numbers and strings, and digests of them."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from admission.core.model import (
    Admitted,
    Completion,
    Event,
    Finished,
    Flow,
    GateChanged,
    Held,
    LeaseExpired,
    LimitChanged,
    Queued,
    Reading,
    Rejected,
    Sample,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
    Why,
)
from admission.runtime.inputs import Op
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, SignalKind, Source

Plain = tuple[Any, ...]
"""Holds only int, float, str, bool, None and tuples of them."""

# ---- inputs


def _ticket_out(ticket: Ticket) -> Plain:
    return (
        *ticket.id,
        int(ticket.priority),
        *ticket.flow,
        ticket.prompt_tokens,
        ticket.prompt_bytes,
        ticket.max_tokens,
        ticket.n,
        ticket.stream,
        ticket.patience_s,
        ticket.waited_s,
    )


def _ticket_in(plain: Plain) -> Ticket:
    owner, no, priority, tenant, model, endpoint, *rest = plain
    return Ticket(TicketId(owner, no), PriorityClass(priority), Flow(tenant, model, endpoint), *rest)


def _completion_out(done: Completion) -> Plain:
    return (
        int(done.outcome),
        done.prompt_tokens,
        done.cached_tokens,
        done.output_tokens,
        done.engine_ttft_s,
        done.decode_s,
    )


def _completion_in(plain: Plain) -> Completion:
    return Completion(Outcome(plain[0]), *plain[1:])


def _held_out(held: Held) -> Plain:
    return (_ticket_out(held.ticket), held.age_s, held.first_token, held.chunks, held.local)


def _held_in(plain: Plain) -> Held:
    return Held(_ticket_in(plain[0]), *plain[1:])


def _reading_out(reading: Reading) -> Plain:
    return (int(reading.kind), reading.value, reading.at, reading.source.value, reading.member)


def _reading_in(plain: Plain) -> Reading:
    return Reading(SignalKind(plain[0]), plain[1], plain[2], Source(plain[3]), plain[4])


_SAMPLE_REST = (
    "emitter",
    "model",
    "e2e_s",
    "ttft_s",
    "queue_s",
    "prefill_s",
    "decode_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
)


def _sample_out(sample: Sample) -> Plain:
    rest = tuple(getattr(sample, name) for name in _SAMPLE_REST)
    return (sample.at, int(sample.outcome), sample.source.value, *rest)


def _sample_in(plain: Plain) -> Sample:
    rest = dict(zip(_SAMPLE_REST, plain[3:], strict=True))
    return Sample(plain[0], Outcome(plain[1]), Source(plain[2]), **rest)


def _same(args: Plain) -> Plain:
    return args


def _submit_out(args: Plain) -> Plain:
    return _ticket_out(args[0])


def _finish_out(args: Plain) -> Plain:
    id, done = args
    return (
        *id,
        int(done.outcome),
        done.prompt_tokens,
        done.cached_tokens,
        done.output_tokens,
        done.engine_ttft_s,
        done.decode_s,
    )


Coder = tuple[Callable[[Any], Plain], Callable[[Plain], Any]]

_INPUTS: dict[Op, Coder] = {
    Op.SUBMIT: (_submit_out, lambda p: (_ticket_in(p),)),
    Op.FINISH: (
        _finish_out,
        lambda p: (TicketId(*p[:2]), _completion_in(p[2:])),
    ),
    Op.FIRST_TOKEN: (lambda a: (*a[0], *a[1:]), lambda p: (TicketId(*p[:2]), *p[2:])),
    Op.PROGRESS: (
        lambda a: tuple((*id, chunks, age) for id, chunks, age in a[0]),
        lambda p: ([(TicketId(owner, no), chunks, age) for owner, no, chunks, age in p],),
    ),
    Op.CANCEL: (lambda a: tuple(a[0]), lambda p: (TicketId(*p),)),
    Op.RENEW: (_same, _same),
    Op.ATTACH: (_same, _same),
    Op.DETACH: (_same, _same),
    Op.LEAVE: (_same, _same),
    Op.REINSTATE: (
        lambda a: tuple(_held_out(held) for held in a[0]),
        lambda p: ([_held_in(held) for held in p],),
    ),
    Op.OBSERVE: (lambda a: _reading_out(a[0]), lambda p: (_reading_in(p),)),
    Op.SAMPLE: (lambda a: _sample_out(a[0]), lambda p: (_sample_in(p),)),
    Op.WAKE: (_same, _same),
    Op.SET_MODE: (lambda a: (int(a[0]),), lambda p: (Mode(p[0]),)),
    Op.SET_DRAIN: (_same, _same),
    Op.SET_LIMIT: (_same, _same),
    # A configuration is a tree of the core's own classes, which the restricted unpickler knows.
    Op.RECONFIGURE: (_same, _same),
    Op.STALLED: (_same, _same),
}


INPUT_OUT = {op: coder[0] for op, coder in _INPUTS.items()}
"""For each input, what makes plain values of its arguments (without `now`)."""


def input_in(op: Op, plain: Plain) -> tuple[Any, ...]:
    """The arguments back from plain values."""
    args: tuple[Any, ...] = _INPUTS[op][1](plain)
    return args


# ---- events


ADMITTED, QUEUED, REJECTED, SHED, SHADOW_DECIDED, FINISHED, LIMIT_CHANGED, LEASE_EXPIRED, GATE_CHANGED = (
    range(1, 10)
)
"""First field of an event as recorded; refusals add 16 times their reason."""


def _why_out(why: Why) -> Plain:
    return (why.detail, why.measured, why.threshold, why.unit, why.source.value)


def _queued_out(event: Queued) -> Plain:
    return (QUEUED, *event.ticket.id, event.position, event.expected_wait_s)


def _refused_out(event: Rejected) -> Plain:
    return (
        REJECTED + 16 * event.reason,
        *event.ticket.id,
        event.retry_after_s,
        _why_out(event.why),
        event.position,
        event.expected_wait_s,
    )


def _shed_out(event: Shed) -> Plain:
    why = _why_out(event.why)
    return (SHED + 16 * event.reason, *event.ticket.id, event.retry_after_s, why, event.waited_s)


def _admitted_out(event: Admitted) -> Plain:
    advice, shadow = event.advice, event.shadow
    return (
        ADMITTED,
        *event.ticket.id,
        event.waited_s,
        event.cost,
        None if advice is None else (advice.max_tokens, advice.batch, advice.model),
        None if shadow is None else event_out(shadow),
    )


def _shadow_out(event: ShadowDecided) -> Plain:
    reason = None if event.reason is None else int(event.reason)
    return (SHADOW_DECIDED, *event.ticket.id, int(event.verdict), reason, event.waited_s)


def _finished_out(event: Finished) -> Plain:
    return (
        FINISHED,
        *event.ticket.id,
        _completion_out(event.completion),
        event.waited_s,
        event.held_s,
        event.ttft_s,
        event.tpot_s,
        event.output_tokens,
        event.good,
    )


_EVENTS: dict[type, Callable[[Any], Plain]] = {
    Admitted: _admitted_out,
    Queued: _queued_out,
    Rejected: _refused_out,
    Shed: _shed_out,
    ShadowDecided: _shadow_out,
    Finished: _finished_out,
    LimitChanged: lambda e: (LIMIT_CHANGED, e.old, e.new, _why_out(e.why)),
    LeaseExpired: lambda e: (LEASE_EXPIRED, *e.id, e.cost, e.age_s),
    GateChanged: lambda e: (GATE_CHANGED, e.gate, e.old, e.state, _why_out(e.why)),
}


def event_out(event: Event) -> Plain:
    """An event as plain values: first a number for its kind, to which a refusal adds 16 times its reason."""
    return _EVENTS[type(event)](event)


def events_out(events: Sequence[Event]) -> tuple[int, tuple[int, ...]]:
    """A checksum, equal where events are equal in every field, and the first number of each for people."""
    if not events:
        return 0, ()
    if len(events) == 1:
        only = _EVENTS[type(events[0])](events[0])
        return crc32(marshal.dumps(only, 2)), only[:1]
    plain = [_EVENTS[type(event)](event) for event in events]
    # Format 2 has no references between objects, so that equal values give equal bytes.
    return crc32(marshal.dumps(plain, 2)), tuple([each[0] for each in plain])


def kinds_text(kinds: Sequence[int]) -> str:
    """Kinds and reasons for people, such as "Finished, Rejected QUEUE_FULL"."""
    names = [
        _KIND_NAMES.get(number % 16, "?") + (f" {Reason(number // 16).name}" if number >= 16 else "")
        for number in kinds
    ]
    return ", ".join(names) or "nothing"


_KIND_NAMES = {number: kind.__name__ for number, kind in enumerate(_EVENTS, 1)}
