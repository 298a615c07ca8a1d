"""`tidegate calibrate`: an engine model from measurements of a real server, and how far off it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from admission.commands.output import ExitCode, JsonOption, console, fail, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from admission.simulation.calibrating.fitting import Progress
    from admission.simulation.calibrating.job import Outcome, Wish

OPEN = 1.0
"""A constant that can move by its own size at little cost is not told by the data."""

Data = Annotated[
    list[Path] | None,
    typer.Argument(help="A sidecar's journal, or CSV tables: requests, series, profile points."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Engine file to write.")]
KvCapacity = Annotated[
    int | None, typer.Option(min=2, help="KV tokens of each engine. Default: told from the data.")
]
MaxNumSeqs = Annotated[
    int | None, typer.Option(min=1, help="Sequences in a batch at most. Default: told from the data, or 256.")
]
StepTokens = Annotated[
    int, typer.Option(min=2, help="Tokens in a step at most (vLLM: max_num_batched_tokens).")
]
Ahead = Annotated[
    bool | None,
    typer.Option(
        "--ahead/--no-ahead",
        help="A batch is composed while the one before runs (vLLM: async scheduling). Default: what fits better.",
    ),
]
Usual = Annotated[
    bool,
    typer.Option(
        "--usual/--no-usual",
        help="Hold what requests leave open near what is usual on GPUs. Say no for a server on CPUs.",
    ),
]
Engines = Annotated[
    int | None, typer.Option(min=1, max=64, help="Engines that shared the requests (data-parallel ranks).")
]
TtftFrom = Annotated[
    str, typer.Option(help="Where a table's TTFT begins: arrival, or queue (vLLM: queued_ts).")
]
Where = Annotated[
    list[str] | None, typer.Option(help="COLUMN=VALUE: only such rows of the tables. Repeat it at will.")
]
Target = Annotated[str, typer.Option("--target", "-t", help="One of a journal with several.")]
Share = Annotated[
    float, typer.Option(min=0.1, max=0.9, help="Fit to this share of the requests, judge by the rest.")
]
Evaluations = Annotated[int, typer.Option(min=1, max=10_000, help="Simulated runs of the closing search.")]
MostRequests = Annotated[
    int, typer.Option(min=40, help="Take the busiest so many requests in a row, no more.")
]
Text = Annotated[str, typer.Option(help="For the engine file.")]
ShippedData = Annotated[
    bool, typer.Option("--shipped", help="Calibrate anew to the measurements that come with the package.")
]


def calibrate(
    data: Data = None,
    out: Out = None,
    kv_capacity: KvCapacity = None,
    max_num_seqs: MaxNumSeqs = None,
    step_tokens: StepTokens = 2_048,
    ahead: Ahead = None,
    usual: Usual = True,
    engines: Engines = None,
    ttft_from: TtftFrom = "arrival",
    where: Where = None,
    target: Target = "",
    share: Share = 0.5,
    evaluations: Evaluations = 120,
    most_requests: MostRequests = 3_000,
    name: Text = "",
    hardware: Text = "",
    model: Text = "",
    shipped: ShippedData = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the cost of an engine's step to measurements of a real server, and judge it by the part left out."""
    from admission.simulation.calibrating.job import Wish

    _check_out(out)
    if shipped:
        _shipped(as_json)
        return
    if not data:
        fail("give a journal or tables to calibrate to, or --shipped", ExitCode.USAGE)
    wish = Wish(
        kv_capacity_tokens=kv_capacity,
        max_num_seqs=max_num_seqs,
        step_tokens=step_tokens,
        ahead=ahead,
        usual=usual,
        clock=_clock(ttft_from),
        engines=engines,
        share=share,
        evaluations=evaluations,
        most_requests=most_requests,
        where=tuple(where or ()),
        target=target,
    )
    outcome = _run(data, wish)
    _show([("", outcome)], as_json)
    if out:
        _write(out, outcome, (name or out.stem, hardware, model))


def _check_out(out: Path | None) -> None:
    """Before the fit: a file that cannot be written would cost all of it."""
    if out is None:
        return
    if not out.absolute().parent.is_dir():
        fail(f"--out {out}: there is no folder {out.parent}", ExitCode.USAGE)
    if out.is_dir():
        fail(f"--out {out}: it is a folder", ExitCode.USAGE)


def _clock(text: str) -> Any:
    from admission.simulation.calibrating.measured import Clock

    if text not in set(Clock):
        fail(f"--ttft-from {text}: it is arrival or queue", ExitCode.USAGE)
    return Clock(text)


def _run(data: list[Path], wish: Wish) -> Outcome:
    from admission.simulation.calibrating.job import calibrate as run
    from admission.simulation.calibrating.measured import CalibrationError

    try:
        with _progress() as progress:
            return run(data, wish, progress)
    except CalibrationError as error:
        fail(str(error), ExitCode.USAGE)


def _shipped(as_json: bool) -> None:
    from admission.simulation.calibrating.shipped import calibrate_shipped

    with _progress() as progress:
        outcomes = [(each.engine, outcome) for each, outcome in calibrate_shipped(progress)]
    _show(outcomes, as_json)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, where a person reads it."""
    from rich.progress import Progress as Bar

    err = console(stderr=True)
    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("calibrating", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(outcomes: list[tuple[str, Outcome]], as_json: bool) -> None:
    if as_json:
        plain = [_plain(engine, outcome) for engine, outcome in outcomes]
        print_json(plain if len(plain) > 1 else plain[0])
        return
    for engine, outcome in outcomes:
        _print(engine, outcome)


def _plain(engine: str, outcome: Outcome) -> dict[str, Any]:
    import dataclasses

    return {
        "engine": engine or None,
        "source": outcome.source,
        "engines": outcome.engines,
        "config": dataclasses.asdict(outcome.config),
        "open": {key: value if value < float("inf") else None for key, value in outcome.open.items()},
        "notes": outcome.notes,
        "fitted": _figures(outcome, judged=False),
        "judged": _figures(outcome, judged=True),
    }


def _figures(outcome: Outcome, *, judged: bool) -> list[dict[str, Any]]:
    return [
        {"measure": measure, "real": real, "simulated": simulated, "error": error}
        for measure, real, simulated, error in _lines(outcome, judged=judged)
    ]


def _lines(outcome: Outcome, *, judged: bool) -> list[tuple[str, float | None, float | None, float]]:
    """Figures of the part fitted to, or of the rest. Of points the mean error is told, and the largest."""
    accuracy = outcome.judged if judged else outcome.fitted
    if accuracy is not None:
        return [(line.measure, line.real_s, line.simulated_s, line.error) for line in accuracy.lines]
    assert outcome.points is not None  # noqa: S101 - narrows a type
    found = outcome.points.judged if judged else outcome.points.fitted
    lines: list[tuple[str, float | None, float | None, float]] = []
    for kind, errors in found.items():
        sizes = [abs(error) for error in errors]
        lines.append((f"{kind}, mean", None, None, sum(sizes) / len(sizes)))
        lines.append((f"{kind}, largest", None, None, max(sizes)))
    return lines


def _print(engine: str, outcome: Outcome) -> None:
    from rich.markup import escape

    from admission.simulation.report.tables import show

    out, config = console(), outcome.config
    out.print(f"[bold]{escape(engine or outcome.source)}[/bold]")
    for note in outcome.notes:
        out.print(note, markup=False)
    out.print(
        f"{outcome.engines} x {config.kv_capacity_tokens:,} KV tokens, {config.max_num_seqs} sequences, "
        f"{config.step_tokens} tokens a step, batches composed {'ahead' if config.ahead else 'in turn'}"
    )
    show(out, _constants(outcome))
    show(out, _errors(outcome))
    out.print()


_UNITS = (
    ("base_s", 1e3, "ms a step"),
    ("prefill_s_per_token", 1e6, "us a prefilled token"),
    ("decode_s_per_sequence", 1e6, "us a decoding sequence"),
    ("kv_s_per_token", 1e9, "ns a KV token held"),
    ("overhead_s", 1e3, "ms before the queue"),
)


def _constants(outcome: Outcome) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for key, unit, words in _UNITS:
        value, ratio = getattr(outcome.config, key), outcome.open[key]
        vague = "hardly told by these data" if ratio > OPEN else f"+-{ratio:.0%} at little cost"
        table.add_row(key, f"{value * unit:.4g} {words}", vague if value else "")
    return table


def _errors(outcome: Outcome) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "fitted to: real", "simulated", "error", "held out: real", "simulated", "error"):
        table.add_column(heading, justify="right" if heading else "left")
    cells: dict[str, list[str]] = {}
    for side, judged in enumerate((False, True)):
        for measure, real, simulated, error in _lines(outcome, judged=judged):
            row = cells.setdefault(measure, [""] * 6)
            row[3 * side : 3 * side + 3] = [_time(real), _time(simulated), f"{error:+.1%}"]
    for measure, row in cells.items():
        table.add_row(measure, *row)
    return table


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _write(path: Path, outcome: Outcome, texts: tuple[str, str, str]) -> None:
    from admission.simulation.engines import Calibration, write_engine

    name, hardware, model = texts
    source = f"tidegate calibrate, {outcome.source}"
    engine = Calibration(name=name, hardware=hardware, model=model, source=source, config=outcome.config)
    errors = [f"{measure} {error:+.1%}" for measure, _, _, error in _lines(outcome, judged=True)]
    shared = f"\nThe requests were shared by {outcome.engines} such engines." if outcome.engines > 1 else ""
    try:
        write_engine(path, engine, f"Errors over what it was not fitted to: {', '.join(errors)}.{shared}")
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", ExitCode.USAGE)
    console(stderr=True).print(f"written to {path}", markup=False)
