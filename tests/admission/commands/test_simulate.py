"""`tidegate simulate`: what it prints, what it refuses, with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from admission.cli import EPILOG
from admission.commands.output import ExitCode
from admission.commands.registry import application
from admission.simulation import policies
from admission.simulation.engines import CALIBRATIONS
from admission.simulation.preparing import Asked, prepare
from admission.simulation.scenarios import scenarios

QUICK = ("--policy", "tidegate", "--duration", "10")
"""One run: it happens in this process."""


def simulate(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(
        application(EPILOG), ("simulate", *arguments), env={"TIDEGATE_CONFIG": None, "COLUMNS": "200"}
    )


def test_a_run_says_what_was_run_and_what_came_of_it() -> None:
    """A figure without its traffic, engine and SLO means nothing."""
    result = simulate(*QUICK)

    assert result.exit_code == ExitCode.OK
    assert "azure2023_code_burst_540_960" in result.stdout
    assert "h100-llama3-8b" in result.stdout
    assert "good: served whole" in result.stdout
    assert "good / offered, requests" in result.stdout
    assert result.stderr == ""


def test_json_is_exact_and_the_same_twice() -> None:
    """Programs compare figures; a clock or a path in between would make them differ."""
    first, second = (simulate(*QUICK, "--json", "--seeds", "7,") for _ in range(2))
    shown = json.loads(first.stdout)

    assert first.stdout == second.stdout
    assert shown["about"]["slo"]["interactive"]["tpot_s"] == 0.08
    assert shown["runs"][0]["seed"] == 7
    assert 0.0 < shown["runs"][0]["report"]["goodput_requests_ratio"] <= 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--load", "0"),
        ("--load", "-1"),
        ("--policy", "nope"),
        ("--policy", "vegas:depth=3"),
        ("--engine", "nope"),
        ("--scenario", "nope"),
        ("--mix", "nope"),
        ("--trace", "nope.csv"),
        ("--journal", "nope"),
        ("--window", "100000:5"),
        ("--window", "5"),
        ("--seeds", "0"),
        ("--speed", "0"),
        ("--retry", "always"),
        ("--plot", "figure.pdf"),
        ("--plot", "no/such/folder/figure.png"),
        ("--mix", "chat", "--scenario", "over2"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    """Scripts look at the code, people at the line, nobody at a traceback."""
    result = simulate(*arguments)

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("tidegate: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_an_unknown_policy_lists_those_that_exist() -> None:
    """Nobody remembers every name."""
    said = simulate("--policy", "nope").stderr

    assert all(name in said for name in policies.names())


def test_the_configuration_is_the_users_own(tmp_path: Path) -> None:
    """Its SLO judges, and its mistakes are told as by every other command."""
    file = tmp_path / "mine.yaml"
    file.write_text("targets: [{name: chat, slo: {interactive: {ttft_s: 0.9}}}]\n")
    result = simulate(*QUICK, "--config", str(file))

    assert "first token within 0.9 s" in result.stdout
    assert "mine.yaml (there in shadow mode, here enforcing)" in " ".join(result.stdout.split())
    file.write_text("targets: [{name: chat, slow: {}}]\n")
    assert simulate(*QUICK, "--config", str(file)).exit_code == ExitCode.BAD_CONFIGURATION


def test_of_several_targets_one_is_chosen(tmp_path: Path) -> None:
    """A guess would simulate the wrong limit."""
    file = tmp_path / "two.yaml"
    file.write_text("targets: [{name: chat}, {name: code, slo: {interactive: {ttft_s: 0.9}}}]\n")

    assert "--target (chat, code)" in simulate("--config", str(file)).stderr
    assert "no target 'embed'" in simulate("--config", str(file), "--target", "embed").stderr
    assert "within 0.9 s" in simulate(*QUICK, "--config", str(file), "--target", "code").stdout


def test_the_list_has_every_name(tmp_path: Path) -> None:
    """What options take must be found without a manual."""
    shown = json.loads(simulate("--list", "--json").stdout)
    text = simulate("--list").stdout

    assert set(shown) == {"engines", "policies", "mixes", "traces", "scenarios"}
    assert set(shown["engines"]) == set(CALIBRATIONS)
    assert set(shown["scenarios"]) == set(scenarios())
    assert all(name in text for kind in shown.values() for name in kind)


def test_the_list_shows_tidegate_as_it_is_simulated() -> None:
    """Enforcing, unlike the product's own default."""
    shown = json.loads(simulate("--list", "--json").stdout)

    assert shown["policies"]["tidegate"].startswith("mode=enforce, ")


def test_every_mix_and_trace_of_the_list_can_be_simulated() -> None:
    """A name that is listed and not taken is worse than none."""
    shown = json.loads(simulate("--list", "--json").stdout)
    for name in shown["mixes"]:
        assert prepare(Asked(mix=name)).facts["traffic"]["requests"] > 0
    for name in shown["traces"]:
        assert prepare(Asked(trace=Path(name))).facts["traffic"]["requests"] > 0


def test_a_typing_error_loads_neither_a_plot_nor_a_server() -> None:
    """Whoever mistypes must see it at once, not when everything is imported."""
    code = """
import sys
sys.argv = ["tidegate", "simulate", "--trace", "nope.csv"]
from admission.cli import main
try:
    main()
except SystemExit as end:
    print(end.code)
print(sorted({"grpc", "matplotlib", "pandas", "uvicorn", "streamlit", "starlette", "numpy"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.splitlines() == ["2", "[]"]
