"""One sentence for the night: what is happening to a target now, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from admission.v1 import types_pb2 as types
from dashboard import wording
from dashboard.causes import (
    NEGLIGIBLE_PER_S,
    Facts,
    bottleneck,
    by_class,
    capital,
    cause,
    listing,
    load,
    lost_signals,
    missing_slo,
    mostly,
    refusal_sentence,
    sentences,
    shadow_note,
    since,
    within_slo,
)
from dashboard.picture import Picture


class Level(StrEnum):
    """How much an operator should care."""

    OK = "ok"
    ACTING = "acting"
    """Tidegate refuses or delays, as it should."""
    WARN = "warn"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


_GRAVITY = (Level.OK, Level.UNKNOWN, Level.ACTING, Level.WARN, Level.CRITICAL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, and the line below it."""

    level: Level
    headline: str
    detail: str = ""


def judge(facts: Facts) -> Verdict:
    """The first rule that has something to say, gravest first; pure."""
    return next(verdict for rule in _RULES if (verdict := rule(facts)) is not None)


def worst(levels: dict[str, Level]) -> str:
    """The name with the gravest level, the first of equals."""
    return max(levels, key=lambda name: _GRAVITY.index(levels[name]))


def judge_nothing(picture: Picture) -> Verdict:
    """The verdict when there is no target to judge: never seen, or a sidecar without targets."""
    if picture.away:
        return Verdict(
            Level.CRITICAL,
            "No sidecar to look at",
            f"{capital(picture.away)}. Is tidegate serve running, and is this its control address? "
            "Set it by TIDEGATE_CONTROL_ADDRESS.",
        )
    return Verdict(Level.UNKNOWN, "The sidecar protects no target yet", "Its configuration lists no targets.")


def _away(facts: Facts) -> Verdict | None:
    if not facts.picture.away:
        return None
    return Verdict(
        Level.CRITICAL,
        f"No word from the sidecar for {wording.ago(facts.picture.age_s)}",
        f"{capital(facts.picture.away)}. Clients follow their fail policy: by default they admit up to what "
        "they held. All values below are old.",
    )


def _off(facts: Facts) -> Verdict | None:
    if facts.target.mode != types.MODE_OFF:
        return None
    return Verdict(Level.WARN, "Off: every request passes, nothing is protected", load(facts.target))


def _draining(facts: Facts) -> Verdict | None:
    target = facts.target
    snapshot = facts.picture.snapshot
    if not (target.draining or (snapshot is not None and snapshot.draining)):
        return None
    return Verdict(
        Level.WARN,
        f"Draining: new requests are refused, {target.in_flight} in flight finish",
        mostly(facts.refusing()),
    )


def _outage(facts: Facts) -> Verdict | None:
    if facts.target.engine_state != "outage":
        return None
    return Verdict(
        Level.CRITICAL,
        _prefix(
            facts, "The engine does not serve: all requests are refused", "all requests would be refused"
        ),
        _outage_change(facts),
    )


def _lost_gpu(facts: Facts) -> Verdict | None:
    lost = [gpu for gpu in facts.picture.gpus(facts.target.name) if gpu.state == "lost"]
    if not lost:
        return None
    names = ", ".join(f"{gpu.name or 'GPU'} {wording.gpu(gpu.uuid)}" for gpu in lost)
    return Verdict(
        Level.CRITICAL,
        f"GPU lost: {names}",
        sentences(
            refusal_sentence(facts) or "Nobody is refused for it so far",
            "The driver no longer answers for it",
        ),
    )


def _closed_gate(facts: Facts) -> Verdict | None:
    """A gate that stops all admission."""
    for gate in facts.target.gates:
        if gate.state in {"critical", "closed"} and gate.name != "outage":
            sentence = _prefix(facts, "Admission is stopped", "admission would be stopped")
            return Verdict(
                Level.CRITICAL,
                f"{sentence}: {gate.why or gate.name + ' ' + gate.state}",
                sentences(refusal_sentence(facts), load(facts.target)),
            )
    return None


def _starting(facts: Facts) -> Verdict | None:
    if facts.target.engine_state != "starting":
        return None
    return Verdict(
        Level.UNKNOWN,
        "The engine has not answered yet",
        "Tidegate waits for it and judges nothing until its metrics or its first answers come.",
    )


def _refusing(facts: Facts) -> Verdict | None:
    refusing = facts.refusing()
    total = sum(refusing.values())
    if total < NEGLIGIBLE_PER_S:
        return None
    offered = total + facts.rates.admitted_total() if not facts.shadow else facts.rates.admitted_total()
    classes = by_class(refusing)
    sentence = f"{wording.rate(total)} of {wording.rate(max(offered, total))} requests/s"
    headline = f"Refusing {listing(classes)}: {sentence}"
    if facts.shadow:
        headline = f"Shadow: nobody is refused. Enforcing would refuse {listing(classes)}: {wording.rate(total)} requests/s"
    level = Level.WARN if missing_slo(facts) else Level.ACTING
    return Verdict(
        level, headline, sentences(cause(facts, refusing), mostly(refusing), since(facts), within_slo(facts))
    )


def _slow(facts: Facts) -> Verdict | None:
    missing = missing_slo(facts)
    if not missing or _at_rest(facts):
        return None
    return Verdict(
        Level.WARN,
        f"Slow: {missing}",
        sentences("Nobody is refused", lost_signals(facts), load(facts.target)),
    )


def _frozen(facts: Facts) -> Verdict | None:
    if not facts.target.frozen and facts.target.sight != "blind":
        return None
    reason = facts.target.frozen or "nothing is known of the engine"
    return Verdict(
        Level.WARN, f"The limit is frozen: {reason}", sentences(lost_signals(facts), load(facts.target))
    )


def _half_blind(facts: Facts) -> Verdict | None:
    missing = lost_signals(facts)
    if not missing:
        return None
    return Verdict(Level.WARN, f"{missing}: working with less sight", load(facts.target))


def _queueing(facts: Facts) -> Verdict | None:
    if not facts.target.queued:
        return None
    classes = [f"{cls.queued} {cls.name}" for cls in facts.target.classes if cls.queued]
    return Verdict(
        Level.ACTING,
        f"{facts.target.queued} requests wait their turn, nobody is refused",
        sentences(", ".join(classes), bottleneck(facts), within_slo(facts)),
    )


def _idle(facts: Facts) -> Verdict | None:
    if not _at_rest(facts):
        return None
    return Verdict(Level.OK, "Idle: no requests now", shadow_note(facts))


def _at_rest(facts: Facts) -> bool:
    """Nothing runs and nothing came in the last seconds: percentiles are of a minute ago."""
    return not facts.target.in_flight and not facts.rates.admitted_total() and facts.rates.window_s > 0


def _healthy(facts: Facts) -> Verdict:
    return Verdict(
        Level.OK,
        "Healthy: nobody is refused, nobody waits",
        sentences(load(facts.target), within_slo(facts), shadow_note(facts)),
    )


_RULES: tuple[Callable[[Facts], Verdict | None], ...] = (
    _away,
    _off,
    _outage,
    _draining,
    _closed_gate,
    _lost_gpu,
    _starting,
    _refusing,
    _slow,
    _frozen,
    _half_blind,
    _queueing,
    _idle,
    _healthy,
)


def _outage_change(facts: Facts) -> str:
    """Why the engine is taken for down, and for how long."""
    change = next((change for change in reversed(facts.target.changes) if change.new == "outage"), None)
    if change is None:
        return ""
    return sentences(change.why, f"for {wording.ago(facts.picture.unix_now - change.at.seconds)}")


def _prefix(facts: Facts, enforced: str, shadowed: str) -> str:
    return f"Shadow: nobody is refused. Enforcing, {shadowed}" if facts.shadow else enforced
