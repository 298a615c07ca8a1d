"""Figures of a run by name, as the checks of a scenario ask for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields

from admission.simulation.judging import Report, Row
from admission.simulation.scenarios.loading import scenario
from admission.simulation.scenarios.running import Played, play
from admission.simulation.scenarios.scenario import Check, Scenario

FALL_S = 10.0
WINDOW_S = 10
LOOK_S = 40
STEADY_AFTER_S = 60.0
ENOUGH_RATIO = 0.9


def played(name: str, policy: str, seed: int) -> Played:
    """A run of a shipped scenario."""
    return play(scenario(name), policy, seed)


def recoveries_s(played: Played) -> list[float | None]:
    """Seconds after each disturbance's end until goodput was back; after a change for good, at what it then comes to."""
    for_good = {span[0] for span in played.scenario.changes_for_good()}
    return [
        _settled_s(played, span[0]) if span[0] in for_good else after_s
        for span, after_s in zip(played.report.disturbances, played.report.recovery_s, strict=True)
    ]


def recovery_s(played: Played) -> float:
    """Seconds to come back from the slowest disturbance to come back from; infinite when it never did."""
    return max((math.inf if each is None else each for each in recoveries_s(played)), default=0.0)


def _settled_s(played: Played, at_s: float) -> float | None:
    """From the worst ten seconds soon after a change: until goodput is at 90 % of that from a minute later on."""
    end_s = played.scenario.duration_s - played.scenario.tail_s
    steady = _goodput(played, at_s + STEADY_AFTER_S, end_s)
    windows = [
        (_goodput(played, at_s + after_s, at_s + after_s + WINDOW_S), after_s)
        for after_s in range(int(end_s - at_s - WINDOW_S))
    ]
    worst = min(windows[:LOOK_S], key=lambda window: window[0])
    if worst[0] >= ENOUGH_RATIO * steady:
        return 0.0
    back = (after_s for good, after_s in windows[worst[1] :] if good >= ENOUGH_RATIO * steady)
    return next(map(float, back), None)


def _goodput(played: Played, since_s: float, until_s: float) -> float:
    rows = [row for row in played.timeline.moments() if since_s <= row.at_s < until_s]
    return sum(row.good for row in rows) / max(1, sum(row.offered for row in rows))


def preemptions(played: Played) -> float:
    """How often the engines threw work away."""
    return float(played.world.preemptions_total)


def limit_end(played: Played) -> float:
    """The limit when the last request arrives, in the policy's unit."""
    return _limits(played, 0.0, played.scenario.duration_s)[-1]


def limit_fall(played: Played) -> float:
    """How far the limit went down within 10 s of the first disturbance, as a share of what it was."""
    at_s = played.report.disturbances[0][0]
    before = _limits(played, 0.0, at_s)[-1]
    return 1.0 - min(_limits(played, at_s, at_s + FALL_S)) / before


def _limits(played: Played, since_s: float, until_s: float) -> Sequence[float]:
    rows = played.timeline.moments()
    return [math.inf if row.limit is None else row.limit for row in rows if since_s <= row.at_s < until_s]


OWN: dict[str, Callable[[Played], float]] = {
    one.__name__: one for one in (recovery_s, preemptions, limit_end, limit_fall)
}
RATIOS = (
    "goodput_requests_ratio",
    "goodput_tokens_ratio",
    "accepted_within_slo_ratio",
    "served_within_slo_ratio",
)
SERVED = "served_ratio"
"""Served whole over offered."""


def names() -> list[str]:
    """What can be asked for."""
    return sorted({*OWN, *RATIOS, SERVED, *(field.name for field in fields(Row))} - {"name"})


def value(
    one: Scenario, check: Check, policy: str, seed: int, run: Callable[[str, str, int], Played] = played
) -> float:
    """What a check comes to under a policy; `run` plays a scenario by name, and may remember.

    Raises:
        ValueError: there is no such figure, or no request of such a class or tenant.
    """
    found = figure(run(one.name, policy, seed), check)
    return found / figure(run(check.against, policy, seed), check) if check.against else found


def figure(played: Played, check: Check) -> float:
    """The figure that a check asks for in one run; what did not happen counts as infinite.

    Raises:
        ValueError: there is no such figure, or no request of such a class or tenant.
    """
    if check.measure not in names():
        raise ValueError(f"no figure {check.measure!r}; there are {', '.join(names())}")
    if check.measure in OWN:
        return OWN[check.measure](played)
    row = _row(played.report, check.of)
    if check.measure == SERVED:
        return row.served_requests / max(1, row.offered_requests)
    value = getattr(row, check.measure)
    return math.inf if value is None else float(value)


def _row(report: Report, of: str) -> Row:
    if not of:
        return report
    found = next((row for row in (*report.per_class, *report.per_tenant) if row.name == of), None)
    if found is None:
        raise ValueError(f"no class and no tenant {of!r} was offered")
    return found
