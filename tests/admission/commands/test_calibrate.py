"""`tidegate calibrate` on the command line: a file comes out, and bad input is one line with exit code 2."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from admission.cli import EPILOG
from admission.commands.registry import application
from admission.simulation.calibrating.measured import Recording
from admission.simulation.engines import load_engine
from tests.admission.simulation.calibrated import TRUTH, arrivals, recorded


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(application(EPILOG), ["calibrate", *map(str, arguments)])


def _table(folder: Path, recording: Recording) -> Path:
    path = folder / "requests.csv"
    with path.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s"])
        for one in recording.requests:
            assert one.ttft_s is not None
            assert one.decode_s is not None
            rows.writerow(
                [one.at_s, one.prompt_tokens, one.output_tokens, one.ttft_s, one.ttft_s + one.decode_s]
            )
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Requests of the default engine."""
    return _table(tmp_path, recorded(TRUTH, arrivals(each=8)))


def test_an_engine_file_comes_out(table: Path, tmp_path: Path) -> None:
    """The next command, `simulate --engine`, takes the file; its head says how far to trust it."""
    out = tmp_path / "mine.yaml"
    result = _run(table, "--kv-capacity", 460_000, "--out", out, "--evaluations", 3, "--hardware", "one GPU")
    assert result.exit_code == 0, result.output
    assert "held out" in result.stdout
    assert "KV tokens" in result.stdout
    engine = load_engine(str(out))
    assert (engine.name, engine.hardware, engine.config.kv_capacity_tokens) == ("mine", "one GPU", 460_000)
    assert engine.config.base_s == pytest.approx(TRUTH.base_s, rel=0.1)
    assert out.read_text().startswith("# Errors over what it was not fitted to: TTFT p50 ")


def test_programs_get_json(table: Path) -> None:
    """A pipeline checks the error before it takes the engine."""
    result = _run(table, "--kv-capacity", 460_000, "--evaluations", 1, "--json")
    told = json.loads(result.stdout)
    assert told["config"]["kv_capacity_tokens"] == 460_000
    assert {line["measure"] for line in told["judged"]} >= {"TTFT p50", "TPOT p99"}
    assert told["open"]["overhead_s"] is None or told["open"]["overhead_s"] > 0


def test_points_are_told_by_kind(tmp_path: Path) -> None:
    """Profile points have no quantiles: the mean error and the largest are told."""
    path = tmp_path / "points.csv"
    rows = [f"{n * 100},{(0.01 + 1e-4 * n + 1e-7 * n * n * 100) * 1e3},{n}" for n in range(1, 20)]
    path.write_text("context_len,itl_ms,batch\n" + "\n".join(rows))
    result = _run(path, "--kv-capacity", 1_000_000)
    assert result.exit_code == 0, result.output
    assert "decode step, mean" in result.stdout
    assert "10 ms a step" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a journal or tables"),
        (("none.csv", "--kv-capacity", "9999"), "none.csv: No such file"),
        (("TABLE",), "give --kv-capacity"),
        (("TABLE", "--kv-capacity", "300"), "the KV capacity must be more than 300"),
        (("TABLE", "--kv-capacity", "99999", "--ttft-from", "moon"), "--ttft-from moon"),
        (("TABLE", "--kv-capacity", "99999", "--where", "gpu=A"), "no column gpu"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], says: str, table: Path) -> None:
    """A script sees the code, a person the line; nobody sees a traceback."""
    result = _run(*(table if one == "TABLE" else one for one in arguments))
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_is_said(table: Path, tmp_path: Path) -> None:
    """Before the fit, which may take minutes."""
    for out, says in ((tmp_path / "none" / "x.yaml", "there is no folder"), (tmp_path, "it is a folder")):
        result = _run(table, "--kv-capacity", 460_000, "--out", out)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(f"tidegate: --out {out}: {says}")
