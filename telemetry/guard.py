"""Between telemetry and its sink: a sink that fails is no failing telemetry, and new warnings reach the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from admission.core.model import Reading, Sample
from telemetry.link import TelemetrySink, TelemetryView

log = logging.getLogger("telemetry")


class GuardedSink:
    """Passes everything on. What the sink raises is counted in `failures`, and logged ever more rarely.

    A warning is logged when it appears: once, while only numbers in it change.
    """

    def __init__(self, sink: TelemetrySink) -> None:
        self._sink = sink
        self._warned: set[str] = set()
        self.failures = 0

    def reading(self, target: str, reading: Reading) -> None:
        """One measured value."""
        self._try(self._sink.reading, target, reading)

    def sample(self, target: str, sample: Sample) -> None:
        """One finished request."""
        self._try(self._sink.sample, target, sample)

    def view(self, view: TelemetryView) -> None:
        """Everything shown to people, with the count of failures."""
        view.counters["sink_failures"] = self.failures
        self._log_new(view.warnings)
        self._try(self._sink.view, view)

    def _log_new(self, warnings: list[str]) -> None:
        shapes = {re.sub(r"[\d.]+", "#", text): text for text in warnings}
        for shape, text in shapes.items():
            if shape not in self._warned:
                log.warning("%s", text)
        self._warned = set(shapes)

    def _try(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            self.failures += 1
            if self.failures & (self.failures - 1) == 0:  # 1, 2, 4, 8 ...
                log.exception("the admission side failed %d time(s) to take a measurement", self.failures)
