"""The intake: bounded, newest first, and no exporter waits for long or is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from telemetry.config import TargetBinding
from telemetry.receivers.otlp_intake import ACCEPTED, Answer, Intake, NotNowError, Signal
from telemetry.receivers.otlp_spans import Batch, SpanReader
from telemetry.receivers.recorder import Recorder
from tests.telemetry.golden import HTTP_OLD, VLLM_V1, encode


def no_metrics(body: bytes, batch: Batch) -> Answer:
    """Reads any metrics."""
    batch.emit.count("metrics", len(body))
    return ACCEPTED


class Running:
    """An intake at work, and what it emitted."""

    def __init__(self, **bounds: int) -> None:
        self.heard = Recorder()
        wall_ns = VLLM_V1.end_ns + 1_000_000_000
        self.intake = Intake(
            SpanReader((TargetBinding(),)), no_metrics, clock=lambda: 5.0, wall_ns=lambda: wall_ns, **bounds
        )

    def offer(self, body: bytes, signal: Signal = Signal.TRACES) -> asyncio.Future[Answer]:
        """One payload from a sender that may steer."""
        return self.intake.offer(signal, body, steers=True)


@asynccontextmanager
async def running(**bounds: int) -> AsyncIterator[Running]:
    """The intake's task runs meanwhile."""
    it = Running(**bounds)
    task = asyncio.create_task(it.intake.run(it.heard))
    await asyncio.sleep(0)
    try:
        yield it
    finally:
        task.cancel()
        await asyncio.wait((task,))


def numbered(count: int) -> list[bytes]:
    """Payloads of one request each, with keys 0, 1, 2 ..."""
    return [
        encode(HTTP_OLD.but(span_id=f"{n + 1:016x}", more={"x_request_id": str(n)})) for n in range(count)
    ]


async def test_a_payload_is_read_at_its_time_of_arrival() -> None:
    """The sample's time is the receiver's clock: no sender's clock can move a window."""
    async with running() as it:
        assert await it.offer(encode(VLLM_V1)) == ACCEPTED
    ((target, sample),) = it.heard.samples
    assert (target, sample.at) == ("default", 5.0)


async def test_the_newest_is_parsed_first() -> None:
    """When behind, what the engine does now matters more than what it did."""
    async with running() as it:
        await asyncio.wait([it.offer(body) for body in numbered(4)])
    assert [sample.request_key for _, sample in it.heard.samples] == ["3", "2", "1", "0"]


async def test_beyond_the_bound_the_oldest_is_dropped_counted_and_accepted() -> None:
    """A sender that is told to retry sends stale spans again; one that waits stalls its server's exporter."""
    async with running(max_waiting=2) as it:
        answers = [it.offer(body) for body in numbered(5)]
        assert [answer.done() for answer in answers] == [True, True, True, False, False]
        await asyncio.wait(answers)
    assert [sample.request_key for _, sample in it.heard.samples] == ["4", "3"]
    assert it.heard.counters["otlp_dropped_payloads"] == 3
    assert {answer.result() for answer in answers} == {ACCEPTED}


async def test_bytes_are_bounded_as_well_as_count() -> None:
    """A few large payloads fill memory as surely as many small ones."""
    async with running(max_waiting_bytes=1000) as it:
        for _ in range(50):
            it.offer(bytes(400))
            assert it.intake.waiting_bytes <= 1000
    assert it.heard.counters["otlp_dropped_bytes"] >= 47 * 400


async def test_one_payload_larger_than_the_bound_is_taken_alone() -> None:
    """Whatever the listeners let through is read."""
    async with running(max_waiting_bytes=10) as it:
        await it.offer(encode(VLLM_V1))
    assert len(it.heard.samples) == 1


async def test_garbage_is_named_and_harms_nobody() -> None:
    """Corrupt bytes get an answer that cannot be retried; the next payload is read."""
    async with running() as it:
        bad = await it.offer(b"\xff\xff\xff\xffnot protobuf")
        good = await it.offer(encode(VLLM_V1))
    assert "not an OTLP traces request" in bad.garbage
    assert good == ACCEPTED
    assert len(it.heard.samples) == 1


async def test_an_empty_request_is_a_success() -> None:
    """Exporters send them as a probe."""
    async with running() as it:
        assert await it.offer(b"") == ACCEPTED


async def test_malformed_spans_are_answered_with_a_partial_success() -> None:
    """With the number and the reason, for the sender's log."""
    async with running() as it:
        answer = await it.offer(encode(VLLM_V1.but(trace_id="12"), VLLM_V1))
    assert (answer.rejected, answer.garbage) == (1, "")
    assert "16 bytes" in answer.message


async def test_metrics_go_to_their_reader() -> None:
    """Both signals share the bound and the order."""
    async with running() as it:
        await it.offer(b"12345", Signal.METRICS)
    assert it.heard.counters["metrics"] == 5


async def test_a_large_payload_leaves_the_loop_to_others() -> None:
    """On the admission loop a flood is read in slices: others run between them."""
    body = b"".join(numbered(64))
    async with running(slice_of=16) as it:
        answer, turns = it.offer(body), 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
    assert len(it.heard.samples) == 64
    assert turns >= 5


async def test_before_and_after_it_runs_senders_are_told_to_come_back() -> None:
    """Only then: telemetry that starts or stops has nobody to read."""
    it = Running()
    with pytest.raises(NotNowError):
        await it.intake.take(Signal.TRACES, b"", steers=True)
    async with running() as it:
        waiting = [it.offer(body) for body in numbered(2)]
    with pytest.raises(NotNowError):
        it.offer(b"")
    assert all(answer.done() for answer in waiting)


async def test_a_sender_that_hangs_up_leaves_nothing_behind() -> None:
    """Its call is cancelled; its payload is read all the same."""
    async with running() as it:
        call = asyncio.create_task(it.intake.take(Signal.TRACES, encode(VLLM_V1), steers=True))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        await it.offer(b"")
    assert it.intake.waiting_bytes == 0
    assert len(it.heard.samples) == 1
