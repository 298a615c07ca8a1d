"""Sidecars and engines of one test, ended with it whatever happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from admission.simulation.demo.stage import Stage
from tests.integration.faults.rig import Rig
from tests.nvml_stub.stub import StubFile, build, compiler


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Nothing started yet."""
    stage = Stage(tmp_path)
    yield Rig(stage, tmp_path)
    stage.kill()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled NVML stand-in."""
    if compiler() is None:
        pytest.skip("needs a C compiler to build the NVML stand-in")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(tmp_path: Path) -> StubFile:
    """One GPU of 24 GiB of which the engine took 20 at its start: 3.5 GiB are free."""
    return StubFile(tmp_path / "gpus", **{"0.uuid": "GPU-aaaa", "0.used": 20 << 30, "0.util": 50})
