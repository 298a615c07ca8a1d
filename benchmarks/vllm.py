"""Tidegate in front of a real vLLM on the CPU: unprotected, adaptive and five static limits under the same load.

Usage: python -m benchmarks.vllm [--repeats 3] [--judged 20] [--json] (needs scripts/setup_vllm.sh, takes about 15 minutes)
With --predict: the adaptive runs alone, and what a simulation calibrated on that server says of them (about 6 minutes).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from admission.simulation.exchange import Ending
from benchmarks import vllm_predict as prediction
from tests.real.vllm_bench import Bench, Plan, Run, Study, median, study
from tests.real.vllm_rig import VARIABLE, Rig, engine_python

T = TypeVar("T")


def row(name: str, runs: Sequence[Run]) -> dict[str, object]:
    """Medians over the runs of one kind."""
    reports = [run.report for run in runs]
    return {
        "run": name,
        "goodput_requests_ratio": round(median(run.goodput for run in runs), 3),
        "goodput_tokens_ratio": round(median(report.goodput_tokens_ratio for report in reports), 3),
        "lowest": round(min(run.goodput for run in runs), 3),
        "highest": round(max(run.goodput for run in runs), 3),
        "ttft_p50_ms": _ms([report.ttft_p50_s for report in reports]),
        "ttft_p99_ms": _ms([report.ttft_p99_s for report in reports]),
        "tpot_p90_ms": _ms([report.tpot_p90_s for report in reports]),
        "refused": round(median(len(run.ended(Ending.REFUSED)) for run in runs)),
        "limit_tokens": round(median(run.limit() for run in runs)),
        "decision_p99_ms": _ms([run.decision_p99_s for run in runs]),
    }


def _ms(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return round(median(known) * 1000, 1) if known else None


def table(seen: Study) -> list[dict[str, object]]:
    """One row for each kind of run."""
    rows = [row("unprotected", seen.unprotected), row("adaptive", seen.adaptive)]
    rows += [row(f"static {limit}", runs) for limit, runs in seen.static.items()]
    return [*rows, row("from 4x high", [seen.from_high]), row("from 4x low", [seen.from_low])]


def show(rows: list[dict[str, object]]) -> None:
    """A Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for each in rows:
        print("| " + " | ".join("-" if each[name] is None else str(each[name]) for name in names) + " |")


async def run(plan: Plan, what: Callable[[Bench], Awaitable[T]]) -> T:
    """Start vLLM, put it through that, leave nothing running."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        try:
            await rig.start_engine()
            return await what(Bench(rig, plan, lambda text: print(text, file=sys.stderr, flush=True)))
        finally:
            await rig.stop()


def predict(plan: Plan, folder: Path) -> int:
    """Measure, calibrate, simulate, compare; the journal and the figures stay in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = asyncio.run(run(plan, lambda bench: prediction.measure(bench, folder)))
    prediction.keep(folder, facts)
    return prediction.show(folder, facts)


def main() -> int:
    """Print the table; 1 when there is no vLLM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--judged", type=float, default=20.0, help="seconds judged, of each run")
    parser.add_argument("--adapt", type=float, default=12.0, help="seconds that the law gets before")
    parser.add_argument(
        "--far", type=float, default=40.0, help="the same, started four times too high or low"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--predict", action="store_true", help="compare with a calibrated simulation instead")
    parser.add_argument("--folder", type=Path, help="of --predict: keep journal and figures there")
    asked = parser.parse_args()
    if not engine_python().exists():
        print(f"no vLLM at {engine_python()}: run scripts/setup_vllm.sh, or set {VARIABLE}", file=sys.stderr)
        return 1
    plan = Plan(repeats=asked.repeats, judged_s=asked.judged, adapt_s=asked.adapt, far_s=asked.far)
    if asked.predict:
        with tempfile.TemporaryDirectory() as folder:
            return predict(plan, (asked.folder or Path(folder)).resolve())
    seen = asyncio.run(run(plan, study))
    rows = table(seen)
    if asked.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
