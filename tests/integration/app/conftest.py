"""A `tidegate serve` of its own for each test, taken down with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.app.serving import Serving


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A sidecar that is not started yet."""
    made = Serving(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Serving]:
    """A second sidecar, with files of its own."""
    folder = tmp_path / "other"
    folder.mkdir()
    made = Serving(folder)
    yield made
    made.kill()
