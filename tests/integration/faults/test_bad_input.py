"""Bad input from every side, through the real sidecar: a typed answer, nothing leaked, and it goes on serving."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from admission.commands.output import ExitCode
from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words
from tests.integration.faults.rig import Rig, acquire, counted, metric, release, target_of, ticket
from tests.telemetry.golden import VLLM_V1, encode

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GARBAGE = b"\xff\xff\xff"


async def still_serves(rig: Rig) -> None:
    """A permit is given and comes back, nothing else is held, the probes are well."""
    async with rig.asking() as stub:
        decision = await acquire(stub)
        assert decision.verdict == words.VERDICT_ADMITTED
        assert await release(stub, decision.lease)
    await rig.empties(5)
    assert (await rig.get("/healthz"))[0] == 200


async def call(address: str, method: str, body: bytes) -> bytes:
    """One call with raw bytes."""
    async with grpc.aio.insecure_channel(address) as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        return bytes(await unary(body, timeout=15))


async def code_of(address: str, method: str, body: bytes) -> grpc.StatusCode:
    """How a call with raw bytes fails."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(address, method, body)
    return refused.value.code()


def wrong(rig: Rig, broken: Callable[[dict[str, Any]], None]) -> subprocess.CompletedProcess[str]:
    """`tidegate serve` with a configuration that was broken."""
    document = rig.document()
    broken(document)
    file = rig.folder / "wrong.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "admission.cli", "serve", "-c", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_a_wrong_file_is_told_whole_and_nothing_starts(rig: Rig) -> None:
    """All mistakes at once, each where it stands: nobody should need four restarts to learn four lines."""

    def break_it(document: dict[str, Any]) -> None:
        document["targets"][0] |= {"mode": "enforced", "vram": {"learn_s": -1}}
        document["listen"]["grpc"] = ["0.0.0.0:50051"]
        document["telemtry"] = {}

    done = await asyncio.to_thread(wrong, rig, break_it)

    assert done.returncode == ExitCode.BAD_CONFIGURATION
    for path in ("targets[0].mode", "targets[0].vram", "listen.grpc", "telemtry"):
        assert path in done.stderr
    assert "Traceback" not in done.stderr
    assert (await rig.get("/healthz"))[0] == 0


@pytest.mark.parametrize("asked", [{"target": "nobody"}, {"model": "unheard-of"}])
async def test_what_no_target_claims_passes_untracked_counted_and_warned_of(
    rig: Rig, asked: dict[str, str]
) -> None:
    """Installing us in front of a model that nobody configured must not be an outage."""
    rig.target = {"models": ["m", "known-*"]}
    await rig.sidecar()
    async with rig.asking() as stub:
        decisions = [await acquire(stub, **asked) for _ in range(3)]
        held = target_of(await rig.snapshot()).in_flight
        known = [await release(stub, decision.lease) for decision in decisions]
    seen = await rig.snapshot()

    assert {decision.verdict for decision in decisions} == {words.VERDICT_ADMITTED}
    assert {decision.target for decision in decisions} == {""}
    assert "untracked" in decisions[0].detail
    assert (held, known) == (0, [True] * 3)
    [warning] = [line for line in seen.warnings if "no target claims them" in line]
    assert next(iter(asked.values())) in warning
    assert warning.startswith("3 tickets")
    page = (await rig.get("/metrics"))[1]
    assert 'tidegate_protocol_total{name="passed_untracked",way="unary"} 3.0' in page
    await still_serves(rig)


async def test_a_ticket_larger_than_the_engine_never_fits_and_is_told_so(rig: Rig) -> None:
    """400 and no Retry-After: coming back cannot help, and the queue behind it must not stand."""
    rig.target = {"metrics_urls": [f"http://127.0.0.1:{rig.engine_port}/metrics"]}
    await rig.sidecar()
    options = ("--engine", "h100-llama3-8b", "--kv-capacity-tokens", "2000")
    await rig.engine(*options, TIDEGATE_DECISION_TIMEOUT_MS="5000")
    await rig.shown(lambda seen: target_of(seen).kv_capacity_tokens == 2000)
    ask = {"model": "standin", "max_tokens": 8}
    status, headers, body = await rig.post(ask | {"prompt": " tok" * 9000})
    async with rig.asking() as stub:
        decision = await acquire(stub, prompt_tokens=5000, max_tokens=8)
    fits = await rig.post(ask | {"prompt": " tok" * 50})

    assert (status, headers["x-tidegate-reason"]) == (400, "NEVER_FITS")
    assert "retry-after" not in {name.lower() for name in headers}
    assert headers["x-should-retry"] == "false"
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert (decision.verdict, decision.reason) == (words.VERDICT_REJECTED, words.REASON_NEVER_FITS)
    assert not decision.HasField("retry_after")
    assert (decision.measured, decision.threshold) > (2000, 0)
    assert fits[0] == 200
    await rig.empties()


async def test_a_second_and_a_late_release_are_ignored_and_counted(rig: Rig) -> None:
    """A permit comes back once, whoever says it how often; a lease that expired is not given back again."""
    rig.target = {"lease": {"ttl_s": 1.0, "grace_s": 0.5}}
    await rig.sidecar()
    async with rig.asking() as stub:
        first = await acquire(stub)
        twice = [await release(stub, first.lease) for _ in range(2)]
        late = await acquire(stub)
        assert target_of(await rig.snapshot()).in_flight == 1
        await rig.empties(5)
        after = await release(stub, late.lease)
        never = await release(stub, b"no such lease is!")

    assert (twice, after, never) == ([True, False], False, False)
    page = (await rig.get("/metrics"))[1]
    assert metric(page, "tidegate_lease_expired_total") == 1
    assert 'tidegate_protocol_total{name="ignored_releases",way="unary"} 3.0' in page
    await still_serves(rig)


async def test_a_session_that_finishes_twice_gives_back_once(rig: Rig) -> None:
    """The same over the stream, where the number is the client's own."""
    await rig.sidecar()
    async with rig.asking() as stub:
        stream = stub.Session()
        await stream.write(wire.SessionRequest(hello=wire.Hello(session=bytes(16), attach=1)))
        await stream.read()
        asks = [ticket(no=1), ticket(no=2)]
        await stream.write(wire.SessionRequest(seen=1, acquires=asks))
        await stream.read()
        end = words.Finish(no=1, outcome=words.OUTCOME_OK)
        await stream.write(wire.SessionRequest(seen=2, finishes=[end, end], held_count=1))
        await rig.shown(lambda seen: target_of(seen).in_flight == 1)
        page = (await rig.get("/metrics"))[1]
        await stream.done_writing()
        await rig.empties(3)

    assert 'tidegate_protocol_total{name="ignored_finishes",way="session"} 1.0' in page


@pytest.fixture
async def holder(rig: Rig) -> AsyncIterator[asyncio.subprocess.Process]:
    """A client in a process of its own that holds 100 permits of a sidecar with a short grace."""
    rig.target = {
        "lease": {"ttl_s": 4.0, "grace_s": 1.0},
        "limit": {"algorithm": "fixed", "limit_tokens": 100_000},
    }
    await rig.sidecar()
    command = ["-m", "tests.integration.faults.holder", f"127.0.0.1:{rig.grpc_port}", "100"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).decode() == "100\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_client_that_dies_holding_100_permits_gives_them_back_within_the_grace(
    rig: Rig, holder: asyncio.subprocess.Process
) -> None:
    """Nobody says goodbye for a process that was killed: the broken stream does."""
    assert target_of(await rig.snapshot()).in_flight == 100
    holder.kill()
    began = time.monotonic()
    await rig.empties(10)
    took_s = time.monotonic() - began

    assert 0.8 < took_s < 4.0
    assert metric((await rig.get("/metrics"))[1], "tidegate_lease_expired_total") == 100
    await still_serves(rig)


async def test_a_client_that_falls_silent_loses_its_permits_with_the_lease_and_is_believed_when_it_wakes(
    rig: Rig, holder: asyncio.subprocess.Process
) -> None:
    """A frozen process keeps its connection: only the lease tells. What it still runs is counted when it speaks."""
    holder.send_signal(signal.SIGSTOP)
    await rig.empties(15)
    holder.send_signal(signal.SIGCONT)
    await rig.shown(lambda seen: target_of(seen).in_flight == 100)
    holder.kill()
    await rig.empties(10)
    await still_serves(rig)


async def test_unary_callers_that_never_come_back_hold_nothing_after_their_lease(rig: Rig) -> None:
    """There is no stream that could break: each lease ends by itself."""
    rig.target = {
        "lease": {"ttl_s": 2.0, "grace_s": 1.0},
        "limit": {"algorithm": "fixed", "limit_tokens": 100_000},
    }
    await rig.sidecar()
    async with rig.asking() as stub:
        ask = {"prompt_tokens": 1, "max_tokens": 1, "stream": False}
        verdicts = [(await acquire(stub, **ask)).verdict for _ in range(100)]
    await rig.empties(10)

    assert set(verdicts) == {words.VERDICT_ADMITTED}
    assert metric((await rig.get("/metrics"))[1], "tidegate_lease_expired_total") == 100
    await still_serves(rig)


async def test_garbage_is_refused_by_its_name_on_every_port(rig: Rig) -> None:
    """INVALID_ARGUMENT and 400: codes that no sender retries, and no other caller notices."""
    await rig.sidecar()
    clients, otlp = f"127.0.0.1:{rig.grpc_port}", f"127.0.0.1:{rig.otlp_port}"
    control = f"unix:{rig.folder / 'control.sock'}"
    await rig.stage.wait_for_port("sidecar", rig.otlp_port)
    async with rig.asking() as stub:
        held = await acquire(stub)
        codes = [
            await code_of(clients, f"/admission.v1.AdmissionService/{method}", GARBAGE)
            for method in ("Acquire", "Release", "Report", "Session")
        ]
        codes += [
            await code_of(control, "/admission.v1.ControlService/SetMode", GARBAGE),
            await code_of(control, "/admission.v1.MonitorService/GetHistory", GARBAGE),
            await code_of(otlp, TRACES, GARBAGE),
        ]
        assert target_of(await rig.snapshot()).in_flight == 1
        assert await release(stub, held.lease)

    assert set(codes) == {grpc.StatusCode.INVALID_ARGUMENT}
    await still_serves(rig)


async def test_spans_that_end_before_they_start_are_rejected_by_number_and_steer_nothing(rig: Rig) -> None:
    """The clock of a node may step; what such a span says of latency is worse than silence."""
    await rig.sidecar()
    await rig.stage.wait_for_port("sidecar", rig.otlp_port)
    otlp = f"127.0.0.1:{rig.otlp_port}"
    now_ns = time.time_ns()
    backwards = VLLM_V1.but(start_ns=now_ns, lasted_s=-3.0)
    negative = VLLM_V1.but(
        start_ns=now_ns - 3_461_000_000,
        span_id="00000000000000aa",
        more={
            f"gen_ai.latency.{part}": -5.0
            for part in ("time_to_first_token", "time_in_queue", "time_in_model_decode", "e2e")
        },
    )
    honest = VLLM_V1.but(start_ns=now_ns - 3_461_000_000, span_id="00000000000000bb")
    answer = ExportTraceServiceResponse.FromString(await call(otlp, TRACES, encode(backwards)))
    await call(otlp, TRACES, encode(negative))
    await call(otlp, TRACES, encode(honest))
    before = target_of(await rig.snapshot()).limit_tokens

    assert answer.partial_success.rejected_spans == 1
    assert "ends before it starts" in answer.partial_success.error_message
    async with asyncio.timeout(10):
        while 'result="sample"' not in (page := (await rig.get("/metrics"))[1]):
            await asyncio.sleep(0.1)
    assert 'tidegate_spans_total{emitter="vllm",result="malformed",target=""} 1.0' in page
    seen = await rig.shown(lambda seen: target_of(seen).classes[0].ttft.count)
    measured = target_of(seen).classes[0]
    for each in (measured.ttft, measured.tpot, measured.queue_time, measured.e2e):
        assert not each.count or each.p50 >= 0
    assert target_of(seen).limit_tokens >= before
    await still_serves(rig)


async def test_an_exporter_that_floods_costs_the_decisions_nothing(rig: Rig) -> None:
    """Half a megabyte of spans at a time from 16 senders: parsed beside the admission loop, bounded, newest first."""
    await rig.sidecar()
    await rig.stage.wait_for_port("sidecar", rig.otlp_port)
    command = ["-m", "tests.integration.telemetry.flood", str(rig.otlp_port), "5"]
    flood = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    waits: list[float] = []
    async with rig.asking() as stub:
        while flood.returncode is None:
            began = time.monotonic()
            decision = await acquire(stub)
            waits.append(time.monotonic() - began)
            assert decision.verdict == words.VERDICT_ADMITTED
            await release(stub, decision.lease)
            await asyncio.sleep(0.02)
    await flood.communicate()
    assert flood.returncode == 0
    waits.sort()

    assert len(waits) > 20
    assert waits[int(0.95 * len(waits))] < 0.25
    seen = await rig.snapshot()
    assert counted(target_of(seen), words.VERDICT_ADMITTED) == len(waits)
    await still_serves(rig)


async def _page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A login page where metrics were expected."""
    await reader.readuntil(b"\r\n\r\n")
    body = b"<!doctype html><html><body>Please log in. vllm:num_requests_running 7</body></html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    await writer.drain()
    writer.close()


async def test_a_scrape_that_returns_a_page_for_people_is_named_and_believed_in_nothing(rig: Rig) -> None:
    """A proxy's login page answers 200: it is no metrics, so the signals are missing, and nothing is zero."""
    async with await asyncio.start_server(_page, "127.0.0.1", rig.engine_port):
        url = f"http://127.0.0.1:{rig.engine_port}/metrics"
        rig.target = {"metrics_urls": [url]}
        await rig.sidecar()
        seen = await rig.shown(lambda seen: any(url in line for line in seen.warnings), 15)
        await still_serves(rig)
        after = target_of(await rig.snapshot())

    states = {signal.name: signal.state for signal in seen.signals if signal.source == "scrape"}
    assert states.pop("engine_up") == "fresh"
    assert set(states.values()) == {"missing"}
    assert not target_of(seen).HasField("engine_running")
    assert (after.untracked_tokens, after.HasField("kv_usage_ratio")) == (0, False)
