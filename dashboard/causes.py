"""Why a target is as it is, in words: what refuses, what holds back, what is slow, what is not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard import wording
from dashboard.picture import History, Line, Picture
from dashboard.rates import Rates

_SINCE_GAP_S = 15.0
NEGLIGIBLE_PER_S = 0.05
_GATES = {"WATERMARK_KV": "kv", "WATERMARK_VRAM": "vram", "BREAKER": "breaker", "QUOTA": "quota"}
_MEANS = {
    "QUEUE_FULL": "as many wait as may wait",
    "QUEUE_TOKENS": "more prompt tokens wait than can be prefilled in time",
    "DEADLINE": "no place was free within their patience",
    "TTFT_FORECAST": "their first token would come after its SLO",
    "DISPLACED": "more urgent requests took their place",
    "DEGRADED": "the degrade ladder refuses this class",
    "NEVER_FITS": "prompts larger than the engine can hold",
    "UNAUTHORIZED": "callers without permission",
    "OUTAGE": "the engine does not serve",
    "DRAINING": "the target is draining",
}
_OWN_CAUSE = {"DEGRADED", "NEVER_FITS", "UNAUTHORIZED", "OUTAGE", "DRAINING"}
"""Reasons that no bottleneck explains."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a verdict is a function of."""

    picture: Picture
    target: monitor.TargetSnapshot
    rates: Rates
    history: History

    @property
    def shadow(self) -> bool:
        """Decisions are recorded and not applied."""
        return self.target.mode == types.MODE_SHADOW

    def refusing(self) -> dict[tuple[str, str], float]:
        """Refusals per second now; in shadow those that enforcing would make."""
        return dict(self.rates.would_refuse if self.shadow else self.rates.refused)


def cause(facts: Facts, refusing: Mapping[tuple[str, str], float]) -> str:
    """Why: the reason with the most refusals, in words with its measured value."""
    top = next(iter(by_reason(refusing)))
    gate = _GATES.get(top)
    if gate is not None:
        return next((g.why for g in facts.target.gates if gate in g.name and g.why), wording.words(top))
    return (top not in _OWN_CAUSE and bottleneck(facts)) or _MEANS.get(top, wording.words(top))


def bottleneck(facts: Facts) -> str:
    """What holds admission back now, in the law's own terms; empty when nothing does at this moment."""
    target = facts.target
    hot = next((gate.why for gate in target.gates if gate.state == "hot" and gate.why), "")
    if hot:
        return hot
    if target.HasField("tpot_ratio") and target.tpot_ratio > 1:
        return f"TPOT is {target.tpot_ratio:.2f}x its SLO, which holds the limit down"
    if target.prefill_budget_tokens and target.pending_prompt_tokens >= 0.9 * target.prefill_budget_tokens:
        return (
            f"prefill is the bottleneck: {wording.count(target.pending_prompt_tokens)} of "
            f"{wording.count(target.prefill_budget_tokens)} prompt tokens wait for a first token"
        )
    if target.HasField("slots") and target.slots and target.in_flight >= target.slots:
        return f"all {target.slots} sequence slots of the engine are taken"
    if target.limit_tokens and target.used_tokens >= 0.85 * target.limit_tokens:
        return f"the limit is full: {wording.count(target.used_tokens)} of {wording.count(target.limit_tokens)} tokens"
    return ""


def missing_slo(facts: Facts) -> str:
    """The class and measure that is most over its SLO, empty when none is."""
    worst, text = 1.0, ""
    for cls in facts.target.classes:
        for name, slo, measured in (
            ("TTFT", cls.slo_ttft_s if cls.HasField("slo_ttft_s") else 0.0, cls.ttft),
            ("TPOT", cls.slo_tpot_s if cls.HasField("slo_tpot_s") else 0.0, cls.tpot),
        ):
            good, finished = facts.rates.good.get(cls.name, (0, 0))
            most_are_good = finished >= 20 and good >= 0.9 * finished
            if not slo or not measured.HasField("p95") or measured.count < 5 or most_are_good:
                continue
            if measured.p95 / slo > worst:
                worst = measured.p95 / slo
                text = f"{cls.name} {name} p95 {wording.seconds(measured.p95)} over {wording.seconds(slo)}"
    return text


def lost_signals(facts: Facts) -> str:
    """The signals that were there and are no more, in words; what never came is no news."""
    groups: dict[tuple[str, str, str], list[monitor.SignalSnapshot]] = {}
    for signal in facts.picture.signals(facts.target.name):
        if is_lost(signal):
            groups.setdefault((signal.source, member_of(signal), signal.state), []).append(signal)
    texts = [_lost(group) for group in groups.values()]
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _lost(group: list[monitor.SignalSnapshot]) -> str:
    """Several signals of one source that fail together have one cause."""
    first = group[0]
    name = wording.words(first.name.partition(" @")[0])
    what = name if len(group) == 1 else f"{len(group)} {first.source} signals"
    member = f" of {wording.gpu(member_of(first))}" if member_of(first) else ""
    age = f" for {wording.ago(max(map(age_s, group)))}" if first.HasField("age") else ""
    return f"{what}{member} {first.state}{age}"


def member_of(signal: monitor.SignalSnapshot) -> str:
    """The engine process or GPU that a signal is about: what follows ` @` in its name."""
    return signal.name.partition(" @")[2]


def age_s(signal: monitor.SignalSnapshot) -> float:
    """Seconds since the signal was last seen."""
    return signal.age.seconds + signal.age.nanos / 1e9


def is_lost(signal: monitor.SignalSnapshot) -> bool:
    """It was there and is not any more."""
    return signal.state == "stale" or (signal.state == "missing" and signal.count > 0)


def refusal_sentence(facts: Facts) -> str:
    """How much is refused, of whom and since when; empty when nobody is."""
    refusing = facts.refusing()
    total = sum(refusing.values())
    if total < NEGLIGIBLE_PER_S:
        return ""
    verb = "would be refused" if facts.shadow else "refused"
    return sentences(f"{wording.rate(total)} requests/s {verb} ({listing(by_class(refusing))})", since(facts))


def since(facts: Facts) -> str:
    """How long refusals have gone on, by history; empty when that does not say."""
    name = "shadow_refused_per_s" if facts.shadow else "refused_per_s"
    line = facts.history.line(name)
    start = _run_start(line)
    if start is None:
        return ""
    if line.unix_s[0] >= start:
        return f"for more than {wording.ago(facts.picture.unix_now - start)}"
    return f"for {wording.ago(facts.picture.unix_now - start)}"


def _run_start(line: Line) -> float | None:
    """When the present run of values above zero began; short pauses do not end it."""
    start = None
    for at, value in zip(reversed(line.unix_s), reversed(line.value), strict=False):
        if value > 0:
            start = at
        elif (start if start is not None else line.unix_s[-1]) - at > _SINCE_GAP_S:
            break
    return start


def within_slo(facts: Facts) -> str:
    """The share within SLO of each class that finished something in the last minute."""
    parts = []
    for cls in facts.target.classes:
        good, finished = facts.rates.good.get(cls.name, (0, 0))
        if finished:
            parts.append(f"{cls.name} {wording.share(good, finished)}")
    return f"within SLO: {', '.join(parts)}" if parts else ""


def load(target: monitor.TargetSnapshot) -> str:
    """What is in flight and how much of the limit it takes."""
    if not target.limit_tokens:
        return f"{target.in_flight} in flight"
    return f"{target.in_flight} in flight use {wording.percent(target.used_tokens / target.limit_tokens)} of the limit"


def shadow_note(facts: Facts) -> str:
    """In shadow with nothing to refuse: say that nothing would be applied either."""
    return (
        "shadow: decisions are recorded, not applied; enforcing would refuse nobody now"
        if facts.shadow
        else ""
    )


def mostly(refusing: Mapping[tuple[str, str], float]) -> str:
    """The two most frequent reasons with their shares."""
    reasons = by_reason(refusing)
    total = sum(reasons.values())
    shares = [f"{wording.words(name)} {wording.percent(value / total)}" for name, value in reasons.items()]
    return ", ".join(shares[:2])


def by_reason(refusing: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Refusals per second over all classes, the most frequent reason first."""
    reasons: dict[str, float] = {}
    for (_, reason), value in refusing.items():
        reasons[reason] = reasons.get(reason, 0) + value
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def by_class(refusing: Mapping[tuple[str, str], float]) -> list[str]:
    """The classes that are refused, the most refused first."""
    classes: dict[str, float] = {}
    for (cls, _), value in refusing.items():
        classes[cls] = classes.get(cls, 0) + value
    return sorted(classes, key=lambda cls: -classes[cls])


def listing(names: list[str]) -> str:
    """Names joined as in a sentence."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def sentences(*parts: str) -> str:
    """The parts that say something, each as a sentence."""
    text = ". ".join(capital(part.rstrip(".")) for part in parts if part)
    return text + "." if text else ""


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
