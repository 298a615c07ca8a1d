"""What a person sees: both runs side by side while they happen, and a short table at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.table import Table

from admission.simulation.load import LoadReport

WITHOUT, WITH = "without Tidegate", "with Tidegate"
_DASH = "-"


@dataclass(slots=True)
class Board:
    """Both columns as they stand."""

    reports: dict[str, LoadReport] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def table(self, title: str) -> RenderableType:
        """Both runs side by side."""
        table = Table(title=title, title_justify="left")
        table.add_column("", no_wrap=True)
        for name in (WITHOUT, WITH):
            table.add_column(name, justify="right", min_width=17)
        table.add_row("", *(self.notes.get(name, "waits") for name in (WITHOUT, WITH)))
        rows = [dict(_rows(report)) if (report := self.reports.get(name)) else {} for name in (WITHOUT, WITH)]
        for label in dict.fromkeys((*rows[0], *rows[1])):
            bold = "bold " if label.startswith("good") else ""
            style = f"{bold}green" if label.startswith("good") else ""
            table.add_row(label, *(row.get(label, _DASH) for row in rows), style=style)
        return table

    def line(self, name: str) -> str:
        """One line of progress, for where nobody sees a table move."""
        report = self.reports[name]
        return (
            f"{name}: {self.notes.get(name, '')}, {report.offered_requests} offered, "
            f"{_percent(report.goodput_requests_ratio)} good, TTFT p99 {_seconds(report.ttft_p99_s)}"
        )


def _rows(report: LoadReport) -> list[tuple[str, str]]:
    endings = report.endings
    rows = [
        ("offered", str(report.offered_requests)),
        ("good / offered, requests", _percent(report.goodput_requests_ratio)),
        ("good / offered, tokens", _percent(report.goodput_tokens_ratio)),
        ("TTFT p50, let in", _seconds(report.ttft_p50_s)),
        ("TTFT p99, let in", _seconds(report.ttft_p99_s)),
        ("TPOT p90, let in", _milliseconds(report.tpot_p90_s)),
        ("served whole", str(endings.get("served", 0))),
        ("  of these within SLO", _percent(report.served_within_slo_ratio)),
        ("left after 10 s", str(endings.get("impatient", 0))),
        ("failed", str(endings.get("failed", 0) + endings.get("invalid", 0))),
        ("refused (429 or 503)", str(endings.get("refused", 0))),
    ]
    rows += [(f"  {reason}", str(count)) for reason, count in sorted(report.refusals.items())]
    return rows


def verdict(board: Board) -> str:
    """The outcome in one sentence."""
    without, with_ = board.reports[WITHOUT], board.reports[WITH]
    return (
        f"Good answers: {without.good_requests} without Tidegate, {with_.good_requests} with it, "
        f"of the same {with_.offered_requests} requests at the same moments "
        f"({without.good_tokens / 1e6:.2f} and {with_.good_tokens / 1e6:.2f} M tokens). "
        "Good: whole, first token within 2 s plus 0.25 s per 1,000 prompt tokens, 80 ms per token after it."
    )


def console() -> Console:
    """Standard output."""
    return Console(highlight=False)


def _percent(ratio: float | None) -> str:
    return _DASH if ratio is None else f"{100 * ratio:.1f} %"


def _seconds(value: float | None) -> str:
    return _DASH if value is None else f"{value:.2f} s"


def _milliseconds(value: float | None) -> str:
    return _DASH if value is None else f"{1000 * value:.0f} ms"
