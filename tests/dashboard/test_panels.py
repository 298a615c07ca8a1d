"""What comes from outside is text, never HTML; tables say why and since when."""

from __future__ import annotations

from datetime import UTC
from html.parser import HTMLParser

import pytest

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard import panels, tables
from dashboard.cards import cards
from dashboard.causes import Facts
from dashboard.fake import Player
from dashboard.picture import Decisions
from dashboard.rates import Rates
from dashboard.scenes import SCENES
from dashboard.verdict import judge
from tests.dashboard.night import BEGAN, NOW_S, facts_of

EVIL = "<script>alert('x')</script>\"&" + "\u202e" + "ط" * 3


class _Balanced(HTMLParser):
    """Fails on tags that do not close, and collects what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens."""
        self.stack.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Closes the last one."""
        assert self.stack.pop() == tag


def _page(facts: Facts) -> str:
    decisions = Decisions(
        tuple(Player(SCENES["overload"], BEGAN).decisions("default", BEGAN + NOW_S).decisions)
    )
    parts = [
        panels.banner(judge(facts), facts.target.mode),
        panels.strip(facts, UTC),
        panels.warnings(facts.picture, facts.history.error),
        *(panels.card(card) for card in cards(facts)),
        tables.classes(facts),
        tables.refusals(facts, decisions),
        tables.changes(facts, UTC),
        tables.gpus(facts),
        tables.signals(facts),
    ]
    return "".join(panels.old(part, facts.picture) for part in parts)


def _tags(html: str) -> set[str]:
    parser = _Balanced()
    parser.feed(html)
    assert parser.stack == []
    return parser.tags


@pytest.mark.parametrize("away", ["", "nobody answers"])
@pytest.mark.parametrize("scene", sorted(SCENES))
def test_every_state_is_well_formed(scene: str, away: str) -> None:
    """A tag left open swallows the rest of the page."""
    assert "script" not in _tags(_page(facts_of(scene, away=away)))


def test_nothing_from_outside_becomes_html() -> None:
    """Names of tenants, models and GPUs are chosen by others."""

    def poison(snapshot: monitor.Snapshot) -> None:
        target = snapshot.targets[0]
        target.name = target.frozen = target.limit_algorithm = target.sight = target.engine_state = EVIL
        target.classes[0].name = target.gates[0].why = target.gates[0].state = EVIL
        for change in target.changes:
            change.what = change.old = change.new = change.why = change.source = EVIL
        for gpu in snapshot.gpus:
            gpu.target, gpu.uuid, gpu.name, gpu.vram_rule_why, gpu.clock_reasons = (EVIL,) * 5
            gpu.unsupported.append(EVIL)
        snapshot.gpus[1].state = EVIL
        for signal in snapshot.signals:
            signal.target = signal.name = signal.source = signal.state = signal.warning = EVIL
        snapshot.version = EVIL
        snapshot.warnings.append(EVIL)
        snapshot.unbound.append(EVIL)

    facts = facts_of("overload", touch=poison)
    rates = Rates(refused={(EVIL, EVIL): 2.0}, window_s=10.0)
    html = _page(Facts(facts.picture, facts.target, rates, facts.history))

    assert "script" not in _tags(html)
    assert "&lt;script&gt;" in html


def test_the_mode_is_beside_the_verdict() -> None:
    """Shadow must not be mistaken for protection."""
    assert "SHADOW" in panels.banner(judge(facts_of("shadow")), types.MODE_SHADOW)
    assert "all are admitted" in panels.banner(judge(facts_of("shadow")), types.MODE_SHADOW)
    assert "tg-mode" not in panels.banner(judge(facts_of("shadow")), None)


def test_usual_state_is_grey_and_unusual_state_has_a_sign() -> None:
    """Ten coloured things are none."""
    assert "▲" not in panels.strip(facts_of("healthy"), UTC)
    stale = panels.strip(facts_of("stale"), UTC)
    assert "▲ partial" in stale
    assert "▲ frozen: KV usage is stale for 48 s" in stale
    assert "▲ 2 fresh, 3 lost" in stale


def test_slow_decisions_are_marked() -> None:
    """The sidecar itself may be the trouble."""

    def slow(snapshot: monitor.Snapshot) -> None:
        snapshot.decision_time.p99 = 0.4

    assert "▲ 400 ms" in panels.strip(facts_of("healthy", touch=slow), UTC)


def test_warnings_are_shown_and_bounded() -> None:
    """A flood of warnings must not push the page away."""

    def warn(snapshot: monitor.Snapshot) -> None:
        snapshot.warnings.extend(f"w{number}" for number in range(40))
        snapshot.unbound.append("spans of service x")

    html = panels.warnings(facts_of("healthy", touch=warn).picture, "")

    assert "w3" in html
    assert "w4" not in html
    assert "and 37 more" in html
    assert panels.warnings(facts_of("healthy").picture, "") == ""
    assert "no history here" in panels.warnings(facts_of("healthy").picture, "no history here")


def test_changes_say_measured_against_threshold_and_source() -> None:
    """Why the limit moved, newest first."""
    html = tables.changes(facts_of("overload"), UTC)

    assert html.index("▼ 64k → <b>41k</b>") < html.index("▲ 63.2k → <b>64k</b>")
    assert "4 steps in 4 min" in html
    assert "TPOT p90 82 ms over its SLO 80 ms" in html
    assert '<td class="nw">0.082</td><td class="nw">0.08</td>' in html
    assert "hot → <b>critical</b>" in tables.changes(facts_of("kv_critical"), UTC)
    assert '<td class="nw">98 %</td><td class="nw">97 %</td>' in tables.changes(facts_of("kv_critical"), UTC)


def test_steps_of_a_climb_are_one_row_and_a_cut_is_another() -> None:
    """The limit grows each second: thirty rows of growth would hide the one cut."""
    steps = [("10", "12"), ("12", "14"), ("14", "9"), ("9", "11"), ("hot", "open"), ("11", "13")]
    changes = [monitor.Change(what="limit", old=old, new=new) for old, new in steps]

    found = [(run[-1].old, run[0].new, len(run)) for run in tables.runs(changes)]

    assert found == [("11", "13", 1), ("hot", "open", 1), ("9", "11", 1), ("14", "9", 1), ("10", "14", 2)]


def test_a_signal_that_never_came_is_no_alarm() -> None:
    """A machine without a GPU has no NVML on any night."""

    def never(snapshot: monitor.Snapshot) -> None:
        snapshot.signals[4].state, snapshot.signals[4].count = "missing", 0
        snapshot.signals[4].ClearField("age")
        snapshot.signals[4].warning = "NVML is absent"

    facts = facts_of("healthy", touch=never)

    assert "<b>4 fresh, 1 never came</b>" in panels.strip(facts, UTC)
    assert "▲ missing" in tables.signals(facts)
    assert "NVML is absent" in tables.signals(facts)


def test_the_readings_of_one_gpu_are_one_row_for_each_state() -> None:
    """Eight GPUs with seven readings each would hide the one that is stale."""

    def many(snapshot: monitor.Snapshot) -> None:
        del snapshot.signals[:]
        for name in ("vram_used_bytes", "vram_free_bytes", "gpu_power_w"):
            for gpu in ("GPU-a", "GPU-b"):
                snapshot.signals.add(name=f"{name} @{gpu}", source="nvml", state="fresh", target="default")
        for signal in snapshot.signals[0], snapshot.signals[2]:
            signal.state = "stale"
            signal.age.FromSeconds(9)

    html = tables.signals(facts_of("healthy", touch=many))

    assert html.count("<tr>") == 1 + 3
    assert html.index("2 readings of GPU-a") < html.index("3 readings of GPU-b")
    assert "▲ 9 s" in html


def test_refusals_carry_the_latest_measured_value() -> None:
    """Refused by what, and by how much."""
    html = _page(facts_of("overload"))

    assert "expected first token in 2.6 s over SLO 2.3 s" in html
    assert "Nobody is refused." in tables.refusals(facts_of("healthy"), Decisions())
    assert "Enforcing would refuse, last 10 s" in tables.refusals(facts_of("shadow"), Decisions())


def test_before_a_second_look_nobody_claims_that_nobody_is_refused() -> None:
    """Totals since start say nothing about now."""
    facts = facts_of("overload")
    first = Facts(facts.picture, facts.target, Rates(), facts.history)

    assert "Known after a second look" in tables.refusals(first, Decisions())


def test_a_refusal_without_words_shows_its_numbers() -> None:
    """An older sidecar sends no detail."""
    decision = monitor.RecordedDecision(priority_class="batch")
    decision.decision.reason = types.REASON_QUEUE_FULL
    decision.decision.measured, decision.decision.threshold, decision.decision.unit = 12.0, 10.0, "tickets"

    assert "12 over 10 tickets" in tables.refusals(facts_of("overload"), Decisions((decision,)))


def test_a_lost_gpu_shows_no_old_numbers() -> None:
    """Its last free bytes mean nothing."""
    html = tables.gpus(facts_of("gpu_lost"))

    assert "✕ lost for 4 min" in html
    assert html.count("6.2 GiB") == 1


def test_a_stale_signal_shows_its_age_and_its_trouble_first() -> None:
    """What is wrong stands on top."""
    html = tables.signals(facts_of("stale"))

    assert html.index("▲ stale") < html.index("fresh")
    assert "▲ 48 s" in html
    assert "the scrape answered HTML" in html
    assert "✕ missing" in html


def test_what_a_gpu_cannot_report_is_listed() -> None:
    """MIG slices and consumer cards lack some calls."""

    def lack(snapshot: monitor.Snapshot) -> None:
        snapshot.gpus[0].unsupported.append("power_w")
        snapshot.gpus[0].ClearField("power_w")
        snapshot.gpus[0].ClearField("memory_free_bytes")
        del snapshot.gpus[1:]

    html = tables.gpus(facts_of("healthy", touch=lack))

    assert "cannot report power_w" in html
    assert "not known" in html


def test_many_gpus_are_cut_and_counted() -> None:
    """A node has eight; a pool may have hundreds."""

    def many(snapshot: monitor.Snapshot) -> None:
        for _ in range(6):
            snapshot.gpus.extend(list(snapshot.gpus))

    html = tables.gpus(facts_of("healthy", touch=many))

    assert "GPUs, first 16 of 128" in html
    assert html.count("<tr>") == 17


def test_values_of_a_silent_sidecar_are_drawn_as_old() -> None:
    """Old numbers must not look live."""
    facts = facts_of("healthy", away="nobody answers")

    assert panels.old("x", facts.picture) == '<div class="tg-old">x</div>'
    assert panels.old("x", facts_of("healthy").picture) == "x"
