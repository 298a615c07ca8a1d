"""The HTML of the page: every text from outside is escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from html import escape

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import types_pb2 as types
from dashboard import wording
from dashboard.cards import Card
from dashboard.causes import Facts, is_lost
from dashboard.picture import Picture
from dashboard.theme import COLOURS, ICONS
from dashboard.verdict import Verdict

_DASHED = {"mark", "critical"}
_MOST_WARNINGS = 4
_SLOW_DECISION_S = 0.25
_MODES = {
    types.MODE_SHADOW: ("shadow", "SHADOW", "recorded, not applied: all are admitted"),
    types.MODE_ENFORCE: ("enforce", "ENFORCE", "decisions are applied"),
    types.MODE_OFF: ("off", "OFF", "everything passes"),
}


def banner(verdict: Verdict, mode: types.Mode.ValueType | None) -> str:
    """The verdict, and beside it what the target does with its decisions."""
    level = verdict.level.value
    said = (
        f'<div class="tg-verdict tone-{level} {level}" role="status"><div class="icon">{ICONS[level]}</div>'
        f'<div><div class="say">{escape(verdict.headline)}</div><div class="why">{escape(verdict.detail)}</div></div></div>'
    )
    key, name, means = _MODES.get(mode or types.MODE_UNSPECIFIED, ("", "", ""))
    badge = (
        f'<div class="tg-mode {key}"><div class="tg-soft">mode</div><div class="name">{name}</div>'
        f'<div class="tg-soft">{means}</div></div>'
    )
    return f'<div class="tg tg-top">{said}{badge if name else ""}</div>'


def strip(facts: Facts, where: tzinfo) -> str:
    """One line of state: what is as usual is grey, what is not is coloured and says why."""
    target, snapshot = facts.target, facts.picture.snapshot
    items = [
        ("target", target.name, ""),
        ("engine", target.engine_state or wording.UNKNOWN, "" if target.engine_state == "up" else "warn"),
        (
            "sight",
            target.sight or wording.UNKNOWN,
            {"full": "", "blind": "critical"}.get(target.sight, "warn"),
        ),
        ("limit", f"frozen: {target.frozen}" if target.frozen else "moving", "warn" if target.frozen else ""),
        _signals_item(facts.picture.signals(target.name)),
    ]
    if snapshot is not None:
        items += [
            ("clients", str(snapshot.sessions), ""),
            ("up", wording.ago(snapshot.uptime.seconds), ""),
            _decides_item(snapshot.decision_time),
            ("version", snapshot.version or wording.UNKNOWN, ""),
            ("as of", wording.clock(facts.picture.unix_now - facts.picture.age_s, where), ""),
        ]
    spans = "".join(
        f'<span><span class="tg-soft">{escape(name)}</span> <b{_tone(tone)}>{_icon(tone)}{escape(text)}</b></span>'
        for name, text, tone in items
    )
    return f'<div class="tg tg-strip">{spans}</div>'


def _signals_item(signals: Sequence[monitor.SignalSnapshot]) -> tuple[str, str, str]:
    if not signals:
        return ("signals", "none", "warn")
    parts = [f"{sum(signal.state == 'fresh' for signal in signals)} fresh"]
    lost = sum(is_lost(signal) for signal in signals)
    never = sum(signal.state != "fresh" for signal in signals) - lost
    parts += [f"{lost} lost"] if lost else []
    parts += [f"{never} never came"] if never else []
    return ("signals", ", ".join(parts), "warn" if lost else "")


def _decides_item(measured: monitor.Percentiles) -> tuple[str, str, str]:
    p99 = measured.p99 if measured.HasField("p99") else None
    slow = p99 is not None and p99 > _SLOW_DECISION_S
    return ("decides in p99", wording.seconds(p99), "warn" if slow else "")


def warnings(picture: Picture, history_error: str) -> str:
    """The sidecar's own warnings, what no target claims, and a history that cannot be had; empty without any."""
    found = list(picture.snapshot.warnings) if picture.snapshot is not None else []
    if picture.snapshot is not None and picture.snapshot.unbound:
        found.append(f"no target claims {', '.join(picture.snapshot.unbound)}")
    if history_error and not picture.away:
        found.append(f"charts are not up to date: {history_error}")
    if not found:
        return ""
    shown = "".join(f"<div>▲ {escape(line)}</div>" for line in found[:_MOST_WARNINGS])
    more = (
        f'<div class="tg-soft">and {len(found) - _MOST_WARNINGS} more</div>'
        if len(found) > _MOST_WARNINGS
        else ""
    )
    return f'<div class="tg tg-warnings">{shown}{more}</div>'


def card(shown: Card) -> str:
    """The head of a card; its chart follows."""
    legend = "".join(f"<span>{swatch(key)}{escape(text)}</span>" for key, text in shown.legend)
    return (
        f'<div class="tg tg-card"><div class="head"><span>{escape(shown.title)}</span><span>{escape(shown.aside)}</span></div>'
        f'<div class="big"><span{_tone(shown.tone)}>{_icon(shown.tone)}{escape(shown.value)}</span> <small>{escape(shown.small)}</small></div>'
        f'<div class="note" title="{escape(shown.note)}">{escape(shown.note) or "&nbsp;"}</div>'
        f'<div class="legend">{legend or "&nbsp;"}</div></div>'
    )


def empty(text: str) -> str:
    """What stands in the place of a chart without points."""
    return f'<div class="tg tg-empty">{escape(text)}</div>'


def swatch(key: str) -> str:
    """A spot of a colour of the theme, a dash for lines that must not be crossed."""
    colour = COLOURS.get(key, COLOURS["limit"])
    if key in _DASHED:
        return f'<span class="tg-swatch dash" style="border-color:{colour}"></span>'
    return f'<span class="tg-swatch" style="background:{colour}"></span>'


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> str:
    """A panel with a table; cells are HTML already, a row of one cell spans all. The first column, and any head that starts with `<`, is left-aligned."""
    if not rows:
        return f'<div class="tg tg-panel"><h4>{escape(title)}</h4><div class="tg-soft">{escape(none)}</div></div>'
    left = [i == 0 or head.startswith("<") for i, head in enumerate(heads)]
    head = "".join(
        f'<th class="{"l" if is_left else ""}">{escape(text.lstrip("<"))}</th>'
        for text, is_left in zip(heads, left, strict=True)
    )
    body = "".join(_row(row, left) for row in rows)
    return (
        f'<div class="tg tg-panel"><h4>{escape(title)}</h4>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[str], left: Sequence[bool]) -> str:
    if len(cells) == 1:
        return f'<tr><td class="l" colspan="{len(left)}">{cells[0]}</td></tr>'
    shown = zip(cells, left, strict=True)
    return (
        "<tr>"
        + "".join(f'<td class="{"l" if is_left else "nw"}">{cell}</td>' for cell, is_left in shown)
        + "</tr>"
    )


def toned(text: str, tone: str) -> str:
    """Escaped text in the colour and with the sign of a level; plain when `tone` is empty."""
    return f"<b{_tone(tone)}>{_icon(tone)}{escape(text)}</b>" if tone and text else escape(text)


def soft(text: str) -> str:
    """Escaped text that stands back."""
    return f'<span class="tg-soft">{escape(text)}</span>'


def bar(used: float, marks: Sequence[tuple[float, str]], colour: str) -> str:
    """A bar filled to `used` of 0 to 1, with marks at ratios."""
    ticks = "".join(
        f'<u style="left:{min(1.0, max(0.0, at)) * 100:.1f}%;background:{COLOURS[key]}"></u>'
        for at, key in marks
    )
    fill = f'<i style="width:{min(1.0, max(0.0, used)) * 100:.1f}%;background:{COLOURS[colour]}"></i>'
    return f'<div class="tg-bar">{fill}{ticks}</div>'


def old(html: str, picture: Picture) -> str:
    """Values of a sidecar that is away are shown as what they are: old."""
    return f'<div class="tg-old">{html}</div>' if picture.away else html


def _tone(tone: str) -> str:
    return f' class="tg-{escape(tone)}"' if tone else ""


def _icon(tone: str) -> str:
    return f"{ICONS[tone]} " if tone in {"warn", "critical"} else ""
