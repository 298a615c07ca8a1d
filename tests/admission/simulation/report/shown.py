"""Made-up runs for the tests of what people see."""

from __future__ import annotations

from dataclasses import dataclass

from admission.simulation.fate import Fate
from admission.simulation.judging import Judge, Report
from admission.simulation.timeline import State, Timeline
from tests.admission.simulation.fates import impatient, refused, served

DISTURBANCE = (40.0, 50.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as a study has it."""

    label: str
    load: float
    seed: int
    report: Report
    timeline: Timeline | None = None
    limit_requests: int | None = None


def run(
    label: str = "tidegate",
    *fates: Fate,
    load: float = 1.0,
    seed: int = 0,
    limit: float = 1_000.0,
    in_tokens: bool = True,
    watched: bool = True,
) -> Run:
    """A run of 100 s, judged from 10 to 90 s, disturbed in the middle."""
    judge = Judge(from_s=10.0, until_s=90.0, disturbances=[DISTURBANCE])
    timeline = Timeline(from_s=10.0, until_s=90.0)
    for fate in fates or usual():
        timeline.settle(fate, good=judge.settle(fate))
    for at in range(100):
        used = 40.0 * (20 if in_tokens else 1)
        state = State(limit=limit + at, used=used, in_flight=40, queued=3, engine_waiting=1, kv_ratio=0.5)
        timeline.look(at, state)
    report = judge.report(timeline.limit_variation_ratio)
    return Run(label, load, seed, report, timeline if watched else None)


def usual() -> list[Fate]:
    """Ten requests a second, none good while disturbed; each tenth is refused, and one caller leaves."""
    found = []
    for no in range(1_000):
        at_s = no / 10
        if no % 10 == 0:
            found.append(refused(at_s, "QUEUE_FULL"))
        else:
            slow = DISTURBANCE[0] <= at_s < DISTURBANCE[1]
            found.append(served(at_s, ttft_s=9.0 if slow else 0.5, prompt=100 + no % 7))
    return [*found, impatient(60.0)]
