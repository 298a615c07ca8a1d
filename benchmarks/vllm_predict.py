"""Does `simulate`, calibrated on a real vLLM, foretell what the law makes of an overload on that server?

Usage: python -m benchmarks.vllm --predict [--repeats 3] [--judged 20] [--folder KEPT]

One load from light to overload is recorded by a sidecar's journal, and `tidegate calibrate` fits an engine to it and to
nothing else. Then overloads are sent to the server, and the very same requests to the engine model behind the same law.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from admission.commands.calibrate import calibrate
from admission.config.document import parse_document
from admission.config.load import bind_settings
from admission.core.settings import ControllerConfig
from admission.core.slo import SloConfig
from admission.simulation.callers import Call
from admission.simulation.engine import EngineConfig
from admission.simulation.engines import load_engine
from admission.simulation.fate import Ending
from admission.simulation.judging import Judge, Report
from admission.simulation.policies import PolicySpec, build
from admission.simulation.timeline import Timeline
from admission.simulation.traces import Arrival, poisson
from admission.simulation.world import Callers, Member, Sight, World, WorldConfig
from admission.vocabulary import PriorityClass
from tests.real.vllm_bench import LEAVE_RATIO, PATIENCE_S, SIZES, Alone, Bench, adaptive, overload
from tests.real.vllm_rig import BLOCK_TOKENS, KV_BLOCKS, KV_TOKENS, MODEL

CYCLES, PHASE_S = 2, 9.0
SHARES = (0.4, 0.8, 1.2, 1.6)
"""Of the capacity, one phase each; a cycle goes through all, so that both halves of the recording have all."""
CALIBRATION_SIZES = [*SIZES, (16, 120), (400, 12), (250, 24), (30, 16)]
"""Long prompts with short answers and the other way round: else the terms of a step's cost come in fixed proportion."""
BAR = 0.15
"""Of goodput, as a relative error."""
LEAVES = "leaves"
"""The session of callers that mean to leave."""
NEVER_S = 1e9
FIGURES = {
    "goodput_requests": "goodput, requests",
    "goodput_tokens": "goodput, tokens",
    "ttft_p50_s": "TTFT p50",
    "ttft_p99_s": "TTFT p99",
    "tpot_p50_s": "TPOT p50",
    "tpot_p90_s": "TPOT p90",
    "accepted": "let in, of offered",
    "limit_tokens": "limit at the end, tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured on the server; JSON-able. Seconds."""

    ttft_alone_s: float
    tpot_alone_s: float
    capacity_per_s: float
    warm_s: float
    judged_s: float
    seeds: tuple[int, ...]
    figures: tuple[dict[str, float], ...]
    """One for each seed."""

    @property
    def slo(self) -> SloConfig:
        """As the sidecar had it."""
        return Alone(self.ttft_alone_s, self.tpot_alone_s).slo


# ---- measured


async def measure(bench: Bench, folder: Path) -> Facts:
    """Record the calibration load into `folder`, then measure overloads behind the law; a sidecar each."""
    alone = await bench.alone()
    capacity = await bench.capacity()
    ttft_s, tpot_s = alone.ttft_p50_s, alone.tpot_p50_s
    bench.say(f"alone {ttft_s * 1e3:.1f} and {tpot_s * 1e3:.2f} ms; capacity {capacity:.2f} requests/s")
    recorded = await bench.recorded(folder / "state", rising(capacity))
    bench.say(f"recorded: {recorded.endings}, late {recorded.late_max_s * 1e3:.0f} ms")
    plan, seeds = bench.plan, tuple(range(1, bench.plan.repeats + 1))
    runs = [await bench.run("adaptive", adaptive(KV_TOKENS), seed, plan.adapt_s) for seed in seeds]
    return Facts(
        ttft_alone_s=ttft_s,
        tpot_alone_s=tpot_s,
        capacity_per_s=capacity,
        warm_s=plan.adapt_s,
        judged_s=plan.judged_s,
        seeds=seeds,
        figures=tuple(figures(run.report, run.limit()) for run in runs),
    )


def rising(capacity_per_s: float) -> list[Arrival]:
    """The calibration load: again and again from light to overload."""
    random, arrivals = Random(11), []
    for phase in range(CYCLES * len(SHARES)):
        sizes = random.sample(CALIBRATION_SIZES, len(CALIBRATION_SIZES))
        rate_per_s = SHARES[phase % len(SHARES)] * capacity_per_s
        found = poisson(rate_per_s, PHASE_S, sizes, random)
        arrivals += [arrival.at(arrival.at_s + phase * PHASE_S) for arrival in found]
    return arrivals


def figures(report: Report, limit_tokens: float) -> dict[str, float]:
    """What is compared, of one run."""
    return {
        "goodput_requests": report.goodput_requests_ratio,
        "goodput_tokens": report.goodput_tokens_ratio,
        "ttft_p50_s": report.ttft_p50_s or 0.0,
        "ttft_p99_s": report.ttft_p99_s or 0.0,
        "tpot_p50_s": report.tpot_p50_s or 0.0,
        "tpot_p90_s": report.tpot_p90_s or 0.0,
        "accepted": report.accepted_requests / max(1, report.offered_requests),
        "limit_tokens": limit_tokens,
    }


# ---- predicted


def usable_tokens(sizes: Iterable[tuple[int, int]]) -> int:
    """KV tokens that such requests can hold at once: vLLM gives out whole blocks, and keeps one for itself."""
    held = given = 0
    for prompt_tokens, output_tokens in sizes:
        lengths = range(prompt_tokens, prompt_tokens + output_tokens)
        held += sum(lengths)
        given += sum(-(-length // BLOCK_TOKENS) * BLOCK_TOKENS for length in lengths)
    return round((KV_BLOCKS - 1) * BLOCK_TOKENS * held / given)


def scripted(arrivals: Iterable[Arrival], seed: int) -> Iterator[Arrival]:
    """The same requests as `Load` sends on that seed: who means to leave is answered as far as it listens."""
    random = Random(seed)
    for arrival in arrivals:
        asked = replace(arrival, max_tokens=arrival.output_tokens)
        if random.random() < LEAVE_RATIO:
            asked = replace(asked, output_tokens=random.randint(1, 8), session=LEAVES)
        yield asked


class Scripted(World):
    """A world whose leavers are said beforehand, not drawn."""

    def _arrive(self, arrival: Arrival) -> None:
        self._ask(Call(arrival, 0, True, arrival.session == LEAVES, self.now))

    def _finished(self, call: Call) -> None:
        if call.leaves:
            self._leave(call, Ending.LEFT)
        else:
            super()._finished(call)


def controller(slo: SloConfig) -> ControllerConfig:
    """The sidecar's configuration in the measured runs, read by the product's own code."""
    ours = {"ttft_s": slo.ttft_s, "ttft_per_1k_s": slo.ttft_per_1k_s, "tpot_s": slo.tpot_s}
    target = {"name": MODEL, "slo": {"interactive": ours}, **adaptive(KV_TOKENS)}
    settings, mistakes = bind_settings(parse_document(json.dumps({"targets": [target]}), MODEL))
    if settings is None:
        raise ValueError("; ".join(map(str, mistakes)))
    return settings.targets[0].controller


def predict(facts: Facts, engine: EngineConfig) -> tuple[dict[str, float], ...]:
    """The figures of the same runs on the model."""
    return tuple(_predicted(facts, engine, seed) for seed in facts.seeds)


def _predicted(facts: Facts, engine: EngineConfig, seed: int) -> dict[str, float]:
    length_s = facts.warm_s + facts.judged_s
    around = WorldConfig(
        members=(Member(engine=engine),),
        callers=Callers(patience_s=PATIENCE_S, leave_within_s=NEVER_S),
        sight=Sight(spans=True),
    )
    judge = Judge(dict.fromkeys(PriorityClass, facts.slo), from_s=facts.warm_s)
    timeline = Timeline()
    spec = PolicySpec("tidegate", controller(facts.slo))
    world = Scripted(around, lambda no: build(spec, seed=seed + no, now=0.0), judge, seed, timeline)
    arrivals = scripted(overload(facts.capacity_per_s, length_s, seed), seed)
    world.run(arrivals, until_s=length_s + PATIENCE_S)
    last = [moment.limit for moment in timeline.moments() if length_s - 8.0 <= moment.at_s < length_s]
    return figures(judge.report(), fmean(limit for limit in last if limit is not None))


# ---- both


def table(measured: Sequence[dict[str, float]], predicted: Sequence[dict[str, float]]) -> list[str]:
    """Means over the runs, side by side, as Markdown."""
    lines = ["| | measured | predicted | error |", "|---|---|---|---|"]
    for name, words in FIGURES.items():
        real, simulated = (fmean(run[name] for run in runs) for runs in (measured, predicted))
        error = f"{simulated / real - 1:+.0%}" if real else "-"
        lines.append(f"| {words} | {_shown(name, real)} | {_shown(name, simulated)} | {error} |")
    return lines


def _shown(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{value * 1e3:.0f} ms"
    return f"{value:,.0f}" if name.endswith("_tokens") and name.startswith("limit") else f"{value:.3f}"


def show(folder: Path, facts: Facts) -> int:
    """Calibrate to the journal in the folder, predict, print; 1 when goodput is further off than the bar."""
    engine = folder / "engine.yaml"
    calibrate([folder / "state" / "journal"], engine, usable_tokens(CALIBRATION_SIZES), usual=False)
    predicted = predict(facts, load_engine(str(engine)).config)
    print("\n".join(table(facts.figures, predicted)))
    real, simulated = (fmean(run["goodput_requests"] for run in runs) for runs in (facts.figures, predicted))
    return int(abs(simulated - real) > BAR * real)


def keep(folder: Path, facts: Facts) -> None:
    """Write what was measured beside the journal, for `kept`."""
    (folder / "facts.json").write_text(json.dumps(asdict(facts), indent=1))


def kept(folder: Path) -> Facts:
    """What `keep` wrote."""
    read = json.loads((folder / "facts.json").read_text())
    return Facts(**{**read, "seeds": tuple(read["seeds"]), "figures": tuple(read["figures"])})


if __name__ == "__main__":
    sys.exit(show(Path(sys.argv[1]), kept(Path(sys.argv[1]))))
