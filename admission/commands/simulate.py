"""`tidegate simulate`: would Tidegate have helped with this traffic on this engine, and with which settings?"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from admission.commands import simulation_options as options
from admission.commands.output import (
    ExitCode,
    JsonOption,
    console,
    fail,
    loaded_or_exit,
    print_json,
)

if TYPE_CHECKING:
    from admission.core.settings import ControllerConfig
    from admission.simulation.preparing import Asked, Prepared
    from admission.simulation.study import Findings
    from admission.simulation.world import Retry

PLOTS = (".png", ".svg")
INTERRUPTED = 130


def simulate(
    trace: options.TraceOption = None,
    mix: options.MixOption = "",
    journal: options.JournalOption = None,
    scenario: options.ScenarioOption = "",
    window: options.WindowOption = "",
    speed: options.SpeedOption = None,
    rate: options.RateOption = "",
    duration_s: options.DurationOption = None,
    engine: options.EngineOption = "",
    replicas: options.ReplicasOption = 1,
    policies: options.PolicyOption = None,
    config: options.OwnConfigOption = None,
    target: options.OfTargetOption = "",
    ab: options.RivalsOption = None,
    sweep: options.SweepOption = False,
    loads: options.LoadOption = "1",
    seeds: options.SeedsOption = "",
    warm_up_s: options.WarmUpOption = 0.0,
    ttft_slo_s: options.TtftSloOption = None,
    tpot_slo_ms: options.TpotSloOption = None,
    patience_s: options.PatienceOption = 10.0,
    retry: options.RetryOption = "none",
    refuse_too_large: options.RefuseTooLargeOption = False,
    plot: options.PlotOption = None,
    as_json: JsonOption = False,
    list_names: options.ListOption = False,
) -> None:
    """Simulate your traffic on a model of your engine, with and without Tidegate. Without arguments: a recorded burst."""
    given = dict(locals())  # by the names that `Asked` has for them
    if list_names:
        _list(as_json)
        return
    _check_plot(plot)
    own, rivals = _configurations(config, target, ab)
    given |= {
        "own": own,
        "own_name": str(config) if own else "",
        "rivals": rivals,
        "policies": tuple(policies or ()),
        "retry": _retry(retry),
        "watched": plot is not None,
    }
    _answer(_asked(given), plot, as_json)


def _asked(given: dict[str, Any]) -> Asked:
    from dataclasses import fields

    from admission.simulation.preparing import Asked

    return Asked(**{field.name: given[field.name] for field in fields(Asked)})


def _retry(word: str) -> Retry:
    from admission.simulation.world import Retry

    if word not in list(Retry):
        fail(f"--retry {word}: expected one of {', '.join(Retry)}", ExitCode.USAGE)
    return Retry(word)


def _check_plot(plot: Path | None) -> None:
    """Before anything runs: a figure that cannot be written would cost the whole run."""
    if plot is None:
        return
    if plot.suffix.lower() not in PLOTS:
        fail(f"--plot {plot}: the name must end in {' or '.join(PLOTS)}", ExitCode.USAGE)
    if not plot.absolute().parent.is_dir():
        fail(f"--plot {plot}: there is no folder {plot.absolute().parent}", ExitCode.USAGE)
    if importlib.util.find_spec("matplotlib") is None:
        fail("a plot needs its extra: pip install 'tidegate[simulate]'", ExitCode.CANNOT_START)


def _configurations(
    config: Path | None, target: str, ab: tuple[Path, Path] | None
) -> tuple[ControllerConfig | None, dict[str, ControllerConfig]]:
    """The user's own configuration of the target, and the two that are to be compared, by label."""
    if ab is None:
        return (None if config is None else _controller(config, target)), {}
    labels = [path.stem for path in ab]
    if labels[0] == labels[1]:
        labels = [f"A {ab[0]}", f"B {ab[1]}"]
    return None, {label: _controller(path, target) for label, path in zip(labels, ab, strict=True)}


def _controller(config: Path, target: str) -> ControllerConfig:
    found = {each.name: each.controller for each in loaded_or_exit(config).settings.targets}
    if not target and len(found) > 1:
        fail(f"{config} has several targets: choose one with --target ({', '.join(found)})", ExitCode.USAGE)
    chosen = found.get(target or next(iter(found)))
    if chosen is None:
        fail(f"{config} has no target {target!r}; there are {', '.join(found)}", ExitCode.USAGE)
    return chosen


def _answer(asked: Asked, plot: Path | None, as_json: bool) -> None:
    """Prepare, run, print; input that makes no sense is one line, whenever it shows."""
    from admission.config.mistakes import BadConfigurationError
    from admission.simulation.preparing import prepare

    try:
        prepared = prepare(asked)
        _say(prepared, as_json)
        findings = _run(prepared)
        _print(prepared, findings, as_json)
        if plot is not None:
            _plot(plot, prepared, findings)
    except (ValueError, OSError, BadConfigurationError) as error:
        fail(" ".join(str(error).split()), ExitCode.USAGE)
    except KeyboardInterrupt:
        sys.stderr.write("tidegate: stopped; nothing is left running\n")
        raise typer.Exit(INTERRUPTED) from None


def _say(prepared: Prepared, as_json: bool) -> None:
    if not as_json:
        from rich.text import Text

        from admission.simulation.report.tables import show

        for line in (*prepared.lines, ""):
            show(console(), Text(line))


def _run(prepared: Prepared) -> Findings:
    """With a progress bar where somebody watches."""
    from admission.simulation.study import Silent

    if not sys.stderr.isatty():
        return prepared.study.run(Silent())
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        return prepared.study.run(_Bar(progress))


class _Bar:
    """Tells a progress bar."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=0)

    def expect(self, runs: int) -> None:
        """So many more."""
        self._progress.update(self._task, total=(self._progress.tasks[0].total or 0) + runs)

    def advance(self) -> None:
        """One has ended."""
        self._progress.advance(self._task)


def _print(prepared: Prepared, findings: Findings, as_json: bool) -> None:
    from admission.simulation.saying import document, sentences

    if as_json:
        print_json(document(findings, prepared.facts, prepared.rivals))
        return
    from rich.text import Text

    from admission.simulation.report.tables import overview, show

    out = console()
    show(out, overview(findings.runs, prepared.study.setup.slo))
    for sentence in sentences(findings, prepared.rivals):
        show(out, Text(sentence))


def _plot(plot: Path, prepared: Prepared, findings: Findings) -> None:
    from admission.simulation.report.plot import draw, save
    from admission.vocabulary import PriorityClass

    slo = prepared.study.setup.slo[PriorityClass.INTERACTIVE]
    which = _drawn(findings)
    save(draw(findings.runs, slo, prepared.title + which), plot)
    console(stderr=True).print(f"written to {plot}{which}", markup=False, soft_wrap=True)


def _drawn(findings: Findings) -> str:
    """Which of several loads and seeds the picture shows; nothing where there is one."""
    told = [f"load {findings.loads[0]:g}"] if len(findings.loads) > 1 else []
    told += [f"seed {findings.seeds[0]}"] if len(findings.seeds) > 1 else []
    return f" ({', '.join(told)})" if told else ""


def _list(as_json: bool) -> None:
    """Every name that the options take."""
    from admission.simulation.catalogue import catalogue

    found = catalogue()
    if as_json:
        print_json(found)
        return
    from rich.markup import escape
    from rich.table import Table

    from admission.simulation.report.tables import show

    for kind, names in found.items():
        table = Table(
            box=None, pad_edge=False, title=kind, title_justify="left", title_style="bold", show_header=False
        )
        for name, about in names.items():
            table.add_row(f"  {escape(name)}", escape(about))
        show(console(), table)
