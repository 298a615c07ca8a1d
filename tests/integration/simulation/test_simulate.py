"""`tidegate simulate` as people run it: on all cores, stopped amid a run, drawn, watched on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.simulation.processes import living

pytestmark = pytest.mark.integration

TIDEGATE = [sys.executable, "-m", "admission.cli", "simulate"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "TIDEGATE_CONFIG": ""}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    return subprocess.run(
        [*TIDEGATE, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=100
    )


def test_all_cores_give_what_one_process_gives() -> None:
    """Figures must not depend on how many cores a machine has, nor on which run ends first."""
    both = json.loads(run("--duration", "15", "--policy", "none", "--policy", "tidegate", "--json").stdout)
    alone = [
        json.loads(run("--duration", "15", "--policy", name, "--json").stdout)["runs"][0]
        for name in ("none", "tidegate")
    ]

    assert both["runs"] == alone


def test_a_sweep_stands_beside_the_policies() -> None:
    """The bar in hindsight, in the same table."""
    done = run("--duration", "5", "--policy", "tidegate", "--sweep", "--seeds", "2")

    assert done.returncode == 0, done.stderr
    assert "best static" in done.stdout
    assert "static budgets in hindsight is" in done.stdout


def test_two_configurations_are_told_apart_or_not(tmp_path: Path) -> None:
    """A much too small limit is worse beyond all noise; a file is no better than itself."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("targets: [{name: chat}]\n")
    bad.write_text("targets: [{name: chat, limit: {algorithm: fixed, limit_tokens: 3000}}]\n")
    worse = run("--ab", str(good), str(bad), "--duration", "20", "--seeds", "3")
    same = run("--ab", str(good), str(good), "--duration", "5", "--seeds", "2")

    assert "good is better than bad: goodput in requests" in worse.stdout, worse.stderr
    assert "more than the noise over 3 seeds" in worse.stdout
    assert "No difference beyond the noise over 2 seeds" in same.stdout, same.stderr


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_drawn(tmp_path: Path, suffix: str) -> None:
    """Every policy over time, the same bytes twice."""
    files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        done = run("--duration", "10", "--policy", "tidegate", "--plot", str(file))
        assert done.returncode == 0, done.stderr

    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size > 10_000


def test_of_several_loads_the_one_that_is_drawn_is_named(tmp_path: Path) -> None:
    """A picture of the first would else be taken for one of all."""
    file = tmp_path / "a.svg"
    done = run(
        "--duration", "5", "--policy", "tidegate", "--load", "0.5,2", "--seeds", "2", "--plot", str(file)
    )

    assert done.stderr == f"written to {file} (load 0.5, seed 0)\n"
    assert "on h100-llama3-8b (load 0.5, seed 0)" in file.read_text()


def test_ctrl_c_ends_it_with_130_and_leaves_nothing() -> None:
    """Whoever has seen enough wants the cores back, and no traceback."""
    command = [*TIDEGATE, "--mix", "chat", "--duration", "9000", "--load", "1,2"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 30
        while len(living(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        code, noise = process.wait(20), process.stderr.read()

    assert code == 130
    assert noise == "tidegate: stopped; nothing is left running\n"
    deadline = time.monotonic() + 5
    while living(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert living(process.pid) == set()


def test_a_terminal_sees_how_far_it_is() -> None:
    """A minute without a sign looks like a hang."""
    master, slave = pty.openpty()
    command = [*TIDEGATE, "--duration", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=ENVIRONMENT) as process:
        os.close(slave)
        seen = _read(master)
        code = process.wait(60)

    assert code == 0
    assert "3/3" in seen
    assert "runs" in seen


def _read(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 4096):
            parts.append(part)
    except OSError:
        pass  # what Linux says when the other end is closed
    os.close(terminal)
    return b"".join(parts).decode()
