"""Events of the core as the exporters' tests feed them."""

from __future__ import annotations

from admission.core.model import (
    Admitted,
    ClassView,
    Completion,
    Finished,
    Flow,
    GateView,
    Queued,
    Rejected,
    Shed,
    Ticket,
    TicketId,
    View,
    Why,
)
from admission.vocabulary import EngineState, Mode, Outcome, PriorityClass, Reason
from telemetry.exporters.gauges import Slo
from telemetry.link import TelemetryView

WHY = Why("KV usage 0.98 over critical 0.97", 0.98, 0.97, "ratio")


def ticket(no: int = 1, priority: PriorityClass = PriorityClass.INTERACTIVE) -> Ticket:
    """A ticket of tenant acme for model m."""
    return Ticket(
        TicketId("owner", no), priority, Flow("acme", "m", "/v1/chat/completions"), prompt_tokens=100
    )


def admitted(no: int = 1, waited_s: float = 0.02, shadow: Rejected | Shed | Queued | None = None) -> Admitted:
    """It may run."""
    return Admitted(ticket(no), waited_s, 300, shadow=shadow)


def rejected(no: int = 1, reason: Reason = Reason.WATERMARK_KV) -> Rejected:
    """It may not."""
    return Rejected(ticket(no), reason, 5.0, WHY)


def shed(no: int = 1) -> Shed:
    """It waited in vain."""
    return Shed(ticket(no), Reason.DEADLINE, 2.0, WHY, 1.5)


def finished(no: int = 1, good: bool | None = True) -> Finished:
    """It is done."""
    return Finished(ticket(no), Completion(Outcome.OK), 0.5, 1.5, 0.7, 0.02, 50, good)


def view(mode: Mode = Mode.ENFORCE, kv: float | None = 0.5) -> View:
    """A target's state."""
    return View(
        mode=mode,
        limit_algorithm="aimd",
        limit=32_000,
        used=8_000,
        untracked=100,
        in_flight=3,
        queued=2,
        prefill_budget=4_000,
        pending_prompt_tokens=500,
        prefill_rate=8_000.0,
        kv_usage_ratio=kv,
        kv_capacity_tokens=100_000,
        engine_running=3,
        engine_waiting=0,
        engine_state=EngineState.UP,
        sight="full",
        frozen="",
        draining=False,
        tokens_per_chunk=1.0,
        tpot_ratio=0.9,
        slots=None,
        classes=[ClassView(PriorityClass.INTERACTIVE, 3, 2, 700)],
        gates=[GateView("kv", "hot", WHY)],
        vram={},
    )


class State:
    """What the exporter asks, with answers given here."""

    def __init__(self, views: dict[str, View] | None = None, telemetry: TelemetryView | None = None) -> None:
        self._views = views or {}
        self._telemetry = telemetry

    def views(self) -> dict[str, View]:
        """Each target as shown."""
        return self._views

    def telemetry_view(self) -> TelemetryView | None:
        """The newest of telemetry."""
        return self._telemetry

    def session_count(self) -> int:
        """Two."""
        return 2

    def slos(self) -> list[Slo]:
        """One that somebody chose, and one that nobody did."""
        interactive = PriorityClass.INTERACTIVE
        return [Slo("a", interactive, "ttft", 1.5, True), Slo("a", interactive, "tpot", 0.08, False)]

    def protocol_counts(self) -> dict[tuple[str, str], int]:
        """A release that came too late."""
        return {("unary", "ignored_releases"): 3}
