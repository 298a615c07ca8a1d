"""OTLP over gRPC as senders see it: status codes, sizes, compression, roles, TLS."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import httpx
import pytest
import trustme
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.config import OtlpTls, TargetBinding, TelemetryConfig
from telemetry.receivers.otlp import OtlpGrpcReceiver
from telemetry.receivers.otlp_intake import ACCEPTED, Intake
from telemetry.receivers.otlp_spans import SpanReader
from telemetry.receivers.recorder import Recorder
from tests.integration.telemetry.harness import QUIET, running
from tests.telemetry.golden import VLLM_V1, Told, encode

pytestmark = pytest.mark.integration

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
MIB = 1 << 20
OPTIONS = (("grpc.max_send_message_length", -1),)


def fresh(told: Told = VLLM_V1) -> bytes:
    """A span that ended just now."""
    return encode(told.but(start_ns=time.time_ns() - round(told.lasted_s * 1e9)))


async def export(
    channel: grpc.aio.Channel,
    body: bytes,
    method: str = TRACES,
    metadata: tuple[tuple[str, str], ...] = (),
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> bytes:
    """One call with raw bytes."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return bytes(await call(body, metadata=metadata, compression=compression, timeout=15))


async def test_a_span_becomes_a_sample_on_the_admission_loop() -> None:
    """Through listener, parse, process and link, with the clock of this machine."""
    async with running() as (_, sink):
        port, _ = await sink.ports()
        before = time.monotonic()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await export(channel, fresh(), compression=grpc.Compression.Gzip) == b""
        await sink.until(lambda: bool(sink.samples))
        assert before <= sink.samples[0].at <= time.monotonic()
        await sink.until(lambda: sink.last.emitters == {"default": "vllm"})
    assert sink.samples[0].request_key == "chatcmpl-3d0f6a"


async def test_each_kind_of_bad_call_has_its_code_and_harms_nobody() -> None:
    """All of them are codes that no exporter retries."""
    async with running() as (_, sink):
        port, _ = await sink.ports()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            for body, method, compression, code in (
                (b"\xff\xff\xff", TRACES, grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
                (b"", LOGS, grpc.Compression.NoCompression, grpc.StatusCode.UNIMPLEMENTED),
                (bytes(65 * MIB), TRACES, grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED),
                (bytes(65 * MIB), TRACES, grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await export(channel, body, method, compression=compression)
                assert caught.value.code() is code
            reply = await export(channel, fresh(VLLM_V1.but(trace_id="12")))
            partial = ExportTraceServiceResponse.FromString(reply).partial_success
            assert partial.rejected_spans == 1
            await export(channel, fresh())
        await sink.until(lambda: bool(sink.samples))
        await sink.until(lambda: sink.last.counters.get("otlp_garbage_payloads", 0) == 1)


async def test_a_payload_of_5_mib_is_taken() -> None:
    """The default of gRPC, 4 MiB, would lose the largest batches: those of the busiest servers."""
    async with running() as (_, sink):
        port, _ = await sink.ports()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            assert await export(channel, fresh(VLLM_V1.but(more={"padding": "x" * (5 * MIB)}))) == b""
        await sink.until(lambda: bool(sink.samples))


async def test_a_sender_without_the_role_is_shown_and_never_steers() -> None:
    """With tokens configured."""
    async with running(tokens=("s3cret",)) as (_, sink):
        port, _ = await sink.ports()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await export(channel, fresh(), metadata=(("authorization", "Bearer wrong"),))
            await export(
                channel, fresh(VLLM_V1.but(span_id="ab" * 8)), metadata=(("authorization", "Bearer s3cret"),)
            )
        await sink.until(lambda: sink.last.counters.get("spans:default:vllm:without_role") == 1)
        assert len(sink.samples) == 1


async def test_a_sender_without_the_role_cannot_make_us_parse_much() -> None:
    """What is only shown may not cost what steers."""
    async with running(restricted=True) as (_, sink):
        port, _ = await sink.ports()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="need the telemetry role"):
                await export(channel, fresh(VLLM_V1.but(more={"padding": "x" * MIB})))
            await export(channel, fresh())
        await sink.until(lambda: sink.last.counters.get("spans:default:vllm:without_role") == 1)
        assert not sink.samples


async def test_over_tls_a_certificate_can_have_the_role(tmp_path: Path) -> None:
    """And without a certificate of the right authority there is no connection at all."""
    authority, tls = certificates(tmp_path)
    ca = authority.cert_pem.bytes()
    async with running(tls=tls, names=("collector.example",)) as (_, sink):
        port, _ = await sink.ports()
        for name in ("collector.example", "other.example"):
            leaf = authority.issue_cert(name)
            pair = (leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes())
            credentials = grpc.ssl_channel_credentials(ca, *pair)
            async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
                await export(channel, fresh(VLLM_V1.but(span_id=name.encode().hex()[:16])))
        await sink.until(lambda: sink.last.counters.get("spans:default:vllm:without_role") == 1)
        assert len(sink.samples) == 1
        stranger = grpc.ssl_channel_credentials(ca)
        async with grpc.aio.secure_channel(f"localhost:{port}", stranger) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await export(channel, fresh())


async def test_http_speaks_tls_with_the_same_certificates(tmp_path: Path) -> None:
    """Both listeners of one setting; a sender without a certificate of the authority is turned away."""
    authority, tls = certificates(tmp_path)
    async with running(tls=tls) as (_, sink):
        _, port = await sink.ports()
        url = f"https://localhost:{port}/v1/traces"
        headers = {"content-type": "application/x-protobuf"}
        context = ssl.create_default_context()
        authority.configure_trust(context)
        authority.issue_cert("collector.example").configure_cert(context)
        async with httpx.AsyncClient(verify=context) as client:
            assert (await client.post(url, content=fresh(), headers=headers)).status_code == 200
        await sink.until(lambda: bool(sink.samples))
        stranger = ssl.create_default_context()
        authority.configure_trust(stranger)
        async with httpx.AsyncClient(verify=stranger) as client:
            with pytest.raises(httpx.TransportError):
                await client.post(url, content=fresh(), headers=headers)


async def test_certificates_that_were_replaced_are_used_without_a_restart(tmp_path: Path) -> None:
    """They last days or hours in many clusters; both listeners follow the files."""
    _, tls = certificates(tmp_path)
    async with running(tls=replace(tls, client_ca="")) as (_, sink):
        await sink.ports()
        renewed, _ = certificates(tmp_path)
        ports = await sink.ports()
        async with asyncio.timeout(10):
            while not all([await trusts(renewed, port) for port in ports]):
                await asyncio.sleep(0.1)


async def trusts(authority: trustme.CA, port: int) -> bool:
    """Whether the server there shows a certificate of this authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    except ssl.SSLError:
        return False
    writer.close()
    return True


def certificates(folder: Path) -> tuple[trustme.CA, OtlpTls]:
    """An authority, and a server of its own for localhost."""
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server.private_key_pem.write_to_path(str(folder / "key.pem"))
    server.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    paths = {name: str(folder / f"{name}.pem") for name in ("cert", "key")}
    return authority, OtlpTls(**paths, client_ca=str(folder / "ca.pem"))


async def test_while_starting_senders_learn_when_to_come_back() -> None:
    """UNAVAILABLE with RetryInfo in both forms: the Collector reads one, the Python SDK the other."""
    intake = Intake(SpanReader((TargetBinding(),)), lambda *_: ACCEPTED)
    receiver = OtlpGrpcReceiver(QUIET, intake)
    serving = asyncio.create_task(receiver.run(Recorder()))
    async with asyncio.timeout(10):
        while not receiver.port:
            await asyncio.sleep(0.01)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{receiver.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await export(channel, b"")
    serving.cancel()
    await asyncio.wait((serving,))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    trailers = dict(caught.value.trailing_metadata() or ())
    bare = RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    assert bare.retry_delay.ToMilliseconds() == 1000
    detail = RetryInfo()
    assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(detail)
    assert detail == bare


async def test_a_taken_port_is_named_with_its_setting() -> None:
    """Another collector on 4317 is the commonest of all first-run problems; the rest works meanwhile."""
    async with running() as (_, first):
        port, _ = await first.ports()
        config = TelemetryConfig(
            targets=QUIET.targets, nvml=False, otlp_grpc=f"127.0.0.1:{port}", otlp_http="127.0.0.1:0"
        )
        async with running(config) as (_, sink):
            await sink.until(lambda: any("otlp_grpc" in line for line in sink.last.warnings))
            await sink.until(lambda: "otlp_http" in sink.last.ports)
            assert "otlp_grpc" not in sink.last.ports
