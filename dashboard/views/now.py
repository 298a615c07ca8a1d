"""Now: is it protecting us, who is refused and why; live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import streamlit as st

from dashboard import cards, charts, panels, tables, theme, verdict, wording
from dashboard.causes import Facts
from dashboard.picture import History, Picture
from dashboard.source import Source, open_source

_ACROSS = 4
_MOST_BUTTONS = 6


@st.cache_resource(show_spinner=False)
def shared_source() -> Source:
    """One for all sessions, so that ten viewers ask the sidecar as often as one."""
    return open_source(sys.argv[1:], os.environ, time.monotonic)


@st.fragment(run_every=1.0)
def page() -> None:
    """Everything, once a second."""
    source = shared_source()
    picture = source.picture()
    name = pick_target(picture, source)
    target = picture.target(name)
    if target is None:
        st.html(panels.banner(verdict.judge_nothing(picture), None))
        return
    facts = Facts(picture, target, source.rates(target.name), source.history(target.name))
    draw_top(facts)
    draw_cards(facts)
    draw_tables(facts, source)


def pick_target(picture: Picture, source: Source) -> str | None:
    """The target's name from the address bar, else the worst one; a picker when there is a choice."""
    names = [target.name for target in picture.snapshot.targets] if picture.snapshot is not None else []
    if len(names) < 2:
        return names[0] if names else None
    levels = {name: level_of(picture, source, name) for name in names}
    asked = st.query_params.get("target")
    start = asked if asked in levels else verdict.worst(levels)
    chosen = draw_picker(names, start, lambda name: f"{theme.ICONS[levels[name]]} {name}")
    if chosen is not None and chosen != asked:
        st.query_params["target"] = chosen
    return chosen or start


def draw_picker(names: list[str], start: str, label: Callable[[str], str]) -> str | None:
    """Buttons for a few targets, a list for many; each with the sign of its level."""
    if len(names) <= _MOST_BUTTONS:
        return st.segmented_control(
            "Target", names, default=start, format_func=label, label_visibility="collapsed", key="target"
        )
    return st.selectbox(
        "Target",
        names,
        index=names.index(start),
        format_func=label,
        label_visibility="collapsed",
        key="target",
    )


def level_of(picture: Picture, source: Source, name: str) -> verdict.Level:
    """How a target fares, by its snapshot alone."""
    target = picture.target(name)
    if target is None:
        return verdict.Level.UNKNOWN
    return verdict.judge(Facts(picture, target, source.rates(name), History())).level


def draw_top(facts: Facts) -> None:
    """What one must see in five seconds."""
    st.html(panels.banner(verdict.judge(facts), facts.target.mode))
    st.html(panels.strip(facts, wording.zone(st.context.timezone)))
    st.html(panels.warnings(facts.picture, facts.history.error) or "<span></span>")


def draw_cards(facts: Facts) -> None:
    """Eight cards on one time axis."""
    shown = cards.cards(facts)
    # As of the last points: until there are new ones the browser has nothing to draw anew.
    now = facts.history.at if facts.history.at and not facts.picture.away else facts.picture.unix_now
    axis = charts.window(facts.history, now)
    for start in range(0, len(shown), _ACROSS):
        for column, card in zip(st.columns(_ACROSS), shown[start : start + _ACROSS], strict=False):
            with column, st.container(key=f"tg-card-{card.key}"):
                draw_card(card, facts.picture, axis)


def draw_card(card: cards.Card, picture: Picture, axis: charts.Window) -> None:
    """The head, and the chart below it or why there is none."""
    st.html(panels.old(panels.card(card), picture))
    if not any(trace.line.unix_s for trace in card.traces):
        st.html(panels.empty("no history yet"))
        return
    rows = charts.frame(card.traces, card.marks, axis, card.unit, card.top)
    st.vega_lite_chart(rows, charts.specification(card.unit), width="stretch")


def draw_tables(facts: Facts, source: Source) -> None:
    """Who fares how, why, and what we see it with."""
    where = wording.zone(st.context.timezone)
    st.html(panels.old(tables.classes(facts), facts.picture))
    left, right = st.columns([3, 2])
    for column, table in (
        (left, tables.changes(facts, where)),
        (left, tables.gpus(facts)),
        (right, tables.refusals(facts, source.decisions(facts.target.name))),
        (right, tables.signals(facts)),
    ):
        column.html(panels.old(table, facts.picture))


st.html(theme.STYLE)
page()
