"""The measurements that come with the package, and what is known of each engine beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from admission.simulation.calibrating.fitting import Progress
from admission.simulation.calibrating.job import Outcome, Wish, calibrate
from admission.simulation.calibrating.measured import Clock

RUNS = "vllm0.19_real_runs_requests.csv.gz"


@dataclass(frozen=True, slots=True)
class Shipped:
    """One calibration that anybody can repeat: the name of the engine, its files and what is known of it."""

    engine: str
    files: tuple[str, ...]
    wish: Wish


def _run(engine: str, gpu: str, model: str, capacity: int, slots: int, engines: int = 1) -> Shipped:
    """A vLLM run: TTFT from `queued_ts`, asynchronous scheduling on, 2,048 tokens a step."""
    wish = Wish(
        kv_capacity_tokens=capacity,
        max_num_seqs=slots,
        ahead=True,
        clock=Clock.QUEUE,
        engines=engines,
        where=(f"gpu={gpu}", f"model={model}"),
    )
    return Shipped(engine, (RUNS,), wish)


SHIPPED = (
    _run("rtx4090-llama3.1-8b", "RTX4090", "Llama-3.1-8B", 41_408, 256),
    _run("pro6000-llama3.1-8b", "RTXPRO6000", "Llama-3.1-8B", 585_248, 128),
    _run("pro6000x2-qwen3-32b", "RTXPRO6000", "Qwen3-32B", 457_824, 128),
    _run("pro6000-qwen3-30b-a3b", "RTXPRO6000", "Qwen3-30B-A3B-Instruct-2507", 617_440, 128, 2),
    Shipped(
        "h200-llama3.1-8b-fp8",
        ("h200_llama3.1-8b-fp8_decode_itl.csv", "h200_llama3.1-8b-fp8_prefill_ttft.csv"),
        Wish(kv_capacity_tokens=945_029),
    ),
)


def calibrate_shipped(progress: Progress) -> Iterator[tuple[Shipped, Outcome]]:
    """Every shipped calibration anew, one after the other."""
    with as_file(files("admission.simulation") / "data") as folder:
        for each in SHIPPED:
            yield each, calibrate([Path(folder) / name for name in each.files], each.wish, progress)
