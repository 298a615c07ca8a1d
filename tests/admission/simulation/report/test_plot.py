"""The picture: which panels, lines, promises and shades it holds, and that its colours are told apart by everyone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from admission.core.slo import SloConfig
from admission.simulation.report import palette
from admission.simulation.report.panels import amount
from admission.simulation.report.plot import PlotError, draw, save
from admission.simulation.timeline import State, Timeline
from dashboard.theme import COLOURS
from tests.admission.simulation.fates import served
from tests.admission.simulation.report.shown import run
from tests.dashboard.colour_vision import SIGHTS, contrast, distance

TITLES = [
    "Requests/s",
    "Limit, KV tokens",
    "Requests",
    "KV cache in use",
    "TTFT, seconds",
    "TPOT, milliseconds",
]


def grid(figure: Figure, columns: int) -> list[list[Axes]]:
    """The axes by row."""
    axes = figure.axes
    return [axes[at : at + columns] for at in range(0, len(axes), columns)]


def lines(axes: Axes) -> dict[str, list[float]]:
    """The values of each line, by label."""
    seen = [one for one in axes.get_lines() if not str(one.get_label()).startswith("_")]
    return {str(one.get_label()): [float(value) for value in _values(one)] for one in seen}


def hidden(axes: Axes, label: str) -> list[Any]:
    """Lines that the legend does not name."""
    return [one for one in axes.get_lines() if one.get_label() == label]


def _values(line: Any) -> Any:
    return line.get_ydata()


def shades(axes: Axes) -> dict[tuple[float, float], str]:
    """From, until and colour of what lies behind the lines."""
    return {
        (patch.get_x(), patch.get_x() + patch.get_width()): to_hex(patch.get_facecolor())
        for patch in axes.patches
        if isinstance(patch, Rectangle)
    }


def labels(axes: Axes) -> list[str]:
    """What stands at the y axis once it is drawn."""
    return [tick.get_text() for tick in axes.get_yticklabels()]


def test_every_panel_has_its_title_and_its_lines() -> None:
    """Limit, in flight, queue, KV and latency over time, and what came of it."""
    rows = [row[0] for row in grid(draw([run()]), 1)]
    assert [axes.get_title(loc="left") for axes in rows] == TITLES
    assert [sorted(lines(axes)) for axes in rows] == [
        ["good", "offered", "refused"],
        ["in use", "limit"],
        ["engine's queue", "in flight", "queued"],
        ["in use"],
        ["SLO of a short prompt", "p90"],
        ["SLO", "p90"],
    ]
    for axes in rows:
        legend = axes.get_legend()
        assert legend is not None
        assert sorted(text.get_text() for text in legend.get_texts()) == sorted(lines(axes))


def test_lines_hold_what_the_time_line_says() -> None:
    """State second by second; what counts requests, of which a point needs some, here in rows of two seconds."""
    rate, limit, requests, kv, ttft, tpot = (lines(row[0]) for row in grid(draw([run()]), 1))
    assert rate["offered"][10] == 10.0
    assert (rate["good"][10], rate["good"][22], rate["refused"][10]) == (9.0, 0.0, 1.0)
    assert (limit["limit"][7], limit["in use"][7]) == (1_007.0, 800.0)
    assert (requests["in flight"][7], requests["queued"][7], requests["engine's queue"][7]) == (40, 3, 1)
    assert kv["in use"][7] == 0.5
    assert ttft["p90"][22] == pytest.approx(9.0, rel=0.02)
    assert tpot["p90"][22] == pytest.approx(0.02, rel=0.02)


def test_promises_are_drawn_where_they_are() -> None:
    """The targets are the caller's; without a TTFT target there is no line."""
    *_, ttft, tpot = (lines(row[0]) for row in grid(draw([run()], SloConfig(ttft_s=3.0, tpot_s=0.05)), 1))
    assert set(ttft["SLO of a short prompt"]) == {3.0}
    assert set(tpot["SLO"]) == {0.05}
    *_, ttft, _ = (lines(row[0]) for row in grid(draw([run()], SloConfig(ttft_s=None)), 1))
    assert list(ttft) == ["p90"]


def test_disturbances_and_what_is_not_judged_are_shaded_in_every_panel() -> None:
    """What happened there is no surprise then; the shades are explained below."""
    figure = draw([run()])
    for (axes,) in grid(figure, 1):
        assert shades(axes) == {
            (0.0, 10.0): palette.UNJUDGED,
            (90.0, 100.0): palette.UNJUDGED,
            (40.0, 50.0): palette.SHADE,
        }
    assert (
        figure.get_supxlabel()
        == "time, s (requests where they arrived); yellow: disturbance; grey: not judged"
    )


def test_an_instant_that_disturbs_is_a_line() -> None:
    """A flushed cache takes no time, and is the reason for what comes after it."""
    shown = run()
    instant = replace(shown, report=replace(shown.report, disturbances=((60.0, 60.0),)))
    for axes in draw([instant]).axes:
        (line,) = hidden(axes, "_disturbance")
        assert list(line.get_xdata()) == [60.0, 60.0]


def test_a_value_between_two_gaps_is_a_dot() -> None:
    """A line through one point is nothing; the moments when hardly any is let in are those that matter."""
    timeline = Timeline()
    for at in (0.0, 1.0, 30.0, 60.0):
        timeline.settle(served(at, ttft_s=1.0), good=True)
    ttft = draw([replace(run(), timeline=timeline)]).axes[4]
    (dots,) = hidden(ttft, "_alone")
    assert len(dots.get_xdata()) == 3


def test_policies_are_columns_with_the_same_scales() -> None:
    """A picture that scales each by itself makes all look alike; limits in other units have scales of their own."""
    runs = [run("tidegate"), run("vegas", limit=0.0, in_tokens=False), run("none", limit=float("inf"))]
    rows = grid(draw(runs), 3)
    names = [text.get_text() for axes in rows[0] for text in axes.texts]
    assert names == ["tidegate", "vegas", "none"]
    for row in rows[:1] + rows[2:]:
        assert len({axes.get_ylim() for axes in row}) == 1
        assert labels(row[0]) != [""] * len(labels(row[0]))
    assert [axes.get_title(loc="left") for axes in rows[1]] == [
        "Limit, KV tokens",
        "Limit, requests",
        "No limit, KV tokens",
    ]
    assert rows[1][0].get_ylim()[1] > 1_099 > rows[1][1].get_ylim()[1]


def test_a_limit_far_above_what_is_used_is_told_and_not_drawn_to_scale() -> None:
    """One that begins at thirty thousand and never binds would press all others flat."""
    rows = grid(draw([run("a"), run("b", limit=30_000.0)]), 2)
    assert [axes.get_title(loc="left") for axes in rows[1]] == [
        "Limit, KV tokens",
        "Limit, KV tokens (up to 30.1k)",
    ]
    assert {axes.get_ylim() for axes in rows[1]} == {(0.0, 2.5 * 800 * 1.06)}


def test_what_is_used_without_a_limit_does_not_press_the_limits_flat() -> None:
    """The engine alone may hold a hundred times as many tokens: that is told, and the limits can be seen."""
    unlimited = run("none", limit=math.inf)
    assert unlimited.timeline is not None
    for at in range(100):
        unlimited.timeline.look(at, State(used=5_299_200.0, in_flight=40))
    figure = draw([unlimited, run("tidegate")])
    row = grid(figure, 2)[1]
    assert [axes.get_title(loc="left") for axes in row] == [
        "No limit (up to 2.65M)",
        "Limit, KV tokens",
    ]
    assert {axes.get_ylim()[1] for axes in row} == {1_099 * 1.06}
    figure.draw_without_rendering()
    legend = row[0].get_legend()
    assert legend is not None
    assert row[0]._left_title.get_window_extent().x1 < legend.get_window_extent().x0  # type: ignore[attr-defined]


def test_a_limit_on_requests_is_shown_in_requests() -> None:
    """It keeps its books in tokens, of which it allows a million million: that is not what limits."""
    shown = replace(run("64 at a time", limit=float(1 << 40)), limit_requests=64)
    axes = draw([shown]).axes[1]
    assert axes.get_title(loc="left") == "Limit, requests"
    assert (lines(axes)["limit"][5], lines(axes)["in use"][5]) == (64.0, 40.0)


def test_columns_are_cut_into_the_same_points() -> None:
    """The same requests were offered to all, so that the curve of what was offered is the same; one drains for longer."""
    longer = run("b")
    assert longer.timeline is not None
    longer.timeline.look(400.5, State())
    first, second = (lines(axes)["offered"] for axes in grid(draw([run("a"), longer]), 2)[0])
    assert 1 < len(first) < len(second) <= 240
    assert second[: len(first)] == first
    assert sum(second[len(first) :]) == 0.0


def test_columns_share_the_time_axis_of_the_longest() -> None:
    """An engine that needs longer to drain does not shift the others; after the judged span all of it is grey."""
    longer = run("b")
    assert longer.timeline is not None
    longer.timeline.look(149.5, State())
    for axes in draw([run("a"), longer]).axes:
        assert axes.get_xlim() == (0.0, 150.0)
        assert (90.0, 150.0) in shades(axes)


def test_loads_and_seeds_are_named_where_they_differ() -> None:
    """Two columns of one name are a riddle."""
    figure = draw([run("a"), run("a", load=2.0, seed=1)])
    names = [text.get_text() for axes in grid(figure, 2)[0] for text in axes.texts]
    assert names == ["a, load x1, seed 0", "a, load x2, seed 1"]


def test_nothing_is_clipped() -> None:
    """Every text lies inside the picture, every value inside its panel."""
    figure = draw([run("tidegate"), run("b" * 200, limit=1_500.0)], title="A workload")
    figure.draw_without_rendering()
    whole = figure.bbox.padded(1.0)
    for text in _drawn(figure):
        box = text.get_window_extent()
        assert whole.containsx(box.x0), text
        assert whole.containsx(box.x1), text
        assert whole.containsy(box.y0), text
        assert whole.containsy(box.y1), text
    for axes in figure.axes:
        low, high = axes.get_ylim()
        found = [value for values in lines(axes).values() for value in values if not math.isnan(value)]
        assert all(low <= value <= high for value in found)


def test_the_legend_leaves_the_title_free() -> None:
    """They share the line above a panel, in the narrowest column too."""
    figure = draw([run("a"), run("b"), run("c")])
    figure.draw_without_rendering()
    for axes, *_ in grid(figure, 3):
        legend = axes.get_legend()
        assert legend is not None
        assert axes._left_title.get_window_extent().x1 < legend.get_window_extent().x0  # type: ignore[attr-defined]


def _drawn(figure: Figure) -> list[Text]:
    """Texts that can be seen; labels of ticks outside the limits are kept by the axes but never drawn."""
    unseen = {id(tick) for axes in figure.axes for tick in _unseen(axes)}
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in found if text.get_text() and text.get_visible() and id(text) not in unseen]


def _unseen(axes: Axes) -> list[Text]:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return [
        *(tick for tick in axes.get_xticklabels() if not left <= tick.get_position()[0] <= right),
        *(tick for tick in axes.get_yticklabels(which="both") if not low <= tick.get_position()[1] <= high),
    ]


def test_a_long_run_is_shown_in_fewer_points_and_in_hours() -> None:
    """A day has 86,400 seconds and a column some hundred pixels."""
    shown = run()
    assert shown.timeline is not None
    shown.timeline.settle(served(86_000.0), good=True)
    figure = draw([shown])
    assert len(lines(figure.axes[0])["good"]) <= 240
    assert figure.get_supxlabel().startswith("time, h")
    assert shades(figure.axes[0])[90.0, 86_016.0] == palette.UNJUDGED


def test_a_run_in_which_nothing_happened_is_drawn_empty(tmp_path: Path) -> None:
    """A trace whose window is empty must not end in a stack trace."""
    figure = draw([replace(run(), timeline=Timeline())])
    save(figure, tmp_path / "empty.png")
    assert figure.axes[0].get_title(loc="left") == "Requests/s"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
def test_a_file_is_written_by_its_ending_and_is_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    """A diff of two pictures shows a change of the runs, not the clock."""
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in files:
        save(draw([run()], title="twice"), path)
    first, second = (path.read_bytes() for path in files)
    assert first == second
    head = b"\x89PNG" if suffix.lower() == ".png" else b"<?xml"
    assert first.startswith(head)


def test_text_in_an_svg_is_text(tmp_path: Path) -> None:
    """It can be searched and read aloud."""
    path = tmp_path / "plot.svg"
    save(draw([run()]), path)
    found = path.read_text()
    assert all(f">{title}</text>" in found for title in TITLES)


def test_what_cannot_be_drawn_is_told_in_one_line(tmp_path: Path) -> None:
    """The ending of the file, or runs that nobody watched."""
    with pytest.raises(PlotError, match=r"plot\.pdf: a plot is a \.png or a \.svg"):
        save(draw([run()]), tmp_path / "plot.pdf")
    with pytest.raises(PlotError, match="nothing to draw"):
        draw([run(watched=False)])


@pytest.mark.parametrize("name", ["USED", "REFUSED", "LIMIT", "MARK", "HIGH"])
def test_colours_mean_what_they_mean_on_the_dashboard(name: str) -> None:
    """Who knows one reads the other."""
    assert getattr(palette, name) == COLOURS[name.lower()]


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (palette.USED, palette.LIMIT),
        (palette.USED, palette.REFUSED),
        (palette.LIMIT, palette.REFUSED),
        (palette.USED, palette.HIGH),
        (palette.USED, palette.INK),
        (palette.USED, palette.SHADE),
        (palette.USED, palette.UNJUDGED),
        (palette.HIGH, palette.INK),
        (palette.USED, palette.MARK),
        (palette.SHADE, palette.UNJUDGED),
    ],
)
def test_colours_of_one_panel_differ_to_every_eye(one: str, other: str, sight: str) -> None:
    """The same bar as on the dashboard: nine times just noticeable."""
    assert distance(one, other, sight) > 18


@pytest.mark.parametrize("ground", ["#ffffff", palette.SHADE, palette.UNJUDGED])
def test_lines_stand_out_from_what_is_behind_them(ground: str) -> None:
    """Also where it is shaded."""
    for line in (palette.USED, palette.REFUSED, palette.LIMIT, palette.HIGH, palette.MARK):
        assert contrast(line, ground) > 2.4


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (75, "75"), (1_500, "1.5k"), (2e6, "2M")])
def test_large_numbers_are_short(value: float, text: str) -> None:
    """Six zeros at an axis cannot be read at a glance."""
    assert amount(value) == text
