"""The measurements around a real vLLM: what it does alone, what it can do, and what comes of three times that."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from admission.core.slo import SloConfig
from admission.simulation.exchange import Attempt, Ending, Request, exchange
from admission.simulation.load import Load, LoadConfig, LoadReport, body, judge
from admission.simulation.traces import Arrival, poisson
from admission.v1.monitor_service_pb2 import TargetSnapshot
from tests.real.vllm_rig import KV_TOKENS, MODEL, Counters, Rig

PATH = "/v1/completions"
WORD = " the"
"""One token of the tiny model's tokenizer, so that prompts have the length that the plan says."""
SIZES = [(60, 32), (120, 64), (90, 96), (200, 48), (40, 80), (140, 24), (80, 56), (110, 64)]
MEAN_COST = statistics.fmean(prompt + output for prompt, output in SIZES)
OVERLOAD = 3.0
LEAVE_RATIO = 0.2
PATIENCE_S = 5.0
SPANS_COME_S = 0.8
"""vLLM sends spans each 0.2 s; then they pass the telemetry process."""
SETTLE_S = 15.0
LATE_S = 0.15
MISSED, CONTAINED = "tidegate_client_missed_total", "tidegate_client_contained_total"
FINISHED, SEEN = "vllm:request_success_total", "http_requests_total"
"""What the engine counts: requests that it completed, and all that reached its application behind the middleware."""
STATIC_LIMITS = tuple(round(KV_TOKENS * share) for share in (0.16, 0.28, 0.48, 0.80, 1.35))
FLOOR_TOKENS = max(prompt + output for prompt, output in SIZES)
"""A start below the default floor needs a lower one."""
OFF: dict[str, object] = {"mode": "off"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How long each part takes, in seconds. The warm-up of a run is sent but not judged."""

    alone_requests: int = 16
    capacity_s: float = 6.0
    clients: tuple[int, ...] = (6, 9, 12)
    warm_s: float = 4.0
    adapt_s: float = 12.0
    """The warm-up of the law, which knows nothing when it begins; from afar it gets `far_s`."""
    far_s: float = 25.0
    judged_s: float = 12.0
    repeats: int = 3
    spare_runs: int = 4


@dataclass(frozen=True, slots=True)
class Alone:
    """One client at a time: what the engine gives when nobody disturbs."""

    ttft_p50_s: float
    tpot_p50_s: float

    @property
    def slo(self) -> SloConfig:
        """Four times the TTFT and twice the TPOT."""
        return SloConfig(ttft_s=4 * self.ttft_p50_s, ttft_per_1k_s=0.0, tpot_s=2 * self.tpot_p50_s)


@dataclass(frozen=True, slots=True)
class Moment:
    """The sidecar's state while a run goes on."""

    at_s: float
    target: TargetSnapshot

    @property
    def limit(self) -> int:
        """Tokens."""
        return self.target.limit_tokens


@dataclass(slots=True)
class Run:
    """One run of open-loop load against one configuration."""

    name: str
    report: LoadReport
    """Of what arrived after the warm-up."""
    attempts: list[Attempt]
    """All of them, with those of the warm-up."""
    spans: int = 0
    finished_on_engine: int = 0
    seen_by_engine: int = 0
    missed: int = 0
    """Decisions that the middleware had to do without."""
    contained: int = 0
    """Faults of the middleware itself."""
    in_flight_after: int = -1
    decision_p99_s: float | None = None
    trace: list[Moment] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Good over offered, in requests."""
        return self.report.goodput_requests_ratio

    def ended(self, ending: Ending) -> list[Attempt]:
        """The attempts that ended so."""
        return [attempt for attempt in self.attempts if attempt.ending is ending]

    def limit(self, last_s: float = 8.0) -> float:
        """Median limit over the last seconds of the load, in tokens."""
        ends = self.trace[-1].at_s
        return statistics.median(moment.limit for moment in self.trace if moment.at_s >= ends - last_s)


class Bench:
    """Runs on one rig whose engine is up."""

    def __init__(self, rig: Rig, plan: Plan, say: Callable[[str], object] = print) -> None:
        self.rig = rig
        self.plan = plan
        self.say = say
        self.slo = SloConfig()
        self.capacity_per_s = 0.0
        self.spare_runs = plan.spare_runs

    # ---- before the load

    async def alone(self) -> Alone:
        """Requests one after the other, with nothing refused; sets the SLO."""
        await self.rig.start_sidecar(OFF)
        # The middleware opens its stream at the first question, and keeps it from then on.
        await self._ask(SIZES[0])
        await self._sidecar(OFF)
        random = Random(3)
        sizes = [SIZES[index % len(SIZES)] for index in range(self.plan.alone_requests)]
        random.shuffle(sizes)
        attempts = [await self._ask(size) for size in sizes]
        alone = Alone(
            statistics.median(a.ttft_s for a in attempts if a.ttft_s is not None),
            statistics.median(a.tpot_s for a in attempts if a.tpot_s is not None),
        )
        self.slo = alone.slo
        return alone

    async def capacity(self) -> float:
        """The most requests per second that any of the closed loops got through; sets the rate of the load."""
        await self._sidecar(OFF)
        rates = [await self._closed_loop(clients) for clients in self.plan.clients]
        self.capacity_per_s = max(rates)
        # Spans that find no sidecar are sent again later, and would count for the next one.
        await self._still_spans()
        return self.capacity_per_s

    async def _closed_loop(self, clients: int) -> float:
        began = time.monotonic()
        until = began + self.plan.capacity_s
        done = 0

        async def client(number: int) -> None:
            nonlocal done
            while time.monotonic() < until:
                attempt = await self._ask(SIZES[(number + done) % len(SIZES)])
                done += attempt.ending is Ending.SERVED and attempt.ended_at < until

        await asyncio.gather(*map(client, range(clients)))
        return done / self.plan.capacity_s

    async def _ask(self, size: tuple[int, int]) -> Attempt:
        config = self._load()
        request = Request(path=PATH, body=body(config, *size), patience_s=60.0)
        return await exchange(config.host, config.port, request)

    # ---- the load

    def _load(self, seed: int = 0) -> LoadConfig:
        return LoadConfig(
            port=self.rig.ports.engine,
            model=MODEL,
            word=WORD,
            exact_output=True,
            slo=self.slo,
            patience_s=PATIENCE_S,
            leave_ratio=LEAVE_RATIO,
            seed=seed,
        )

    async def run(
        self, name: str, target: Mapping[str, object], seed: int, warm_s: float | None = None
    ) -> Run:
        """Overload the engine behind a fresh sidecar with that configuration, and count what came of it.

        A run whose own requests left late was no open-loop load, since the machine was busy with something else: it
        is done again, a few times in all.
        """
        warm_s = self.plan.warm_s if warm_s is None else warm_s
        while True:
            run = await self._run(name, target, seed, warm_s)
            self.say(line(run))
            if run.report.late_max_s <= LATE_S or not self.spare_runs:
                return run
            self.spare_runs -= 1

    async def _run(self, name: str, target: Mapping[str, object], seed: int, warm_s: float) -> Run:
        await self._sidecar(target)
        spans, before = await self._still_spans(), await self.rig.engine_counters()
        client = await self.rig.client_counters()
        load = Load(self._load(seed), overload(self.capacity_per_s, warm_s + self.plan.judged_s, seed))
        trace, watcher = self._watch()
        try:
            await load.run(extra_s=PATIENCE_S)
            last = await self.rig.snapshot()
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        judged = [outcome for outcome in load.outcomes if outcome.arrival.at_s >= warm_s]
        run = Run(
            name,
            judge(judged, self.slo, self.plan.judged_s),
            [attempt for outcome in load.outcomes for attempt in outcome.attempts],
            trace=[moment for moment in trace if moment.at_s <= warm_s + self.plan.judged_s],
            decision_p99_s=last.decision_time.p99 if last.decision_time.HasField("p99") else None,
        )
        await self._settle(run, spans, before)
        after = await self.rig.client_counters()
        run.missed = int(after.total(MISSED) - client.total(MISSED))
        run.contained = int(after.total(CONTAINED) - client.total(CONTAINED))
        return run

    async def recorded(self, state_dir: Path, arrivals: Sequence[Arrival]) -> LoadReport:
        """Send these arrivals past a sidecar that refuses nothing and keeps a journal in that folder, whole on return."""
        self.rig.state_dir = str(state_dir)
        try:
            await self._sidecar({"mode": "shadow"})
        finally:
            self.rig.state_dir = "none"
        report = await Load(self._load(), arrivals).run(extra_s=PATIENCE_S)
        await self._still_spans()
        await self.rig.stop_sidecar()
        return report

    async def _still_spans(self) -> int:
        """The count of spans once no more come of what was before."""
        before = -1
        while (now := await self.rig.spans()) != before:
            before = now
            await asyncio.sleep(SPANS_COME_S)
        return now

    async def _settle(self, run: Run, spans: int, before: Counters) -> None:
        """Wait until nothing is under way and the last spans are in, then count."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            await asyncio.sleep(0.25)
            run.in_flight_after = (await self.rig.snapshot()).targets[0].in_flight
            run.spans = await self.rig.spans() - spans
            now = await self.rig.engine_counters()
            run.finished_on_engine = int(now.total(FINISHED) - before.total(FINISHED))
            run.seen_by_engine = int(now.total(SEEN, handler=PATH) - before.total(SEEN, handler=PATH))
            busy = now.total("vllm:num_requests_running") + now.total("vllm:num_requests_waiting")
            if not busy and not run.in_flight_after and run.spans >= run.finished_on_engine:
                return

    def _watch(self) -> tuple[list[Moment], asyncio.Task[None]]:
        trace: list[Moment] = []
        began = time.monotonic()

        async def watch() -> None:
            while True:
                snapshot = await self.rig.snapshot()
                trace.append(Moment(time.monotonic() - began, snapshot.targets[0]))
                await asyncio.sleep(0.5)

        return trace, asyncio.create_task(watch())

    async def _sidecar(self, target: Mapping[str, object]) -> None:
        """Start one and wait until the middleware in vLLM has found it."""
        slo = self.slo
        ours = {"ttft_s": slo.ttft_s, "ttft_per_1k_s": slo.ttft_per_1k_s, "tpot_s": slo.tpot_s}
        await self.rig.start_sidecar({"slo": {"interactive": ours}, **target})
        until = time.monotonic() + 20.0
        while not (await self.rig.snapshot()).sessions:
            if time.monotonic() > until:
                raise RuntimeError(
                    f"the middleware did not come back:\n{self.rig.sidecar and self.rig.sidecar.tail()}"
                )
            await asyncio.sleep(0.1)


def overload(capacity_per_s: float, length_s: float, seed: int) -> list[Arrival]:
    """What arrives in a run: `OVERLOAD` times the capacity."""
    return poisson(OVERLOAD * capacity_per_s, length_s, SIZES, Random(seed))


def adaptive(initial_tokens: float) -> dict[str, object]:
    """The default law from that limit on."""
    start = max(FLOOR_TOKENS, round(initial_tokens))
    limit = {"algorithm": "aimd", "initial_tokens": start, "floor_tokens": FLOOR_TOKENS}
    return {"mode": "enforce", "limit": limit}


def static(limit_tokens: int) -> dict[str, object]:
    """The same without a law."""
    return {"mode": "enforce", "limit": {"algorithm": "fixed", "limit_tokens": limit_tokens}}


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(values)


@dataclass(slots=True)
class Study:
    """Everything that one vLLM was put through."""

    alone: Alone
    capacity_per_s: float
    unprotected: list[Run]
    adaptive: list[Run]
    static: dict[int, list[Run]]
    from_high: Run
    from_low: Run

    @property
    def protected(self) -> list[Run]:
        """Every run in which something could be refused."""
        swept = [run for runs in self.static.values() for run in runs]
        return [*self.adaptive, *swept, self.from_high, self.from_low]

    @property
    def best_static(self) -> tuple[int, float]:
        """The limit of the sweep with the highest median goodput, and that goodput."""
        goodput = {limit: median(run.goodput for run in runs) for limit, runs in self.static.items()}
        best = max(goodput, key=lambda limit: goodput[limit])
        return best, goodput[best]

    @property
    def settled(self) -> float:
        """Where the law ended, in tokens."""
        return median(run.limit() for run in self.adaptive)


async def study(bench: Bench) -> Study:
    """The whole comparison on an engine that is up; kinds of runs take turns, so that a slow minute hits them all."""
    alone = await bench.alone()
    capacity_per_s = await bench.capacity()
    bench.say(
        f"alone: TTFT p50 {_ms(alone.ttft_p50_s)} ms, TPOT p50 {alone.tpot_p50_s * 1000:.1f} ms;"
        f" SLO {_ms(bench.slo.ttft_s)} and {bench.slo.tpot_s * 1000:.1f} ms; capacity {capacity_per_s:.2f} requests/s"
    )
    unprotected, adapted = [], []
    swept: dict[int, list[Run]] = {limit: [] for limit in STATIC_LIMITS}
    plan = bench.plan
    for seed in range(1, plan.repeats + 1):
        unprotected.append(await bench.run("unprotected", OFF, seed))
        adapted.append(await bench.run("adaptive", adaptive(KV_TOKENS), seed, plan.adapt_s))
        for limit, runs in swept.items():
            runs.append(await bench.run(f"static {limit}", static(limit), seed))
    settled = median(run.limit() for run in adapted)
    high = await bench.run("from 4x high", adaptive(4 * settled), 7, plan.far_s)
    low = await bench.run("from 4x low", adaptive(settled / 4), 7, plan.far_s)
    return Study(alone, capacity_per_s, unprotected, adapted, swept, high, low)


def line(run: Run) -> str:
    """One run for people."""
    report = run.report
    endings = " ".join(f"{name}={count}" for name, count in sorted(report.endings.items()))
    refusals = " ".join(f"{name}={count}" for name, count in sorted(report.refusals.items()))
    limit = f"{run.limit():.0f}" if run.trace else "-"
    return (
        f"{run.name:<16} goodput {run.goodput:.3f} ({report.good_requests}/{report.offered_requests}),"
        f" tokens {report.goodput_tokens_ratio:.3f}, TTFT p50 {_ms(report.ttft_p50_s)} p99 {_ms(report.ttft_p99_s)},"
        f" TPOT p50 {_ms(report.tpot_p50_s)} p90 {_ms(report.tpot_p90_s)} ms, limit {limit},"
        f" spans {run.spans} of {run.finished_on_engine}, late {_ms(report.late_max_s)} ms, missed {run.missed} | {endings} | {refusals}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}"
