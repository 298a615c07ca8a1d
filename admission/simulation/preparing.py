"""From what was asked to a study: everything is read and checked once before any run begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from admission.core.settings import ControllerConfig
from admission.core.slo import SloConfig
from admission.simulation import asking
from admission.simulation.asking import AskedWronglyError
from admission.simulation.engines import Calibration, load_engine
from admission.simulation.judging import DEFAULT_SLOS
from admission.simulation.policies import PolicySpec
from admission.simulation.study import Setup, Study
from admission.simulation.survey import look
from admission.simulation.telling import (
    capacity_line,
    engine_line,
    slo_line,
    source_name,
    too_large_line,
)
from admission.simulation.traces import AZURE_CODE_BURST, shipped_names
from admission.simulation.workload import Bench, Kind, Traffic
from admission.simulation.world import Callers, Retry, WorldConfig
from admission.vocabulary import Mode, PriorityClass

ENGINE = "h100-llama3-8b"
POLICIES = {
    "none": "none",
    "64 at a time": "fixed_requests:limit_requests=64,guards=false",
    "tidegate": "tidegate",
}
"""What is compared when nobody says otherwise, by label: nothing, a limit as people set it by hand, and ours."""
CAPACITY = "capacity"
"""In place of a rate: as much as the engine can carry."""
DEFAULT_SPEED = 4.0
"""At which the burst that comes with the package is about twice what the default engine can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options as typed; None and empty: not given."""

    trace: Path | None = None
    mix: str = ""
    journal: Path | None = None
    target: str = ""
    """Of a journal that has several."""
    scenario: str = ""
    engine: str = ""
    policies: tuple[str, ...] = ()
    own: ControllerConfig | None = None
    """The user's configuration of the target, for `tidegate` and for the classes of all."""
    own_name: str = ""
    rivals: Mapping[str, ControllerConfig] = field(default_factory=dict)
    """Two configurations to compare, by label."""
    loads: str = "1"
    sweep: bool = False
    seeds: str = ""
    duration_s: float | None = None
    warm_up_s: float = 0.0
    window: str = ""
    speed: float | None = None
    rate: str = ""
    """Requests a second, or `CAPACITY`."""
    ttft_slo_s: float | None = None
    tpot_slo_ms: float | None = None
    watched: bool = False
    refuse_too_large: bool = False
    replicas: int = 1
    """Engines behind the one sidecar."""
    patience_s: float = 10.0
    """Callers leave after so long without a first token."""
    retry: Retry = Retry.NONE
    """What callers do that were refused or left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A study that can run, and what people should know of it."""

    study: Study
    facts: Mapping[str, Any]
    """For programs: traffic, engine, SLO."""
    lines: tuple[str, ...]
    """For people, the same."""
    title: str = ""
    """The shortest that says what it is, for a plot."""
    rivals: tuple[str, str] | None = None
    """Labels of two configurations to compare."""


def prepare(asked: Asked) -> Prepared:
    """Read and check everything.

    Raises:
        AskedWronglyError: what was asked makes no sense; one line.
        ValueError: an input makes no sense (a trace, a mix, an engine file, an unknown name); one line.
    """
    _check(asked)
    seeds, loads = asking.seeds(asked.seeds or ("5" if asked.rivals else "1")), asking.loads(asked.loads)
    for text in asked.policies:
        asking.policy(text, asked.own)  # a long trace need not be read before a typing error shows
    setup, about = _scenario(asked) if asked.scenario else _bench(asked)
    contenders = _contenders(asked, setup.slo)
    study = Study(
        setup=setup,
        contenders=contenders,
        seeds=seeds,
        loads=loads,
        sweep=asked.sweep,
        fixed=lambda tokens: asking.policy(
            f"fixed_tokens:limit_tokens={tokens},guards=false", asked.own, setup.slo
        ),
        watched=asked.watched,
    )
    _check_size(study)
    facts = {**about.facts, "config": asked.own_name, "slo": _slo_facts(setup.slo)}
    return Prepared(
        study=study,
        facts=facts,
        lines=(*about.lines, *_own_line(asked)),
        title=about.title,
        rivals=_pair(asked),
    )


def _own_line(asked: Asked) -> list[str]:
    if asked.own is None:
        return []
    mode = (
        ""
        if asked.own.mode is Mode.ENFORCE
        else f" (there in {asked.own.mode.name.lower()} mode, here enforcing)"
    )
    return [f"tidegate as in {asked.own_name}{mode}"]


def _slo_facts(slos: Mapping[PriorityClass, SloConfig]) -> dict[str, Any]:
    return {rank.label: asdict(slo) for rank, slo in sorted(slos.items())}


def _pair(asked: Asked) -> tuple[str, str] | None:
    if not asked.rivals:
        return None
    a, b = asked.rivals
    return a, b


@dataclass(frozen=True, slots=True)
class About:
    """What is run, for programs and for people."""

    title: str
    facts: Mapping[str, Any]
    lines: tuple[str, ...]


def _check(asked: Asked) -> None:
    sources = {
        "--trace": asked.trace,
        "--mix": asked.mix,
        "--journal": asked.journal,
        "--scenario": asked.scenario,
    }
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise AskedWronglyError(f"{' and '.join(given)}: give one source of traffic")
    for name in ("duration_s", "speed", "ttft_slo_s", "tpot_slo_ms", "patience_s"):
        value = getattr(asked, name)
        if value is not None:
            asking.number(str(value), OPTIONS[name])
    if asked.rate not in {"", CAPACITY}:
        asking.number(asked.rate, OPTIONS["rate"])
    if asked.journal and not asked.journal.exists():
        raise AskedWronglyError(f"--journal {asked.journal}: there is no such folder")
    plain = Asked()
    brings = [option for name, option in OPTIONS.items() if getattr(asked, name) != getattr(plain, name)]
    if asked.scenario and brings:
        raise AskedWronglyError(
            f"a scenario has traffic, engine and targets of its own: leave out {', '.join(brings)}"
        )
    if asked.mix and (asked.window or asked.speed):
        raise AskedWronglyError(
            "--window and --speed are for recorded traffic; a mix has --duration and --rate"
        )
    if asked.rivals and asked.policies:
        raise AskedWronglyError("--ab compares two configurations of tidegate: leave --policy out")


OPTIONS = {
    "engine": "--engine",
    "duration_s": "--duration",
    "warm_up_s": "--warm-up",
    "window": "--window",
    "speed": "--speed",
    "rate": "--rate",
    "ttft_slo_s": "--ttft-slo",
    "tpot_slo_ms": "--tpot-slo",
    "replicas": "--replicas",
    "patience_s": "--patience",
    "retry": "--retry",
}


def _check_size(study: Study) -> None:
    runs = len(study.contenders) * len(study.seeds) * len(study.loads)
    if runs > asking.MOST_RUNS:
        raise AskedWronglyError(f"{runs:,} runs are more than {asking.MOST_RUNS:,}: fewer --seeds or --load")


def _contenders(asked: Asked, slos: Mapping[PriorityClass, SloConfig]) -> dict[str, PolicySpec]:
    if asked.rivals:
        return {label: _rival(asked, own, slos) for label, own in asked.rivals.items()}
    texts = dict(zip(asked.policies, asked.policies, strict=True)) or POLICIES
    return {label: asking.policy(text, asked.own, slos) for label, text in texts.items()}


def _rival(asked: Asked, own: ControllerConfig, slos: Mapping[PriorityClass, SloConfig]) -> PolicySpec:
    """Each steers by its own targets, but for those that a scenario or an option sets for both."""
    mine = {rank: one.slo for rank, one in own.classes.items()}
    return asking.policy("tidegate", own, slos if asked.scenario else wanted(asked, mine))


def targets(asked: Asked) -> dict[PriorityClass, SloConfig]:
    """What a good answer is: the configuration's (the first one's of two), changed by what was asked for interactive."""
    own = next(iter(asked.rivals.values()), asked.own)
    slos = dict(DEFAULT_SLOS) if own is None else {rank: one.slo for rank, one in own.classes.items()}
    return slos | wanted(asked, slos)


def wanted(asked: Asked, slos: Mapping[PriorityClass, SloConfig]) -> dict[PriorityClass, SloConfig]:
    """What the options say of the interactive class, on top of these; nothing when they say nothing."""
    given: dict[str, float] = {}
    if asked.ttft_slo_s is not None:
        given["ttft_s"] = asked.ttft_slo_s
    if asked.tpot_slo_ms is not None:
        given["tpot_s"] = asked.tpot_slo_ms / 1e3
    interactive = PriorityClass.INTERACTIVE
    return {interactive: replace(slos[interactive], **given)} if given else {}


def _scenario(asked: Asked) -> tuple[Setup, About]:
    from admission.simulation.scenarios import scenario  # noqa: PLC0415 - reads every scenario there is
    from admission.simulation.staging import Staged  # noqa: PLC0415

    staged = Staged(scenario(asked.scenario))
    facts = {"scenario": asked.scenario, "about": staged.scenario.about}
    return staged, About(
        asked.scenario, facts, (f"{asked.scenario}: {staged.scenario.about}", slo_line(staged.slo))
    )


def _bench(asked: Asked) -> tuple[Setup, About]:
    engine = load_engine(asked.engine or ENGINE)
    slos = targets(asked)
    tpot_s = slos[PriorityClass.INTERACTIVE].tpot_s
    recalled = _recalled(asked)
    traffic = _at_rate(_traffic(asked), asked, engine, tpot_s)
    survey = look(traffic, engine.config)
    if not survey.requests:
        options = "--window, --duration" + (", --rate" if asked.rate else "")
        raise AskedWronglyError(f"{source_name(traffic)}: no requests in what was asked for ({options})")
    if survey.until_s < asked.warm_up_s:
        raise AskedWronglyError(
            f"--warm-up: {asked.warm_up_s:g} s leave nothing of {survey.until_s:.0f} s to judge"
        )
    if survey.too_large and not asked.refuse_too_large:
        raise AskedWronglyError(too_large_line(traffic, engine, survey))
    bench = Bench(
        traffic=traffic,
        engine=engine.config,
        replicas=asked.replicas,
        slo=slos,
        around=WorldConfig(callers=Callers(patience_s=asked.patience_s, retry=asked.retry)),
        warm_up_s=asked.warm_up_s,
    )
    capacity = asked.replicas * survey.capacity_per_s(engine.config, tpot_s)
    facts = {
        "traffic": survey.as_json() | {"source": source_name(traffic)},
        **recalled.facts,
        "engine": engine.name,
        "replicas": asked.replicas,
        "capacity_per_s": capacity,
    }
    lines = (
        survey.line(source_name(traffic)),
        *recalled.lines,
        engine_line(engine, asked.replicas),
        capacity_line(capacity, survey),
        slo_line(slos),
    )
    return bench, About(f"{source_name(traffic)} on {engine.name}", facts, lines)


def _recalled(asked: Asked) -> About:
    """What a journal knows and what it does not; nothing of other traffic."""
    if not asked.journal:
        return About("", {}, ())
    from admission.simulation import recollecting  # noqa: PLC0415 - reads the core's records

    report = recollecting.recollect(asked.journal, asked.target)
    return About("", {"journal": recollecting.facts(report)}, (recollecting.recollected(report),))


def _traffic(asked: Asked) -> Traffic:
    kind, name, speed = Kind.SHIPPED, AZURE_CODE_BURST, asked.speed
    if asked.trace:
        known = str(asked.trace) in shipped_names() and not asked.trace.exists()
        if not known and not asked.trace.exists():
            raise AskedWronglyError(
                f"--trace {asked.trace}: there is no such file, and --list has no such name"
            )
        kind, name = (Kind.SHIPPED if known else Kind.TRACE), str(asked.trace)
    elif asked.journal:
        kind, name = Kind.JOURNAL, str(asked.journal)
    elif asked.mix:
        kind, name = Kind.MIX, asked.mix
    elif speed is None:
        speed = DEFAULT_SPEED
    return Traffic(
        kind=kind,
        name=name,
        target=asked.target if asked.journal else "",
        window=asking.window(asked.window) if asked.window else None,
        speed=speed or 1.0,
        duration_s=asked.duration_s,
    )


def _at_rate(traffic: Traffic, asked: Asked, engine: Calibration, tpot_s: float) -> Traffic:
    """At the mean rate that was asked for: a number, or the most that the engines can carry of such requests."""
    if not asked.rate:
        return traffic
    survey = look(traffic, engine.config)
    if asked.rate != CAPACITY:
        return replace(traffic, factor=asking.number(asked.rate, OPTIONS["rate"]) / survey.rate_per_s)
    most = asked.replicas * survey.capacity_per_s(engine.config, tpot_s)
    if not most:
        raise AskedWronglyError(
            f"--rate {CAPACITY}: {engine.name} meets {1e3 * tpot_s:g} ms a token at no rate"
        )
    return replace(traffic, factor=most / survey.rate_per_s)
