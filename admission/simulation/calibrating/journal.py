"""Reads what a sidecar's journal tells of its engine: requests with their times, and the engine's own figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admission.core.model import Event, Finished, Reading, Sample
from admission.runtime import records, segments
from admission.runtime.inputs import Op
from admission.simulation.calibrating.measured import CalibrationError, Measured, Moment, Recording
from admission.vocabulary import Outcome, SignalKind

CLOCK_STEP_S = 1.0


@dataclass(slots=True)
class _Found:
    """What one target's journal had."""

    permits: list[Measured] = field(default_factory=list)
    spans: list[Measured] = field(default_factory=list)
    series: list[Moment] = field(default_factory=list)
    newest: dict[SignalKind, dict[str, float]] = field(default_factory=dict)

    def take(self, op: Op, args: tuple[Any, ...], now: float, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self.permits.append(_of_permit(event, now))
        if op is Op.SAMPLE and (measured := _of_span(args[0])):
            self.spans.append(measured)
        elif op is Op.OBSERVE:
            self._observe(args[0])

    def _observe(self, reading: Reading) -> None:
        self.newest.setdefault(reading.kind, {})[reading.member] = reading.value
        if reading.kind is SignalKind.RUNNING and SignalKind.WAITING in self.newest:
            usage = self.newest.get(SignalKind.KV_USAGE_RATIO)
            ratio = sum(usage.values()) / len(usage) if usage else None
            running, waiting = self.total(SignalKind.RUNNING), self.total(SignalKind.WAITING)
            self.series.append(Moment(reading.at, running or 0, waiting or 0, ratio))

    def total(self, kind: SignalKind) -> int | None:
        values = self.newest.get(kind)
        return round(sum(values.values())) if values else None

    @property
    def engines(self) -> int:
        return max(1, len(self.newest.get(SignalKind.RUNNING, ())))


def read_journal(path: Path, target: str = "") -> Recording:
    """The requests that a sidecar saw on a target, as they reached the engine: the wait for admission is left out.

    A request's times come from its permit. Where more requests are known from the engine's spans (traffic that does
    not ask the sidecar), these are taken: then a request came when its span arrived less its length, which is late by
    what the exporter waits before it sends.

    Raises:
        CalibrationError: no journal, it cannot be replayed, no such target or several and none named.
    """
    found: dict[str, _Found] = {}
    try:
        before = float("-inf")
        for name, op, args, now, events in _replayed(path):
            if now < before - CLOCK_STEP_S:
                raise CalibrationError(
                    f"{path}: its clock starts anew half-way (a reboot): give the later segments alone"
                )
            before = now
            found.setdefault(name, _Found()).take(op, args, now, events)
    except (segments.JournalError, OSError) as error:
        raise CalibrationError(f"{path}: {error}") from error
    chosen = _choose(path, found, target)
    return _recording(path, found[chosen])


def _choose(path: Path, found: dict[str, _Found], target: str) -> str:
    if not found:
        raise CalibrationError(f"{path}: no journal, or nothing in it")
    names = ", ".join(sorted(found))
    if target and target not in found:
        raise CalibrationError(f"{path}: no target {target!r} in the journal; there are {names}")
    if not target and len(found) > 1:
        raise CalibrationError(f"{path}: several targets, choose one with --target: {names}")
    return target or next(iter(found))


def _recording(path: Path, found: _Found) -> Recording:
    usable = Counter(
        {
            name: sum(one.ttft_s is not None for one in requests)
            for name, requests in (("permits", found.permits), ("spans", found.spans))
        }
    )
    taken = found.spans if usable["spans"] > usable["permits"] else found.permits
    if not taken:
        raise CalibrationError(f"{path}: no finished requests in the journal")
    began = min(one.at_s for one in taken)
    engines = found.engines
    capacity, slots = found.total(SignalKind.KV_CAPACITY_TOKENS), found.total(SignalKind.MAX_SEQUENCES)
    return Recording(
        str(path),
        tuple(sorted((_later(one, -began) for one in taken), key=lambda one: one.at_s)),
        tuple(Moment(one.at_s - began, one.running, one.waiting, one.kv_ratio) for one in found.series),
        kv_capacity_tokens=capacity // engines if capacity else None,
        max_num_seqs=slots // engines if slots else None,
        engines=engines,
    )


def _later(one: Measured, by_s: float) -> Measured:
    return Measured(
        one.at_s + by_s,
        one.prompt_tokens,
        one.output_tokens,
        one.ttft_s,
        one.decode_s,
        one.cached_tokens,
    )


def _replayed(path: Path) -> Iterator[tuple[str, Op, tuple[Any, ...], float, list[Event]]]:
    """Every recorded input, decided again: the journal keeps no more than digests of what came of it."""
    for segment in segments.segments(path):
        controllers: dict[str, Any] = {}
        for kind, payload in segments.frames(segment):
            for value in segments.decode(payload):
                if kind == segments.SNAPSHOT:
                    controllers = value["controllers"]
                    continue
                for target, number, now, plain, *_ in value:
                    op = Op(number)
                    args = records.input_in(op, plain)
                    # Only `first_token` has something after the time.
                    before, after = (args[:1], args[1:]) if op is Op.FIRST_TOKEN else (args, ())
                    controller = controllers.get(target)
                    if controller is None:
                        raise segments.JournalError(f"{segment.name}: no snapshot of target {target!r}")
                    yield target, op, args, now, _decided(controller, op, (*before, now, *after))


def _decided(controller: Any, op: Op, args: tuple[Any, ...]) -> list[Event]:
    try:
        events: list[Event] = getattr(controller, op.method)(*args)
    except Exception as error:
        # Its state is of another version, and anything may be missing in it.
        raise segments.JournalError(f"cannot be replayed, another version wrote it ({error})") from error
    return events


def _of_permit(event: Finished, now: float) -> Measured:
    done, ticket = event.completion, event.ticket
    prompt = max(1, done.prompt_tokens or ticket.prompt_tokens)
    output = event.output_tokens or 1
    whole = done.outcome is Outcome.OK and ticket.n == 1 and event.ttft_s is not None
    ttft_s = event.ttft_s - event.waited_s if whole and event.ttft_s is not None else None
    decode_s = event.tpot_s * (output - 1) if whole and event.tpot_s is not None else None
    cached = min(done.cached_tokens or 0, prompt - 1)
    return Measured(now - event.held_s, prompt, output, ttft_s, decode_s, cached)


def _of_span(sample: Sample) -> Measured | None:
    if sample.e2e_s is None or not sample.prompt_tokens or not sample.output_tokens:
        return None
    whole = sample.outcome is Outcome.OK and sample.ttft_s is not None
    tpot_s = sample.tpot_s
    return Measured(
        sample.at - sample.e2e_s,
        sample.prompt_tokens,
        sample.output_tokens,
        sample.ttft_s if whole else None,
        tpot_s * (sample.output_tokens - 1) if whole and tpot_s is not None else None,
        min(sample.cached_tokens or 0, sample.prompt_tokens - 1),
    )
