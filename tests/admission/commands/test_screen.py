"""The one screen of `tidegate status`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from admission.commands.screen import CHANGES_SHOWN, screen
from admission.commands.wording import amount, duration, reason, size
from admission.v1.monitor_service_pb2 import Count, Snapshot
from admission.v1.types_pb2 import Mode, Reason, Verdict
from tests.admission.commands.snapshots import change, snapshot, target


def shown(given: Snapshot, width: int = 100) -> str:
    """The screen as text."""
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(screen(given))
    return out.getvalue()


def test_the_screen_answers_the_questions_of_the_night() -> None:
    """Mode, limit, load, KV, latency against SLO and why: on one screen, or the page is answered blindly."""
    text = shown(snapshot())

    for expected in ("ENFORCE", "limit 32,000 tokens", "in flight 41", "queued 7", "40 running, 1 waiting"):
        assert expected in text
    for expected in (
        "KV 93 % of 120,000 tokens",
        "hot 0.9/0.86, critical 0.97",
        "gate kv hot KV usage 0.93 over 0.90",
    ):
        assert expected in text
    assert "400 ms / 2.5 s / 3.1 s" in text
    assert "800 of 850" in text


def test_refusals_are_told_by_reason_largest_first() -> None:
    """The cause of most refusals is the one to act on."""
    assert "refused: DEADLINE 30, WATERMARK_KV 12" in shown(snapshot())


def test_in_shadow_refusals_are_told_as_what_enforce_would_do() -> None:
    """Nobody was refused in shadow: the screen must not say so."""
    shadowed = target(Mode.MODE_SHADOW)
    refused = Count(verdict=Verdict.VERDICT_REJECTED, reason=Reason.REASON_QUEUE_FULL, total=3)
    shadowed.classes[0].ClearField("counts")
    shadowed.classes[0].shadow_counts.append(refused)
    text = shown(snapshot(shadowed))

    assert "SHADOW (records, refuses nothing)" in text
    assert "enforce would have refused: QUEUE_FULL 3" in text
    assert "\n│ refused:" not in text


def test_an_slo_that_nobody_chose_is_called_so() -> None:
    """A dashboard that is green against a default says nothing."""
    chosen = target()
    chosen.classes[0].slo_is_default = False

    assert "2 s*" in shown(snapshot())
    assert "SLO is the default, not set by you" in shown(snapshot())
    assert "not set by you" not in shown(snapshot(chosen))


def test_missing_and_stale_signals_are_said_plainly() -> None:
    """A limit that stands still for want of a signal looks healthy otherwise."""
    text = shown(snapshot())

    assert "stale for 12 s: chat waiting from scrape" in text
    assert "missing: chat spans. none came yet" in text
    assert "warning disk full" in text


def test_an_engine_that_says_nothing_is_not_shown_as_idle() -> None:
    """Zero and unknown are different facts."""
    blind = target()
    for field in ("kv_usage_ratio", "engine_running", "engine_waiting"):
        blind.ClearField(field)
    text = shown(snapshot(blind))

    assert "KV unknown: no reading from the engine" in text
    assert "the engine does not say what it runs" in text


def test_the_latest_changes_come_first_with_why_and_source() -> None:
    """The newest move explains what is happening now; old ones must not push it away."""
    many = target()
    for ago_s in range(25, 0, -1):
        many.changes.append(change(ago_s, "1", "2", f"reason {ago_s}"))
    lines = [line for line in shown(snapshot(many)).splitlines() if " ago " in line]

    assert len(lines) == CHANGES_SHOWN
    assert "1 s ago  limit 1 -> 2 by scrape: reason 1" in lines[0]


def test_text_from_elsewhere_cannot_style_the_screen() -> None:
    """Reasons and names are data: brackets in them are no markup."""
    given = snapshot()
    given.targets[0].name = "[bold]x"
    given.targets[0].frozen = "[/red] no signal"
    given.warnings.append("[link=evil]here")
    text = shown(given)

    for expected in ("[bold]x", "[/red] no signal", "[link=evil]here"):
        assert expected in text


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_of_classes_fits(width: int) -> None:
    """A number that is cut by the terminal is no number."""
    text = shown(snapshot(), width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_an_empty_snapshot_is_shown() -> None:
    """In the first instant there is nothing, and no error."""
    assert "no GPU seen" in shown(Snapshot())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (amount(12_345), "12,345"),
        (amount(12_345_678), "12.3 M"),
        (duration(0.00042), "420 us"),
        (duration(0.0123), "12.3 ms"),
        (duration(90), "90 s"),
        (duration(3600), "60 min"),
        (duration(90_000), "25.0 h"),
        (size(512 << 20), "512 MiB"),
        (size(80 << 30), "80.0 GiB"),
        (reason(Reason.REASON_TTFT_FORECAST), "TTFT_FORECAST"),
        (reason(99), "reason 99"),
    ],
)
def test_numbers_are_said_as_people_say_them(text: str, expected: str) -> None:
    """Units stand beside numbers, and a newer sidecar's reason is not an error."""
    assert text == expected
