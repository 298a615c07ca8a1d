"""What every test starts with: loggers as Python makes them, whatever an earlier test set up in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LOGGERS = ("admission", "telemetry", "tidegate", "opentelemetry")


@pytest.fixture(autouse=True)
def _own_loggers() -> Iterator[None]:
    """A sidecar that runs inside a test takes its log lines away from the root, where caplog listens."""
    yield
    for logger in map(logging.getLogger, LOGGERS):
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
