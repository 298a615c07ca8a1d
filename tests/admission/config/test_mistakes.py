"""Each file in testdata holds one way to get the configuration wrong, and what must be said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.config.load import load
from admission.config.mistakes import BadConfigurationError, Mistake

TESTDATA = Path(__file__).parent / "testdata"
FILES = sorted(TESTDATA.glob("*.yaml"))


def refused(file: Path | None, environ: dict[str, str] | None = None) -> tuple[Mistake, ...]:
    """The mistakes of a configuration that must not load."""
    with pytest.raises(BadConfigurationError) as caught:
        load(file, environ or {})
    return caught.value.mistakes


def expected_in(file: Path) -> list[str]:
    """The lines after `# expect: `."""
    lines = file.read_text().splitlines()
    return [line.removeprefix("# expect: ") for line in lines if line.startswith("# expect: ")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mistake_is_named_with_its_path_its_value_and_what_is_expected(file: Path) -> None:
    """A typo must not become another behaviour, and the person who made it must see which one it was."""
    said = [str(mistake).removeprefix(f"{mistake.where}: ") for mistake in refused(file)]

    assert said == expected_in(file)
    assert expected_in(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mistake_says_the_file_it_stands_in(file: Path) -> None:
    """With several files on a machine the right one must be corrected."""
    assert {mistake.where.rpartition(":")[0] or mistake.where for mistake in refused(file)} == {str(file)}


def test_a_mistake_says_its_line(tmp_path: Path) -> None:
    """Long files are corrected with an editor."""
    file = tmp_path / "tidegate.yaml"
    file.write_text("log:\n  format: text\n  level: loud\n")

    assert [mistake.where for mistake in refused(file)] == [f"{file}:3"]


def test_all_mistakes_of_file_and_environment_come_at_once(tmp_path: Path) -> None:
    """One mistake per restart turns a morning into a day."""
    file = tmp_path / "tidegate.yaml"
    file.write_text("listn: {}\nlog: {level: loud}\ntargets: [{mode: on}, {limit: {algorithm: pid}}]\n")

    paths = {mistake.path for mistake in refused(file, {"TIDEGATE_JOURNAL__MAX_BYTES": "lots"})}

    assert paths == {
        "listn",
        "log.level",
        "targets[0].mode",
        "targets[1].limit.algorithm",
        "journal.max_bytes",
    }


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """Starting with defaults instead would hide that nothing of the file is in force."""
    assert [mistake.problem for mistake in refused(tmp_path / "none.yaml")] == [
        "cannot be read: No such file or directory"
    ]


def test_a_file_that_is_not_text_is_a_mistake(tmp_path: Path) -> None:
    """Bytes from elsewhere must not end in a traceback."""
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(b"\xff\xfe\x00")

    assert [mistake.problem for mistake in refused(file)] == ["cannot be read: not UTF-8 text"]


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    """Bounded memory begins with the first thing that is read."""
    file = tmp_path / "tidegate.yaml"
    file.write_text("#" * (1 << 20) + "\nlog: {}\n")

    assert [mistake.problem for mistake in refused(file)] == ["larger than 1048576 bytes"]


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    """A message is read on a terminal."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(f"log: {{level: {'x' * 500}}}\n")

    assert [len(mistake.value) for mistake in refused(file)] == [80]
