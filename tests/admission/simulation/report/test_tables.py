"""What a person reads: every figure that was asked for, on wide and narrow terminals, with and without colour."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from admission.simulation.judging import DEFAULT_SLOS, Ending, Report
from admission.simulation.report.figures import Better, Figure, milliseconds, percent, seconds
from admission.simulation.report.tables import (
    BOLD,
    LEGEND,
    SideBySide,
    broken,
    comparison,
    overview,
    show,
    tenants,
)
from admission.vocabulary import PriorityClass
from tests.admission.simulation.fates import refused, served
from tests.admission.simulation.report.shown import Run, run

BATCH = PriorityClass.BATCH


def printed(*runs: Run, width: int = 100) -> str:
    """The overview as a pipe gets it."""
    out = io.StringIO()
    show(Console(file=out, width=width), overview(runs, DEFAULT_SLOS))
    return out.getvalue()


def line(text: str, label: str) -> list[str]:
    """The cells of the first line that begins with a label, columns being two spaces apart."""
    found = next(one for one in text.splitlines() if one.startswith(label))
    return [cell.strip() for cell in found[len(label) :].split("  ") if cell.strip()]


def test_every_figure_of_the_comparison_is_there() -> None:
    """801 requests offered from 10 to 90 s: 80 refused, 90 slow, one left; so 630 are good, of 721 accepted.

    The p99 of TTFT is that of the slow, 9 s, within one percent.
    """
    text = printed(run(), run("none", *[served(20.0, ttft_s=3.0)] * 4))
    assert "801 requests" in text
    assert line(text, "good / offered, requests") == ["78.7 %", "0.0 %"]
    assert line(text, "accepted within SLO") == ["87.4 %", "0.0 %"]
    assert line(text, "TTFT p50") == ["0.50 s", "3.00 s"]
    assert line(text, "TTFT p99") == ["8.94 s", "3.00 s"]
    assert line(text, "TTFT p99, undisturbed") == ["0.50 s", "3.00 s"]
    assert line(text, "TTFT / SLO p99, undisturbed") == ["0.25 x", "1.33 x"]
    assert line(text, "TPOT / SLO p99") == ["0.25 x", "0.25 x"]
    assert line(text, "TPOT p95") == ["20 ms", "20 ms"]
    assert line(text, "refused in the end") == ["10.0 %", "0.0 %"]
    assert line(text, "  refusals, QUEUE_FULL") == ["80", "0"]
    assert line(text, "left without a token") == ["1", "0"]
    assert line(text, "recovery after 40-50 s") == ["0 s", "not back"]
    assert line(text, "limit variation (CV)") == ["2.2 %", "2.2 %"]
    assert line(text, "served, largest quarter")[0].endswith("%")


def test_an_unlimited_policy_has_no_variation_of_its_limit() -> None:
    """A dash is not a zero: a limit that never moves varies by 0 %."""
    text = printed(run(), run("none", limit=float("inf")))
    assert line(text, "limit variation (CV)") == ["2.2 %", "-"]


def test_seeds_are_averaged_and_their_spread_is_told() -> None:
    """One seed's luck is not a finding."""
    good, bad = served(20.0), served(20.0, ttft_s=9.0)
    text = printed(run("a", good, good, seed=0), run("a", good, bad, seed=1))
    assert line(text, "good / offered, requests") == ["75.0 % ±35.4"]
    assert "mean of 2 seeds" in text
    assert "±: standard deviation" in " ".join(text.split())
    assert "±" not in printed(run())


def test_a_recovery_that_failed_under_one_seed_is_no_recovery() -> None:
    """An average over the lucky seeds would hide it."""
    report = run().report
    runs = [
        Run("a", 1.0, 0, replace(report, recovery_s=(3.0,))),
        Run("a", 1.0, 1, replace(report, recovery_s=(None,))),
    ]
    assert line(printed(*runs), "recovery after 40-50 s") == ["not back"]


def test_an_instant_has_a_recovery_and_what_never_ends_has_none() -> None:
    """A cache that is flushed is an instant; an engine that stays slow leaves nothing to come back from."""
    report = replace(run().report, disturbances=((60.0, 60.0), (70.0, float("inf"))), recovery_s=(4.0, None))
    text = printed(Run("a", 1.0, 0, report))
    assert line(text, "recovery after 60 s") == ["4 s"]
    assert text.count("recovery") == 1


def test_requests_that_failed_or_are_under_way_are_counted() -> None:
    """Goodput says that something is missing, this says what."""
    cut = [replace(served(20.0), ending=ending) for ending in (Ending.FAILED, Ending.INVALID, Ending.OPEN)]
    text = printed(run("a", *cut, served(20.0)))
    for label in ("failed", "answered with an error", "still under way"):
        assert line(text, label) == ["1"]
    assert line(text, "good / offered, requests") == ["25.0 %"]


def test_nothing_offered_is_said() -> None:
    """Zero percent of nothing would look like a catastrophe of the policy."""
    assert printed(run("a", served(1.0))).startswith("nothing offered\n")


def test_classes_and_tenants_have_tables_when_there_are_several() -> None:
    """One class alone would repeat the comparison."""
    mixed = run("a", served(20.0, tenant="acme"), served(20.0, priority=BATCH, tpot_s=0.3), refused(20.0))
    text = printed(mixed)
    assert "class interactive, 2 requests" in text
    batch = text[text.index("class batch, 1 requests") :]
    assert line(batch, "good / offered, requests") == ["0.0 %"]
    assert line(text, "acme, 1 offered") == ["100.0 %"]
    assert line(text, "anonymous, 2 offered") == ["0.0 %"]
    assert "class" not in printed(run()).replace(LEGEND, "").split("Good:")[0]
    assert list(tenants({"a": [run().report]})) == []


def test_several_loads_begin_with_one_table_over_all_of_them() -> None:
    """How it goes down with load is the first question; a policy that was not run there has a dash."""
    runs = [run("a"), run("a", served(20.0), refused(20.0), load=2.0), run("b")]
    text = printed(*runs)
    assert line(text, "good / offered, requests, x1") == ["78.7 %", "78.7 %"]
    assert line(text, "good / offered, requests, x2") == ["50.0 %", "-"]
    assert "Load x2: 2 requests" in text


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40, 24])
def test_no_line_is_wider_than_the_terminal_and_no_policy_is_lost(width: int) -> None:
    """Columns that do not fit go below, with the labels again."""
    names = [f"policy_{no}" for no in range(9)]
    text = printed(*[run(name) for name in names], width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert all(name in text for name in names)
    assert text.count("78.7 %") >= len(names)


def test_a_column_is_as_wide_as_it_needs_and_wraps_a_long_name() -> None:
    """A policy with many settings must not push the others off the screen."""
    long = "aimd_requests:ttft_s=1.5,backoff_ratio=0.8"
    text = printed(run(long), run("b"), width=60)
    assert line(text, "good / offered, requests") == ["78.7 %", "78.7 %"]
    assert long in "".join(text.split())


def test_names_are_shown_as_they_are() -> None:
    """A tenant called [red] is text, not a colour."""
    assert "[red]x[/red], 1 offered" in printed(run("a", served(20.0, tenant="[red]x[/red]")))


def test_what_is_not_a_terminal_gets_plain_text() -> None:
    """Escape codes in a file are noise."""
    assert "\x1b" not in printed(run(), run("b"))


def test_a_pipe_gets_no_blanks_at_the_ends_and_no_word_on_bold() -> None:
    """Both are noise in a diff; on a terminal bold letters are explained."""
    text = printed(run(), run("b"))
    assert all(one == one.rstrip() for one in text.splitlines())
    assert BOLD.strip() not in " ".join(text.split())
    out = io.StringIO()
    show(Console(file=out, width=300, force_terminal=True), overview([run()]))
    assert BOLD.strip() in out.getvalue()


def test_a_heading_breaks_between_its_words() -> None:
    """Half a key on a line is a riddle; a piece that is too long stays whole here and is folded."""
    assert list(broken("fixed_requests:limit_requests=64,guards=false", 16)) == [
        "fixed_requests:",
        "limit_requests=",
        "64,guards=false",
    ]
    assert list(broken("64 at a time", 8)) == ["64 at a", "time"]
    assert list(broken("x" * 20, 16)) == ["x" * 20]
    assert list(broken("tidegate", 8)) == ["tidegate"]


def test_the_pace_is_that_of_the_class_furthest_from_its_target() -> None:
    """A low share of good answers has to be explained by one of the two ratios; without targets there is none."""
    reports = {"a": [run("a", served(20.0), served(20.0, priority=BATCH, tpot_s=0.3)).report]}
    paces = [
        one.cells
        for section in comparison(reports, slos=DEFAULT_SLOS).sections
        for one in section
        if one.label == "TPOT / SLO p99"
    ]
    ((pace,),) = paces
    assert float(pace.split()[0]) == pytest.approx(0.3 / DEFAULT_SLOS[BATCH].tpot_s, rel=0.02)
    labels = [one.label for section in comparison(reports).sections for one in section]
    assert "TPOT / SLO p99" not in labels


def test_there_is_no_colour_and_the_best_is_bold() -> None:
    """Whoever sets NO_COLOR loses nothing, and neither does who cannot tell colours apart."""
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system="truecolor")
    console.print(comparison({"a": [run().report], "b": [run("b", served(20.0)).report]}))
    goodput = next(one for one in out.getvalue().splitlines() if "good / offered, requests" in one)
    assert re.findall(r"\x1b\[1m *([0-9.]+ %)", goodput) == ["100.0 %"]
    assert set(re.findall(r"\x1b\[([0-9;]*)m", out.getvalue())) <= {"0", "1", "2"}


def test_alike_values_have_no_best() -> None:
    """Bold on both would say nothing, and on the first a lie."""
    assert _best_of(0.5, 0.5) == [frozenset()]
    assert _best_of(0.5, 0.7) == [frozenset({1})]


def _best_of(*ratios: float) -> list[frozenset[int]]:
    reports = {
        f"p{no}": [replace(run().report, good_requests=int(1_000 * ratio), offered_requests=1_000)]
        for no, ratio in enumerate(ratios)
    }
    table = comparison(reports)
    assert isinstance(table, SideBySide)
    return [
        one.best for section in table.sections for one in section if one.label.endswith("offered, requests")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(0.9123), "91.2 %"),
        (seconds(1.236), "1.24 s"),
        (seconds(12.34), "12.3 s"),
        (seconds(123.4), "123 s"),
        (milliseconds(0.0432), "43 ms"),
        (milliseconds(0.00432), "4.3 ms"),
    ],
)
def test_figures_keep_the_digits_that_mean_something(text: str, expected: str) -> None:
    """The error of a quantile is one percent."""
    assert text == expected


def test_a_figure_nobody_has_is_a_dash() -> None:
    """Neither zero nor an exception."""
    figure: Figure[Report] = Figure("x", lambda _: None, percent, Better.MORE)
    assert (figure.mean([run().report]), figure.cell([run().report])) == (None, "-")
