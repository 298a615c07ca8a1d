"""Runs behind the comparison of control laws: what one run came to, and where results are kept."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from admission.simulation.pool import run_all
from admission.simulation.scenarios import scenario
from admission.simulation.scenarios.measuring import recoveries_s
from admission.simulation.scenarios.running import play

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "law"
WORLD_SOURCES = (
    "engine prefixes sequences world callers fleet sight disturbances fate judging tally histogram recovery sizes "
    "inputs/mixes inputs/lengths inputs/rates inputs/shaping scenarios/traffic scenarios/running"
).split()
"""What a static limit's figures depend on beside the scenario: the core's own changes do not make them stale."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    scenario: str
    policy: str
    seed: int
    load: float = 1.0

    @property
    def name(self) -> str:
        """Names the run."""
        return f"{scenario(self.scenario).digest()}/{self.policy}/{self.seed}/{self.load}"

    @property
    def is_law(self) -> bool:
        """Whether the core decides: then every change of the core may change the result."""
        return self.policy.startswith("tidegate")

    @property
    def made_of(self) -> str:
        """Changes with the sources that the result depends on: a static limit's is left alone by changes of the law."""
        if self.is_law:
            return f"{sources(*_WORLD)}/{sources('admission/core', 'admission/simulation/policies')}"
        if self.policy.startswith("fixed"):
            return sources(*_WORLD)
        return f"{sources(*_WORLD)}/{sources('admission/simulation/policies')}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run came to. Ratios are of what was offered; seconds."""

    goodput: float
    goodput_tokens: float
    accepted_ok: float | None
    ttft_p50_s: float | None
    ttft_p99_quiet_s: float | None
    recovery_s: list[float | None]
    quartiles: list[float | None]
    preemptions: int
    limit_variation: float | None
    interactive: float | None
    """Goodput of the interactive class alone."""


T = TypeVar("T", bound=Task)
_WORLD = tuple(f"admission/simulation/{name}" for name in WORLD_SOURCES)


@functools.cache
def sources(*names: str) -> str:
    """Eight characters that change with the source of these modules or folders."""
    digest = hashlib.sha256()
    for name in names:
        found = sorted(ROOT.glob(f"{name}/**/*.py") if (ROOT / name).is_dir() else ROOT.glob(f"{name}.py"))
        for path in found:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def measure(task: Task) -> Figures:
    """Run it, and note the result for the next time."""
    figures = figures_of(task)
    note(task, figures)
    return figures


def figures_of(task: Task) -> Figures:
    """Run it."""
    played = play(scenario(task.scenario), task.policy, task.seed, task.load)
    report = played.report
    alone = len(report.per_class) == 1
    row = report.per_class[0] if report.per_class else None
    return Figures(
        goodput=report.goodput_requests_ratio,
        goodput_tokens=report.goodput_tokens_ratio,
        accepted_ok=report.accepted_within_slo_ratio,
        ttft_p50_s=report.ttft_p50_s,
        ttft_p99_quiet_s=report.ttft_p99_quiet_s if alone or row is None else row.ttft_p99_s,
        recovery_s=recoveries_s(played),
        quartiles=list(report.served_share_by_size_quartile),
        preemptions=played.world.preemptions_total,
        limit_variation=report.limit_variation_ratio,
        interactive=row.goodput_requests_ratio if row and row.name == "interactive" else None,
    )


def note(task: Task, figures: Figures) -> None:
    """One short line at the end of a file, so that several processes may write at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"name": task.name, "of": task.made_of, "figures": asdict(figures)})
    with (CACHE / f"{task.scenario}.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def noted(name: str) -> Iterator[tuple[str, str, Figures]]:
    """Earlier results of a scenario: the run's name, what it was made of, and its figures. Damaged lines are skipped."""
    path = CACHE / f"{name}.jsonl"
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            yield entry["name"], entry["of"], Figures(**entry["figures"])
        except (ValueError, TypeError, KeyError):
            continue


class Runs:
    """Results of runs, measured when nobody has yet.

    Args:
        processes: how many at once.
        fresh: do not trust what was noted earlier.
        stale: trust results of all but the law though the simulator's sources have changed since.
        progress: told how many of how many are done, and of what kind.
        work: what measures and notes one run; importable by name.
    """

    def __init__(
        self,
        processes: int,
        *,
        fresh: bool = False,
        stale: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
        work: Callable[[Any], Figures] = measure,
    ) -> None:
        self._processes = processes
        self._fresh = fresh
        self._stale = stale
        self._progress = progress or (lambda *_: None)
        self._work = work
        self._known: dict[tuple[str, str], Figures] = {}
        self._read: set[str] = set()

    def all(self, tasks: Iterable[T], what: str) -> dict[T, Figures]:
        """The results of all tasks."""
        wanted = {task: self._key(task) for task in tasks}
        for name in {task.scenario for task in wanted} - self._read:
            self._read.add(name)
            self._remember(name)
        # The longest first, so that no process is left alone with one at the end.
        missing = sorted(
            (task for task, key in wanted.items() if key not in self._known), key=_weight, reverse=True
        )
        done = 0

        def tell() -> None:
            nonlocal done
            done += 1
            self._progress(what, done, len(missing))

        found = run_all(self._work, missing, processes=self._processes, done=tell)
        self._known |= {wanted[task]: figures for task, figures in zip(missing, found, strict=True)}
        return {task: self._known[key] for task, key in wanted.items()}

    def _key(self, task: Task) -> tuple[str, str]:
        return task.name, "" if self._stale and not task.is_law else task.made_of

    def _remember(self, name: str) -> None:
        for run, of, figures in noted(name) if not self._fresh else ():
            self._known[run, of] = self._known[run, ""] = figures


def _weight(task: Task) -> float:
    one = scenario(task.scenario)
    return one.capacity_per_s * one.load * one.duration_s
