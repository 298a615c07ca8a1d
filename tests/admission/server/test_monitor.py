"""What a snapshot says, and what it is careful not to say."""

from __future__ import annotations

from admission.core.model import Flow, ShadowDecided, Ticket, TicketId
from admission.server.monitor import Monitor
from admission.server.picture import recorded
from admission.vocabulary import PriorityClass, Reason, Verdict
from telemetry.link import GpuReport, TelemetryView
from telemetry.processors.windows import Windows
from tests.admission.server.desk import Desk


def watching(desk: Desk) -> Monitor:
    """A monitor that hears of everything at the desk."""
    monitor = Monitor(desk.host, Windows(), desk.tickets, "test")
    desk.host.listen(monitor.counts)
    return monitor


def test_an_slo_is_a_default_unless_the_user_set_it() -> None:
    """Also when the user set it to what the default happens to be: then it was looked at."""
    desk = Desk()
    monitor = watching(desk)
    monitor.own_slos = {"default": {PriorityClass.BATCH}}

    drawn = {each.name: each.slo_is_default for each in monitor.snapshot().targets[0].classes}

    assert drawn == {"interactive": True, "batch": False, "internal": True}


def test_a_lost_gpu_stands_among_the_changes() -> None:
    """Whoever asks why capacity went looks there."""
    desk = Desk()
    monitor = watching(desk)

    for state in ("ok", "lost", "lost"):
        monitor.telemetry(TelemetryView(gpus=[GpuReport("GPU-1", "H100", target="default", state=state)]))

    (change,) = monitor.snapshot().targets[0].changes
    assert (change.what, change.old, change.new, change.count) == ("gpu GPU-1", "ok", "lost", 1)
    assert change.why == "H100 GPU-1 does not answer"


def test_what_shadow_would_have_shed_is_a_decision_with_its_reason() -> None:
    """Who judges shadow mode looks at single requests, not only at totals."""
    desk = Desk()
    monitor = watching(desk)
    ticket = Ticket(TicketId("owner", 7), PriorityClass.BATCH, Flow("anonymous", "m", ""))

    desk.host.tell("default", ShadowDecided(ticket, Verdict.SHED, Reason.DEADLINE, 4.0))
    desk.host.tell("default", ShadowDecided(ticket, Verdict.ADMITTED, None, 1.0))
    desk.host.tell("default", ShadowDecided(ticket, Verdict.QUEUED, None, 1.0))

    (kept,) = monitor.counts.recent("default", "", 10, refused_only=False)
    drawn = recorded(kept, "acme").decision
    assert (drawn.verdict, drawn.shadow_verdict, drawn.reason) == (1, 4, int(Reason.DEADLINE))
    assert drawn.shadow
    assert drawn.waited.seconds == 4
