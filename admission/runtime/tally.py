"""Counts decisions per target for the line that the log says each minute."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.core.model import Admitted, Event, Finished, Queued, Rejected, ShadowDecided, Shed, View
from admission.vocabulary import Verdict

_REFUSED = (Rejected, Shed)
_REFUSALS = frozenset({Verdict.REJECTED, Verdict.SHED})


@dataclass(slots=True)
class Minute:
    """What was decided since the last line. `would_refuse` counts in shadow what enforce would have refused."""

    admitted: int = 0
    refused: int = 0
    would_refuse: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def said(target: str, view: View, minute: Minute) -> dict[str, object]:
    """The fields of the line about one target."""
    fields: dict[str, object] = {
        "target": target,
        "mode": view.mode.name.lower(),
        "engine": view.engine_state.value,
        "limit_tokens": view.limit,
        "used_tokens": view.used,
        "in_flight": view.in_flight,
        "queued": view.queued,
        "admitted": minute.admitted,
        "refused": minute.refused,
    }
    if minute.would_refuse:
        fields["enforce_would_refuse"] = minute.would_refuse
    if minute.reasons:
        fields["reasons"] = [f"{reason}:{count}" for reason, count in minute.reasons.items()]
    return fields


class Tally:
    """Listens to events; `take` gives a target's counts and begins anew."""

    def __init__(self) -> None:
        self._now: dict[str, Minute] = {}

    def on_event(self, target: str, event: Event, now: float) -> None:
        """Counts a final decision."""
        if isinstance(event, Finished):
            return
        if isinstance(event, Admitted):
            minute = self._now.get(target) or self._of(target)
            minute.admitted += 1
            if event.shadow is not None and not isinstance(event.shadow, Queued):
                self._would_refuse(minute, event.shadow.reason.name)
        elif isinstance(event, _REFUSED):
            minute = self._of(target)
            minute.refused += 1
            minute.reasons[event.reason.name] = minute.reasons.get(event.reason.name, 0) + 1
        elif isinstance(event, ShadowDecided) and event.verdict in _REFUSALS:
            self._would_refuse(self._of(target), event.reason.name if event.reason else "")

    def _would_refuse(self, minute: Minute, reason: str) -> None:
        minute.would_refuse += 1
        minute.reasons[reason] = minute.reasons.get(reason, 0) + 1

    def _of(self, target: str) -> Minute:
        return self._now.setdefault(target, Minute())

    def take(self, target: str) -> Minute:
        """The counts of the target since the last call."""
        return self._now.pop(target, Minute())
