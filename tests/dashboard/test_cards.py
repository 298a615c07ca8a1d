"""Each card says its value, what it is held against, and plainly what is not known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.v1 import monitor_service_pb2 as monitor
from dashboard.cards import Card, cards, latency_line
from dashboard.causes import Facts
from dashboard.charts import UNITS
from dashboard.picture import History, Line
from dashboard.rates import Rates
from dashboard.scenes import SCENES
from dashboard.theme import COLOURS
from tests.dashboard.night import facts_of


def _cards(scene: str, touch: Callable[[monitor.Snapshot], None] = lambda _snapshot: None) -> dict[str, Card]:
    return {card.key: card for card in cards(facts_of(scene, touch=touch))}


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_every_state_draws_eight_cards_that_the_theme_and_charts_know(scene: str) -> None:
    """A misspelt colour or unit must not wait for a bad night."""
    shown = cards(facts_of(scene))

    assert [card.key for card in shown] == ["limit", "requests", "queue", "kv", "ttft", "tpot", "e2e", "vram"]
    for card in shown:
        assert card.unit in UNITS
        used = [trace.colour for trace in card.traces] + [mark.colour for mark in card.marks]
        assert {*used, *(key for key, _ in card.legend)} <= set(COLOURS)


def test_the_limit_stands_beside_what_is_used() -> None:
    """Headroom at a glance, and whether the limit moves."""
    calm, stale = _cards("healthy")["limit"], _cards("stale")["limit"]

    assert calm.small.startswith("of 64k tokens · ")
    assert (calm.tone, stale.tone, stale.aside) == ("", "warn", "aimd · frozen")


def test_untracked_work_is_shown() -> None:
    """Somebody goes around us."""

    def bypass(snapshot: monitor.Snapshot) -> None:
        snapshot.targets[0].untracked_tokens = 21_000

    assert _cards("healthy", bypass)["limit"].note.startswith("21k untracked")


def test_refusals_are_in_the_colour_of_refusals() -> None:
    """One colour everywhere."""
    shown = _cards("overload")["requests"]

    assert shown.tone == "refused"
    assert [trace.colour for trace in shown.traces if "refused" in trace.name] == ["refused"]
    assert shown.note.startswith("queue full ")


def test_shadow_says_would_be_refused() -> None:
    """Nobody was."""
    shown = _cards("shadow")["requests"]

    assert shown.small.startswith("would be refused/s")
    assert shown.traces[1].line.value
    assert _cards("shadow")["limit"].aside == "aimd · as if enforcing"
    assert _cards("shadow")["queue"].aside == "queue as if enforcing"


def test_before_two_snapshots_history_gives_the_rates() -> None:
    """The first second of a page is not all zeros."""
    facts = facts_of("overload")
    first = Facts(facts.picture, facts.target, Rates(), facts.history)
    nothing = Facts(facts.picture, facts.target, Rates(), History())

    assert float(cards(first)[1].value) > 5
    assert cards(nothing)[1].value == "-"


def test_kv_usage_is_held_against_its_marks() -> None:
    """Hot and critical are lines in the chart and words in the legend."""
    calm, full = _cards("healthy")["kv"], _cards("kv_critical")["kv"]

    assert [(mark.name, mark.value) for mark in calm.marks] == [("hot", 0.9), ("critical", 0.97)]
    assert (calm.tone, full.tone) == ("", "critical")
    assert full.note == "critical: KV usage 0.98 over critical 0.97"


def test_kv_usage_that_is_not_known_says_why() -> None:
    """Stale and never said are different troubles."""
    assert _cards("stale")["kv"].note == "stale for 48 s, last 61 %: KV marks cannot act"
    assert _cards("starting")["kv"].note == "the engine does not say: KV marks cannot act"
    assert _cards("stale")["kv"].value == "not known"


def test_an_slo_that_nobody_set_says_so() -> None:
    """Who reads `over SLO` must know whose SLO it is."""

    def own(snapshot: monitor.Snapshot) -> None:
        snapshot.targets[0].classes[0].slo_is_default = False

    assert _cards("healthy")["ttft"].note == "SLO 2.00 s + 250 ms/1k prompt · default, not set by you"
    assert _cards("healthy", own)["tpot"].note == "SLO 80 ms"


def test_a_latency_over_its_slo_is_marked() -> None:
    """The p95 is what the big number shows."""
    shown = _cards("overload")["tpot"]

    assert shown.tone == "warn"
    assert shown.marks[0].value == 0.08
    assert {text.split(" ")[0] for _, text in shown.legend} == {"p50", "p95", "p99", "SLO"}


def test_the_whole_request_is_shown_and_not_judged() -> None:
    """Total time measures output length."""
    shown = _cards("overload")["e2e"]

    assert (shown.tone, list(shown.marks)) == ("", [])
    assert shown.note == "not judged: it measures output length"


def test_no_samples_is_not_zero() -> None:
    """An empty window has no percentile."""
    assert _cards("starting")["ttft"].value == "-"
    assert _cards("starting")["ttft"].note == "no samples in the window"


def test_the_gpu_nearest_to_its_mark_is_on_the_card() -> None:
    """Seven good GPUs do not help the eighth."""

    def fill(snapshot: monitor.Snapshot) -> None:
        snapshot.gpus[1].memory_free_bytes = 2**30

    shown = _cards("healthy", fill)["vram"]

    assert (shown.value, shown.tone) == ("1.0 GiB", "critical")
    assert shown.note.startswith("preallocating: the engine took 91 %")


def test_a_lost_gpu_is_counted() -> None:
    """The free bytes of the others are not the news."""
    shown = _cards("gpu_lost")["vram"]

    assert (shown.value, shown.aside, shown.tone) == ("1 lost", "1 of 2 GPUs lost", "critical")


def test_without_a_gpu_the_card_says_that_the_mark_cannot_act() -> None:
    """NVML may be absent."""
    assert _cards("starting")["vram"].note == "no GPU is seen: the VRAM mark cannot act"


def test_an_absent_driver_is_named_on_the_card() -> None:
    """`Not known` alone helps nobody."""

    def absent(snapshot: monitor.Snapshot) -> None:
        del snapshot.gpus[:]
        snapshot.signals[4].warning = "NVML is absent: no driver"

    def stale(snapshot: monitor.Snapshot) -> None:
        for gpu in snapshot.gpus:
            gpu.state = "stale"

    assert _cards("healthy", absent)["vram"].note == "NVML is absent: no driver"
    assert _cards("healthy", stale)["vram"].note.startswith("GPU-4f0aa1d2… stale, ")


def test_the_past_of_a_class_is_preferred_to_that_of_the_target() -> None:
    """A mix of classes has no SLO."""
    both = History({"ttft_p95_s": Line([1.0], [1.0]), "ttft_p95_s:interactive": Line([1.0], [2.0])})

    assert latency_line(both, "ttft", "p95", "interactive").value == [2.0]
    assert latency_line(both, "ttft", "p95", "batch").value == [1.0]
    assert latency_line(History(), "ttft", "p95", "batch").value == ()
