"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from admission.cli import EPILOG
from admission.commands.dashboard import command_line
from admission.commands.output import ExitCode
from admission.commands.registry import application

HEAVY = (
    "grpc",
    "pydantic",
    "numpy",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "streamlit",
    "opentelemetry",
    "yaml",
)


def tidegate(*arguments: str, **environ: str) -> Result:
    """One command in this process."""
    return CliRunner().invoke(application(EPILOG), arguments, env={"TIDEGATE_CONFIG": None, **environ})


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    """Two mistakes."""
    file = tmp_path / "bad.yaml"
    file.write_text("log: {level: loud}\ntargets: [{mode: on}]\n")
    return file


def test_help_loads_nothing_heavy() -> None:
    """Whoever looks up a flag at night must not wait for gRPC to import."""
    code = f"""
import sys
sys.argv = ["tidegate", "--help"]
from admission.cli import main
try:
    main()
except SystemExit:
    pass
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.splitlines()[-1] == "[]"


def test_every_exit_code_is_explained_in_the_help() -> None:
    """Scripts are written against these numbers."""
    text = " ".join(tidegate("--help").output.split())

    assert all(f" {int(code)} " in text for code in ExitCode)


def test_config_check_says_that_all_is_well_and_in_which_mode() -> None:
    """A default of shadow is a surprise to whoever wanted enforce."""
    result = tidegate("config", "check")

    assert result.exit_code == ExitCode.OK
    assert "default: shadow" in result.output


def test_config_check_tells_every_mistake(bad_file: Path) -> None:
    """The command belongs into the pipeline that ships the file."""
    result = tidegate("config", "check", "-c", str(bad_file), "--json")
    found = json.loads(result.output)

    assert result.exit_code == ExitCode.PROBLEM
    assert {mistake["path"] for mistake in found["mistakes"]} == {"log.level", "targets[0].mode"}


def test_other_commands_leave_on_a_bad_file(bad_file: Path) -> None:
    """Nothing may run half configured."""
    result = tidegate("serve", "-c", str(bad_file))

    assert result.exit_code == ExitCode.BAD_CONFIGURATION
    assert "2 mistakes" in result.stderr
    assert "expected one of shadow, enforce, off" in result.stderr


def test_config_show_names_sources() -> None:
    """The answer to why a value is what it is."""
    result = tidegate("config", "show", "--changed", "--json", TIDEGATE_LOG__LEVEL="debug")

    assert json.loads(result.output) == [
        {"path": "log.level", "value": "debug", "source": "environment", "where": "TIDEGATE_LOG__LEVEL"}
    ]
    assert "TIDEGATE_LOG__LEVEL" in tidegate("config", "show", TIDEGATE_LOG__LEVEL="debug").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--json"),
        ("status", "--watch"),
        ("mode", "enforce"),
        ("drain",),
        ("limit", "auto"),
        ("limit", "5_000"),
        ("config", "reload"),
    ],
)
def test_without_a_sidecar_there_is_one_clear_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A traceback at night costs minutes; scripts need a code of its own for it."""
    address = f"unix:{tmp_path}/none.sock"
    result = tidegate(*arguments, "--control", address)

    assert result.exit_code == ExitCode.NOT_RUNNING
    assert result.stderr == f"tidegate: no sidecar answers at {address} (start one: tidegate serve)\n"


@pytest.mark.parametrize("tokens", ["many", "-5", "0", "1.5", "9" * 30])
def test_a_limit_is_a_number_of_tokens_or_auto(tokens: str) -> None:
    """A typo in a limit must not become another limit."""
    result = tidegate("limit", "--control", "unix:/nowhere", "--", tokens)

    assert result.exit_code == ExitCode.USAGE


def test_an_unknown_mode_is_refused_with_the_choice() -> None:
    """The words are few; show them."""
    result = tidegate("mode", "enforced")

    assert result.exit_code == ExitCode.USAGE
    assert "enforce" in result.stderr


def test_the_dashboard_is_told_where_the_sidecar_is() -> None:
    """The page listens on loopback unless asked, and looks at the same socket as the commands."""
    line = command_line(8501, "127.0.0.1", "unix:/run/c.sock")

    assert line[:4] == [sys.executable, "-m", "streamlit", "run"]
    assert "--server.address=127.0.0.1" in line
    assert line[-2:] == ["--control", "unix:/run/c.sock"]
    assert Path(line[4]).name == "app.py"


def test_replay_of_nothing_is_a_problem(tmp_path: Path) -> None:
    """An empty folder is not a journal whose decisions are all the same."""
    result = tidegate("replay", str(tmp_path), "--json")

    assert result.exit_code == ExitCode.PROBLEM
    assert json.loads(result.output)["same"] is False


def test_the_version_is_shown() -> None:
    """The first question of every bug report."""
    assert tidegate("--version").output.startswith("tidegate ")
