"""The pipeline's own part: one bounded view of everything, and receivers that fail alone."""

from __future__ import annotations

import asyncio

import pytest

from admission.core.model import Reading, Sample
from admission.vocabulary import Outcome, SignalKind, Source
from telemetry.config import TelemetryConfig
from telemetry.link import GpuReport, SignalReport
from telemetry.pipeline import MAX_COUNTERS, MAX_GPUS, MAX_WARNINGS, Collector, Pipeline
from telemetry.processors.staleness import Staleness
from telemetry.receivers import Emit
from telemetry.receivers.recorder import Recorder
from tests.telemetry.test_link import Counted, until

SILENT = TelemetryConfig(otlp_grpc="", otlp_http="", nvml=False, targets=TelemetryConfig().targets)


def collector(now: list[float] | None = None) -> Collector:
    """Of a sink that nobody looks at."""
    times = now or [0.0]
    return Collector(Counted(), Staleness(), lambda: times[0])


@pytest.mark.parametrize("make", [Recorder, collector], ids=["Recorder", "Collector"])
def test_every_emit_takes_everything_and_a_warning_back(make: type[Recorder]) -> None:
    """The contract of Emit, over the real one and the one that tests use."""
    emit = make()
    as_emit: Emit = emit
    as_emit.reading("t", Reading(SignalKind.RUNNING, 1.0, 0.0, Source.SCRAPE))
    as_emit.sample("t", Sample(0.0, Outcome.OK))
    as_emit.signal(SignalReport("t", "n", "scrape", "fresh"))
    as_emit.gpu(GpuReport("GPU-1"))
    as_emit.count("c")
    as_emit.count("c", 2)
    as_emit.warn("k", "one")
    as_emit.warn("k", "two")
    assert emit.counters["c"] == 3
    assert emit.warnings == {"k": "two"}
    as_emit.warn("k", "")
    as_emit.warn("never", "")
    assert emit.warnings == {}


def test_readings_and_samples_go_on_at_once() -> None:
    """Only what is shown waits for the view; the loop gets measurements as they come."""
    sink = Counted()
    emit = Collector(sink, Staleness(), lambda: 0.0)
    emit.reading("t", Reading(SignalKind.RUNNING, 1.0, 0.0, Source.SCRAPE))
    emit.sample("t", Sample(0.0, Outcome.OK))
    assert (len(sink.readings), len(sink.samples)) == (1, 1)


def test_what_is_shown_is_bounded() -> None:
    """Names of counters, keys of warnings and GPUs come from code and machines, but a bug must not fill memory."""
    emit = collector()
    for number in range(5000):
        emit.count(str(number))
        emit.warn(str(number), "x")
        emit.gpu(GpuReport(str(number)))
    assert len(emit.counters) == MAX_COUNTERS
    assert len(emit.warnings) == MAX_WARNINGS
    assert len(emit.gpus(0.0)) == MAX_GPUS


def test_a_gpu_that_nobody_reports_ages_and_is_forgotten() -> None:
    """A node that left must not be shown for ever as it last was."""
    now = [0.0]
    emit = collector(now)
    emit.gpu(GpuReport("GPU-1", age_s=2.0))
    assert emit.gpus(10.0)[0].age_s == 12.0
    assert emit.gpus(4000.0) == []


def test_only_a_scrape_that_succeeded_lately_is_one() -> None:
    """What a Collector relays of an engine is a copy only while our own scrape reaches it."""
    now = [0.0]
    emit = collector(now)
    emit.reading("t", Reading(SignalKind.ENGINE_UP, 0.0, 0.0, Source.SCRAPE))
    assert not emit.scraped("t")
    emit.reading("t", Reading(SignalKind.ENGINE_UP, 1.0, 0.0, Source.SCRAPE))
    assert emit.scraped("t")
    now[0] = 11.0
    assert not emit.scraped("t")


class Failing:
    """A receiver that cannot work."""

    name = "failing"

    def __init__(self) -> None:
        self.tries = 0

    async def run(self, emit: Emit) -> None:
        """Fails."""
        self.tries += 1
        raise RuntimeError("the port is taken")


async def test_a_receiver_that_fails_is_shown_and_takes_no_other_with_it() -> None:
    """A taken port costs that listener: scrapes and samples go on."""
    sink = Counted()
    pipeline = Pipeline(SILENT, sink, clock=lambda: 1.0)
    failing = Failing()
    pipeline._receivers = [failing, *pipeline._receivers]
    task = asyncio.create_task(pipeline.run())
    await until(lambda: bool(sink.views))
    view = pipeline.view(dropped=7)
    task.cancel()
    await asyncio.wait((task,))
    assert failing.tries == 1
    assert "failing: the port is taken" in view.warnings
    assert view.counters["receiver_failures"] == 1
    assert view.counters["link_dropped"] == 7


async def test_a_signal_that_never_came_is_shown_as_missing() -> None:
    """Empty configuration scrapes 127.0.0.1:8000: the view says what it would want from there."""
    view = Pipeline(SILENT, Counted(), clock=lambda: 1.0).view()
    assert {(s.name, s.state) for s in view.signals} >= {
        ("running", "missing"),
        ("kv_usage_ratio", "missing"),
    }
    assert view.ports == {}
