"""The scripts around the project say clearly what is wrong, and count right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT

JUNIT = """<testsuites><testsuite tests="{tests}" failures="{failures}" errors="1" skipped="{skipped}"/></testsuites>"""


def test_several_runs_add_up_to_one_closing_line(tmp_path: Path) -> None:
    """The closing line of .ci/run is what a reader believes: errors count as failures, skips are not passes."""
    for name, counts in {"a": (10, 1, 2), "b": (5, 0, 0)}.items():
        tests, failures, skipped = counts
        (tmp_path / f"{name}.xml").write_text(JUNIT.format(tests=tests, failures=failures, skipped=skipped))
    files = sorted(tmp_path.glob("*.xml"))

    run = subprocess.run(
        [sys.executable, ROOT / "scripts/ci_summary.py", *files], capture_output=True, text=True, check=True
    )

    assert run.stdout == "10 passed, 3 failed, 2 skipped\n"


def test_set_up_names_what_to_do_about_a_python_that_is_too_old(tmp_path: Path) -> None:
    """The first command of a newcomer must not end in a traceback of pip."""
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)

    run = subprocess.run(
        [ROOT / "scripts/setup.sh", old, tmp_path / "venv", "requirements/dev.txt"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert "Python 3.11 or newer" in run.stderr
    assert "make PYTHON=" in run.stderr


def test_an_unknown_benchmark_is_named_beside_those_that_exist() -> None:
    """A typing mistake must not look like a benchmark that passed."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "no_such"], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert run.returncode == 2
    assert "no_such" in run.stderr
    assert "core" in run.stderr
