"""How a decision on the wire, or the client's own, becomes an answer."""

from __future__ import annotations

from admission.client.calls import Answer, seconds_of
from admission.v1.types_pb2 import Decision
from admission.vocabulary import Reason, Verdict

_VERDICTS = {int(verdict): verdict for verdict in Verdict}
_REASONS = {int(reason): reason for reason in Reason}


def answer_of(decision: Decision) -> Answer | None:
    """The final answer in a decision; None for a verdict that this release does not know."""
    verdict = _VERDICTS.get(decision.verdict)
    if verdict is None or verdict is Verdict.QUEUED:
        return None
    if verdict is Verdict.ADMITTED and not decision.shadow:
        answer = Answer(verdict, waited_s=seconds_of(decision.waited), target=decision.target)
    else:
        answer = _explained(verdict, decision)
    if decision.HasField("advice"):
        answer.advice_max_tokens, answer.advice_model = decision.advice.max_tokens, decision.advice.model
    return answer


def _explained(verdict: Verdict, decision: Decision) -> Answer:
    return Answer(
        verdict,
        _REASONS.get(decision.reason),
        decision.detail,
        decision.measured,
        decision.threshold,
        decision.unit,
        seconds_of(decision.retry_after),
        decision.position,
        seconds_of(decision.expected_wait),
        seconds_of(decision.waited),
        decision.target,
        decision.shadow,
    )


def refusal(reason: Reason, detail: str, spread: float) -> Answer:
    """A refusal of the client's own. `spread` is 0 to 1 and sets the return at 1 to 2 s."""
    return Answer(Verdict.REJECTED, reason, detail, retry_after_s=1.0 + spread, local=True)


def went_alone(why: str, *, shadow: bool) -> Answer:
    """An admission of the client's own."""
    return Answer(Verdict.ADMITTED, detail=why, local=True, shadow=shadow)


def own_fault(*, refuse: bool) -> Answer:
    """The client failed to ask: admitted, or an outage where the fail policy is closed."""
    if refuse:
        return Answer(
            Verdict.REJECTED, Reason.OUTAGE, "a fault in the client; the fail policy is closed", local=True
        )
    return Answer(Verdict.ADMITTED, local=True, detail="fault contained")
