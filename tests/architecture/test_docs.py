"""What the documentation shows is true: code runs, configuration is valid, commands exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, relative

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
TIDEGATE = [sys.executable, "-m", "admission.cli"]
BLOCK = re.compile(r"^```(?P<language>[\w-]*)(?P<note>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[`\s])tidegate ((?:[a-z]+ ?)+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    note: str
    text: str

    def __str__(self) -> str:
        return f"{relative(self.page)}:{self.line}"


def _blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        content = page.read_text()
        for match in BLOCK.finditer(content):
            if match["language"] == language:
                line = content.count("\n", 0, match.start()) + 1
                found.append(Block(page, line, match["note"].strip(), match["text"]))
    return found


@pytest.mark.parametrize("block", _blocks("python"), ids=str)
def test_python_in_the_documentation_runs(block: Block) -> None:
    """A reader pastes it; `compile` after the fence marks what needs a server to run."""
    code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "compile" in block.note:
        return

    run = subprocess.run(
        [sys.executable, "-c", block.text], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert code
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("block", [b for b in _blocks("yaml") if "tidegate" in b.note], ids=str)
def test_configuration_in_the_documentation_is_valid(block: Block, tmp_path: Path) -> None:
    """A reader pastes it and starts the sidecar: `yaml tidegate` blocks must pass its own check."""
    path = tmp_path / "tidegate.yaml"
    path.write_text(block.text)

    run = subprocess.run(
        [*TIDEGATE, "config", "check", "--config", path], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_configuration_page_lists_every_setting() -> None:
    """A setting that is not on the page does not exist for users; a default that moved is a surprise."""
    writer = ROOT / "scripts/write_settings.py"

    run = subprocess.run([sys.executable, writer, "--check"], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr


def test_commands_in_the_documentation_exist() -> None:
    """A renamed command must be renamed in the text that tells people to type it."""
    known = _commands()
    wrong = [
        f"{relative(page)}: tidegate {words}"
        for page in PAGES
        for match in BLOCK.finditer(page.read_text())
        if match["language"] in {"", "sh", "bash", "console"}
        for words in COMMAND.findall(match["text"])
        if words.split()[0] not in known
    ]

    assert wrong == []


def test_make_targets_in_the_documentation_exist() -> None:
    """The first thing that a newcomer types is a make target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (relative(page), name) for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text())
    }

    assert {(page, name) for page, name in named if name not in targets} == set()


def test_links_between_pages_lead_somewhere() -> None:
    """A dead link in the first page is the first impression."""
    dead = [
        f"{relative(page)} -> {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]

    assert dead == []


def _commands() -> set[str]:
    run = subprocess.run(
        [*TIDEGATE, "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "200"}
    )
    return set(re.findall(r"^\W*([a-z]+)\s", run.stdout, re.MULTILINE))
