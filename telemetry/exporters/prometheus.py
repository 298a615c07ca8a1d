"""Tidegate's metrics for Prometheus: counters and histograms from events, gauges read when scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from admission.core.model import (
    Admitted,
    Event,
    Finished,
    LeaseExpired,
    LimitChanged,
    Queued,
    Rejected,
    ShadowDecided,
    Shed,
    Ticket,
    TicketId,
    View,
)
from admission.vocabulary import Outcome, PriorityClass, Reason, Verdict
from telemetry.exporters.gauges import (
    Slo,
    host_gauges,
    protocol_counter,
    slo_gauge,
    target_gauges,
    telemetry_families,
)
from telemetry.exporters.series import Counts, Histograms
from telemetry.link import TelemetryView

_CLASS = {member: member.label for member in PriorityClass}
_VERDICT = {member: member.name.lower() for member in Verdict}
_OUTCOME = {member: member.name.lower() for member in Outcome}
_TRACED = 16
"""Of usual events one in so many is asked for its trace: an exemplar is one example."""
_REASON: dict[Reason | None, str] = {member: member.name for member in Reason} | {None: ""}

WAIT_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
TTFT_S = (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 15, 30, 60)
TPOT_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.4, 0.8, 2)
E2E_S = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320)
DECISION_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


class StateSource(Protocol):
    """What is the state now? Asked on the admission loop when Prometheus scrapes."""

    def views(self) -> Mapping[str, View]:
        """Each target as shown."""

    def telemetry_view(self) -> TelemetryView | None:
        """The newest of telemetry, None before the first."""

    def session_count(self) -> int:
        """Sessions known."""

    def slos(self) -> Iterable[Slo]:
        """What each class is held against."""

    def protocol_counts(self) -> Mapping[tuple[str, str], int]:
        """What callers' messages came to, by (way, name): what was ignored, repeated, broken."""


def _no_trace(_: TicketId) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Families of one instant. They share nothing with the exporter, so any thread may encode them."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        """What a registry gives."""
        return self.families

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, as the Accept header of the scrape asks."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


class PrometheusExporter:
    """Listens to events and answers scrapes, from a registry of its own. One thread: the admission loop."""

    def __init__(
        self, state: StateSource, version: str, trace_id_of: Callable[[TicketId], str] = _no_trace
    ) -> None:
        self._state = state
        self._version = version
        self._trace_id_of = trace_id_of
        self._usual = 0
        self._make_series()
        self._by_type: dict[type[Any], Callable[[str, Any], None]] = {
            Admitted: self._admitted,
            Queued: self._queued,
            Rejected: self._rejected,
            Shed: self._shed,
            ShadowDecided: self._shadow_decided,
            Finished: self._finished,
            LimitChanged: self._limit_changed,
            LeaseExpired: self._lease_expired,
        }
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def _make_series(self) -> None:
        target, by_class = ("target",), ("target", "class")
        decision = (*by_class, "verdict", "reason")
        self._decisions = Counts("tidegate_decisions", "Decisions given", decision)
        self._shadow = Counts("tidegate_shadow_decisions", "What enforce would have said instead", decision)
        self._good = Counts("tidegate_good", "Finished whole within the SLO", by_class)
        self._ended = Counts("tidegate_finished", "Admitted requests that ended", (*by_class, "outcome"))
        self._changes = Counts("tidegate_limit_changes", "Moves of the limit", (*target, "source"))
        self._expired = Counts(
            "tidegate_lease_expired", "Permits taken back because nobody renewed them", target
        )
        self._wait = Histograms(
            "tidegate_queue_wait_seconds", "Wait before the final answer", by_class, WAIT_S
        )
        self._ttft = Histograms(
            "tidegate_ttft_seconds", "Arrival to first token, wait included", by_class, TTFT_S
        )
        self._tpot = Histograms(
            "tidegate_tpot_seconds", "Seconds per output token after the first", by_class, TPOT_S
        )
        self._e2e = Histograms("tidegate_e2e_seconds", "Arrival to end", by_class, E2E_S)
        self._decision_time = Histograms(
            "tidegate_decision_seconds", "Arrival to first answer", (), DECISION_S
        )

    def on_event(self, target: str, event: Event, now: float) -> None:
        """Counts one event of the controller."""
        if handle := self._by_type.get(type(event)):
            handle(target, event)

    def on_decision_time(self, seconds: float) -> None:
        """Time from a ticket's arrival in the process to its first answer."""
        self._decision_time.observe((), seconds)

    def gather(self) -> Gathered:
        """Everything as of now, to be written out elsewhere: encoding costs several times what gathering does."""
        return Gathered(list(self.registry.collect()))

    def collect(self) -> Iterator[Metric]:
        """Every family, called by the registry."""
        yield from target_gauges(self._state.views())
        yield slo_gauge(self._state.slos())
        yield from host_gauges(self._version, self._state.session_count())
        yield protocol_counter(self._state.protocol_counts())
        yield from telemetry_families(self._state.telemetry_view())
        for series in vars(self).values():
            if isinstance(series, Counts | Histograms):
                yield from series.collect()

    def _trace_of(self, id: TicketId, *, usual: bool) -> str:
        """Its trace id, where somebody may want to follow it: who waited, who missed the SLO, and a few others."""
        if usual:
            self._usual += 1
            if self._usual % _TRACED != 1:
                return ""
        return self._trace_id_of(id)

    def _count(
        self, target: str, ticket: Ticket, verdict: Verdict, reason: Reason | None, trace_id: str
    ) -> None:
        labels = (target, _CLASS[ticket.priority], _VERDICT[verdict], _REASON[reason])
        self._decisions.add(labels, 1, trace_id)

    def _admitted(self, target: str, event: Admitted) -> None:
        ticket, waited_s = event.ticket, event.waited_s
        trace_id = self._trace_of(ticket.id, usual=waited_s == 0.0)
        self._count(target, ticket, Verdict.ADMITTED, None, trace_id)
        self._wait.observe((target, _CLASS[ticket.priority]), waited_s, trace_id)
        if event.shadow is not None:
            self._count_shadow(target, event.shadow)

    def _count_shadow(self, target: str, said: Rejected | Shed | Queued) -> None:
        verdict = {Rejected: Verdict.REJECTED, Shed: Verdict.SHED, Queued: Verdict.QUEUED}[type(said)]
        reason = None if isinstance(said, Queued) else said.reason
        self._shadow.add((target, _CLASS[said.ticket.priority], _VERDICT[verdict], _REASON[reason]))

    def _queued(self, target: str, event: Queued) -> None:
        self._count(target, event.ticket, Verdict.QUEUED, None, "")

    def _rejected(self, target: str, event: Rejected) -> None:
        self._count(target, event.ticket, Verdict.REJECTED, event.reason, self._trace_id_of(event.ticket.id))

    def _shed(self, target: str, event: Shed) -> None:
        ticket = event.ticket
        trace_id = self._trace_id_of(ticket.id)
        self._count(target, ticket, Verdict.SHED, event.reason, trace_id)
        self._wait.observe((target, _CLASS[ticket.priority]), event.waited_s, trace_id)

    def _shadow_decided(self, target: str, event: ShadowDecided) -> None:
        labels = (target, _CLASS[event.ticket.priority], _VERDICT[event.verdict], _REASON[event.reason])
        self._shadow.add(labels)

    def _finished(self, target: str, event: Finished) -> None:
        labels = (target, _CLASS[event.ticket.priority])
        trace_id = self._trace_of(event.ticket.id, usual=event.good is not False)
        self._ended.add((*labels, _OUTCOME[event.completion.outcome]))
        if event.good:
            self._good.add(labels)
        if event.ttft_s is not None:
            self._ttft.observe(labels, event.ttft_s, trace_id)
        if event.tpot_s is not None:
            self._tpot.observe(labels, event.tpot_s, trace_id)
        self._e2e.observe(labels, event.waited_s + event.held_s, trace_id)

    def _limit_changed(self, target: str, event: LimitChanged) -> None:
        self._changes.add((target, event.why.source.value))

    def _lease_expired(self, target: str, event: LeaseExpired) -> None:
        self._expired.add((target,))
