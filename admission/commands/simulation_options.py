"""The options of `tidegate simulate`, by the question that they answer: which traffic, against what, how, and where to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_TRAFFIC, _WHAT, _HOW, _OUTPUT = "Traffic", "What to compare", "How", "Output"

TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="CSV or JSON lines, plain or .gz: arrival_s, prompt_tokens, output_tokens, ...; or a name of --list.",
        rich_help_panel=_TRAFFIC,
    ),
]
MixOption = Annotated[
    str,
    typer.Option(
        "--mix", help="Synthetic traffic: a YAML file, or a name of --list.", rich_help_panel=_TRAFFIC
    ),
]
JournalOption = Annotated[
    Path | None,
    typer.Option("--journal", help="The journal folder of a sidecar that ran.", rich_help_panel=_TRAFFIC),
]
ScenarioOption = Annotated[
    str,
    typer.Option(
        "--scenario",
        help="A built-in one of --list, with engine, traffic and mishaps of its own.",
        rich_help_panel=_TRAFFIC,
    ),
]
WindowOption = Annotated[
    str,
    typer.Option(
        "--window",
        metavar="START:LENGTH",
        help="This part of the recording, in its seconds.",
        rich_help_panel=_TRAFFIC,
    ),
]
SpeedOption = Annotated[
    float | None,
    typer.Option(
        "--speed", help="Play the recording so many times as fast: shorter bursts.", rich_help_panel=_TRAFFIC
    ),
]
RateOption = Annotated[
    str,
    typer.Option(
        "--rate",
        metavar="N|capacity",
        help="Requests a second on average, at the same rhythm; capacity: the most that the engine can carry.",
        rich_help_panel=_TRAFFIC,
    ),
]
DurationOption = Annotated[
    float | None, typer.Option("--duration", help="Simulated seconds.", rich_help_panel=_TRAFFIC)
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", help="A name of --list, or a file of tidegate calibrate.", rich_help_panel=_WHAT
    ),
]
ReplicasOption = Annotated[
    int,
    typer.Option(
        "--replicas",
        help="Engines of this kind behind the one sidecar.",
        min=1,
        max=256,
        rich_help_panel=_WHAT,
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME[:KEY=VALUE,...]",
        help="Once for each to compare; names and keys in --list.",
        rich_help_panel=_WHAT,
    ),
]
OwnConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="TIDEGATE_CONFIG",
        help="Your sidecar's YAML file: its classes, SLOs and limit.",
        rich_help_panel=_WHAT,
    ),
]
OfTargetOption = Annotated[
    str,
    typer.Option(
        "--target", "-t", help="Which target of the file, or of the journal.", rich_help_panel=_WHAT
    ),
]
RivalsOption = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--ab",
        metavar="A.yaml B.yaml",
        help="Which configuration is better, and is that more than noise?",
        rich_help_panel=_WHAT,
    ),
]
SweepOption = Annotated[
    bool,
    typer.Option("--sweep", help="Also the best static token budget in hindsight.", rich_help_panel=_WHAT),
]
LoadOption = Annotated[
    str,
    typer.Option(
        "--load",
        metavar="FACTOR,...",
        help="Multiples of the rate, such as 0.5,1,2,5.",
        rich_help_panel=_HOW,
    ),
]
SeedsOption = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="N|LIST",
        help="How many, or which ones: 7,8,9. Default 1; 5 for --ab.",
        rich_help_panel=_HOW,
    ),
]
WarmUpOption = Annotated[
    float,
    typer.Option("--warm-up", help="Seconds at the start that do not count.", min=0.0, rich_help_panel=_HOW),
]
TtftSloOption = Annotated[
    float | None,
    typer.Option(
        "--ttft-slo",
        help="Interactive: seconds to the first token of a short prompt.",
        rich_help_panel=_HOW,
    ),
]
TpotSloOption = Annotated[
    float | None,
    typer.Option(
        "--tpot-slo", help="Interactive: milliseconds for each token after it.", rich_help_panel=_HOW
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--patience", help="Callers leave after so many seconds without a token.", rich_help_panel=_HOW
    ),
]
RetryOption = Annotated[
    str,
    typer.Option(
        "--retry",
        metavar="none|backoff|storm",
        help="What callers do that were refused or left.",
        rich_help_panel=_HOW,
    ),
]
RefuseTooLargeOption = Annotated[
    bool,
    typer.Option(
        "--refuse-too-large",
        help="Go on with requests that the engine's KV cannot hold.",
        rich_help_panel=_HOW,
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png|svg", help="Draw each policy over time.", rich_help_panel=_OUTPUT
    ),
]
ListOption = Annotated[
    bool,
    typer.Option(
        "--list", help="Engines, policies, mixes, traces and scenarios by name.", rich_help_panel=_OUTPUT
    ),
]
