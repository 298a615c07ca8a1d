"""What the client's integration tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.client.sidecar import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Sidecars and clients that are closed whatever happens."""
    stage = Stage()
    yield stage
    await stage.close()
