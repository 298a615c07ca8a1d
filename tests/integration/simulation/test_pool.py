"""Worker processes: results in order, errors as they were, and nothing left behind, also after a signal."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from admission.simulation.pool import WorkerLostError, run_all
from tests.integration.simulation.processes import living

pytestmark = pytest.mark.integration

SLEEPERS = """
import sys, time
from admission.simulation.pool import run_all
if __name__ == "__main__":
    try:
        run_all(time.sleep, [0.0, 60.0, 60.0], processes=2, done=lambda: print("one is done", flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_results_come_in_the_order_of_the_tasks() -> None:
    """A table must not depend on which run ended first."""
    ticks: list[int] = []

    found = run_all(math.factorial, [900, 3, 500, 1], processes=2, done=lambda: ticks.append(1))

    assert found == [math.factorial(each) for each in (900, 3, 500, 1)]
    assert len(ticks) == 4
    assert run_all(math.sqrt, []) == []


def test_the_work_is_done_elsewhere_unless_one_process_is_enough() -> None:
    """Two cores are there to be used; a single run needs no process of its own."""
    assert os.getpid() not in run_all(_pid, [0, 1, 2], processes=2)
    assert run_all(_pid, [0], processes=2) == [os.getpid()]


def _pid(_: int) -> int:
    return os.getpid()


def test_an_error_comes_back_as_it_was() -> None:
    """Bad input is found by whoever reads it, and told by whoever was asked."""
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        run_all(math.sqrt, [1.0, -1.0, 4.0], processes=2)


def test_a_worker_that_dies_is_no_hang() -> None:
    """The kernel kills without asking when memory runs out."""
    with pytest.raises(WorkerLostError, match="ended with 3"):
        run_all(os._exit, [3, 3, 3], processes=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-c reaches every process of the terminal; a kill only the one. Either way the cores are free again."""
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "one is done\n"
        workers = living(process.pid) - {process.pid}
        assert len(workers) >= 2
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        code, noise = process.wait(10), process.stderr.read()

    assert code == (130 if number is signal.SIGINT else -number)
    assert noise == ""
    deadline = time.monotonic() + 5
    while living(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert living(process.pid) == set()
