"""Wire and core say the same thing in the same words."""

from __future__ import annotations

from enum import IntEnum

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from admission.core.model import Admitted, Advice, Queued, Rejected, Shed, Ticket, TicketId, Why
from admission.server import translate
from admission.server.translate import Tickets, decide, seconds, set_duration
from admission.vocabulary import Mode, Outcome, PriorityClass, Reason, Source, Verdict
from tests.admission.server.desk import words

TICKET = Ticket(TicketId("o", 1))
WHY = Why("KV usage 0.98 over critical 0.97", 0.98, 0.97, "ratio", Source.SCRAPE)


@pytest.mark.parametrize(
    ("enum", "wire", "prefix"),
    [
        (Verdict, words.Verdict, "VERDICT"),
        (Reason, words.Reason, "REASON"),
        (Outcome, words.Outcome, "OUTCOME"),
        (Mode, words.Mode, "MODE"),
    ],
)
def test_enums_have_the_same_names_and_numbers(
    enum: type[IntEnum], wire: EnumTypeWrapper, prefix: str
) -> None:
    """Numbers go over the wire unmapped: a difference would lie about the reason."""
    ours = {f"{prefix}_{each.name}": int(each) for each in enum}

    assert {**ours, f"{prefix}_UNSPECIFIED": 0} == dict(wire.items())


@pytest.mark.parametrize("value_s", [0.0, 0.001, 1.5, 59.999999999, 3600.0])
def test_durations_survive(value_s: float) -> None:
    """To the nanosecond."""
    duration = Duration()
    set_duration(duration, value_s)

    assert seconds(duration) == pytest.approx(value_s, abs=1e-9)


def test_hostile_durations_are_bounded() -> None:
    """A patience of a thousand years, or a negative one, comes from outside."""
    assert seconds(Duration(seconds=-5)) == 0.0
    assert seconds(Duration(seconds=10**11)) == 86_400.0


def test_a_ticket_is_read_whole() -> None:
    """Every field the core has."""
    wire = words.Ticket(
        no=3,
        model="m",
        endpoint="/v1/chat/completions",
        priority_class="batch",
        stream=True,
        prompt_tokens=10,
        prompt_bytes=40,
        max_tokens=20,
        n=2,
        patience=Duration(seconds=5),
        waited=Duration(seconds=1),
    )

    read = Tickets(b"k").read("owner", 3, wire)

    assert read.id == TicketId("owner", 3)
    assert read.priority is PriorityClass.BATCH
    assert (read.flow.tenant, read.flow.model, read.flow.endpoint) == (
        "anonymous",
        "m",
        "/v1/chat/completions",
    )
    assert (read.prompt_tokens, read.prompt_bytes, read.max_tokens, read.n) == (10, 40, 20, 2)
    assert (read.stream, read.patience_s, read.waited_s) == (True, 5.0, 1.0)


def test_what_a_ticket_leaves_out_is_unknown_not_zero() -> None:
    """No patience means the class's own."""
    read = Tickets(b"k").read("owner", 1, words.Ticket())

    assert (read.patience_s, read.n, read.priority) == (None, 1, PriorityClass.INTERACTIVE)


def test_a_remembered_place_counts_when_it_is_longer() -> None:
    """What the client says and what we remember are of the same wait: never their sum."""
    wire = words.Ticket(waited=Duration(seconds=3))

    assert Tickets(b"k").read("o", 1, wire, 2.0).waited_s == 3.0
    assert Tickets(b"k").read("o", 1, wire, 4.0).waited_s == 4.0


def test_an_unknown_class_is_interactive_and_counted() -> None:
    """A typing error must not lose requests, and must be seen."""
    tickets = Tickets(b"k")

    assert tickets.read("o", 1, words.Ticket(priority_class="vip")).priority is PriorityClass.INTERACTIVE
    assert tickets.unknown_classes == 1


def test_tenants_are_hashed_with_the_key_and_shown_from_memory() -> None:
    """Journal, history and core never hold a name; people still see one."""
    tickets, other = Tickets(b"k"), Tickets(b"another key")
    hashed = tickets.read("o", 1, words.Ticket(tenant="acme")).flow.tenant

    assert "acme" not in hashed
    assert hashed == tickets.tenant("acme") != other.tenant("acme")
    assert tickets.name(hashed) == "acme"
    assert tickets.name("t-unknown") == "t-unknown"
    assert tickets.tenant("") == "anonymous"


def test_invented_tenants_do_not_fill_the_memory() -> None:
    """Ten thousand names from one caller."""
    tickets = Tickets(b"k")
    for number in range(10_000):
        tickets.read("o", number, words.Ticket(tenant=f"t{number}"))

    assert len(tickets._flows) <= 4096
    assert len(tickets._names) <= 4096


def test_a_refusal_says_why_and_when_to_come_back() -> None:
    """A caller that hears only "no" comes back at once."""
    decision = words.Decision(no=1)
    decide(decision, Rejected(TICKET, Reason.WATERMARK_KV, 2.5, WHY, 4, 1.5), "llama")

    assert (decision.verdict, decision.reason) == (Verdict.REJECTED, Reason.WATERMARK_KV)
    assert (decision.measured, decision.threshold, decision.unit) == (0.98, 0.97, "ratio")
    assert decision.detail == WHY.detail
    assert seconds(decision.retry_after) == 2.5
    assert (decision.position, seconds(decision.expected_wait)) == (4, 1.5)
    assert decision.target == "llama"


def test_a_refusal_that_time_cannot_cure_has_no_retry_after() -> None:
    """A request that can never fit must not be tried again."""
    decision = words.Decision()
    decide(decision, Rejected(TICKET, Reason.NEVER_FITS, None, WHY), "")

    assert not decision.HasField("retry_after")


def test_a_shed_waiter_hears_how_long_it_waited() -> None:
    """For its own accounts."""
    decision = words.Decision()
    decide(decision, Shed(TICKET, Reason.DEADLINE, 1.0, WHY, 60.0), "")

    assert (decision.verdict, seconds(decision.waited)) == (Verdict.SHED, 60.0)


def test_an_admission_carries_advice_and_wait() -> None:
    """Both are optional."""
    decision = words.Decision()
    decide(decision, Admitted(TICKET, 0.5, 10, Advice(max_tokens=64)), "t")

    assert (decision.verdict, decision.advice.max_tokens, seconds(decision.waited)) == (
        Verdict.ADMITTED,
        64,
        0.5,
    )
    assert not decision.shadow


@pytest.mark.parametrize(
    ("would", "verdict", "reason"),
    [
        (Rejected(TICKET, Reason.QUEUE_FULL, 1.0, WHY), Verdict.REJECTED, Reason.QUEUE_FULL),
        (Shed(TICKET, Reason.DEADLINE, 1.0, WHY), Verdict.SHED, Reason.DEADLINE),
        (Queued(TICKET, 3, 1.0), Verdict.QUEUED, 0),
    ],
)
def test_shadow_admits_and_says_what_enforce_would_have_said(
    would: Rejected | Shed | Queued, verdict: Verdict, reason: int
) -> None:
    """It is how people learn to trust it."""
    decision = words.Decision()
    decide(decision, Admitted(TICKET, 0.0, 10, None, would), "t")

    assert decision.verdict == Verdict.ADMITTED
    assert (decision.shadow, decision.shadow_verdict, decision.reason) == (True, verdict, reason)


def test_an_end_without_an_outcome_is_lost() -> None:
    """It says nothing about the engine; and one of a newer client is not an error of the engine."""
    assert translate.completion(words.Finish()).outcome is Outcome.LOST
    assert translate.completion(words.Finish(outcome=99)).outcome is Outcome.LOST


def test_unknown_numbers_of_an_end_are_none() -> None:
    """Zero output tokens would teach the cost model that answers are empty."""
    done = translate.completion(words.Finish(outcome=1))

    assert (done.prompt_tokens, done.output_tokens, done.engine_ttft_s, done.decode_s) == (None,) * 4
