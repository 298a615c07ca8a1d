"""What any process of the machine may send to the OTLP ports: it once steered against the roles, or cost seconds."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from admission.app import telemetry_config
from admission.config.load import load
from admission.wire.otlp_pb2 import TraceRequest
from telemetry.config import TargetBinding, TelemetryConfig
from telemetry.receivers.otlp import MAX_WITHOUT_ROLE, MIB, Role
from telemetry.receivers.otlp_body import MAX_RATIO, Inflate, Refused
from telemetry.receivers.otlp_http import MAX_REQUESTS, OtlpApp
from telemetry.receivers.otlp_intake import ACCEPTED, MAX_EMPTY, Answer, Intake, Signal
from telemetry.receivers.otlp_json import MAX_OBJECTS, to_protobuf
from telemetry.receivers.otlp_spans import MAX_PARTS, Batch, SpanReader
from telemetry.receivers.recorder import Recorder
from tests.telemetry.golden import VLLM_V1, encode
from tests.telemetry.test_otlp_http import call

BODY = encode(VLLM_V1)
AS_JSON = {"content-type": "application/json"}
GZIP = {"content-encoding": "gzip"}


class Slow(Intake):
    """An intake that answers when the test says so."""

    def __init__(self) -> None:
        super().__init__(SpanReader((TargetBinding(),)), lambda *_: ACCEPTED)
        self.taken = 0
        self.go = asyncio.Event()

    async def take(self, signal: Signal, body: bytes, *, steers: bool) -> Answer:
        """Waits."""
        self.taken += 1
        await self.go.wait()
        return ACCEPTED


def app(intake: Intake | None = None, max_bytes: int = 16 * MIB, **config: Any) -> OtlpApp:
    """The application over an intake that answers at once."""
    if intake is None:
        intake = Slow()
        intake.go.set()
    return OtlpApp(intake, Role(TelemetryConfig(**config)), max_bytes, receive_s=0.02)


async def post(to: OtlpApp, *chunks: bytes, **headers: str) -> int:
    """The status."""
    return (await call(to, chunks, "/v1/traces", "POST", headers)).code


# ---- roles


@pytest.mark.parametrize(
    "roles",
    ["token_file: {tokens}", "names: {{collector.svc: [telemetry]}}", "names: {{boss.svc: [operator]}}"],
)
def test_with_any_roles_nobody_steers_without_one(roles: str, tmp_path: Path) -> None:
    """A token file without a line for telemetry, or names without `client_ca`, left the door open."""
    tokens, file = tmp_path / "tokens", tmp_path / "tidegate.yaml"
    tokens.write_text("client aaa\noperator bbb\n")
    file.write_text("listen:\n  roles:\n    " + roles.format(tokens=tokens))

    role = Role(telemetry_config(load(file, {}).settings))

    assert not role.of("")
    assert not role.of("Bearer aaa", ["boss.svc"])


def test_without_any_roles_everybody_steers(tmp_path: Path) -> None:
    """The default: a Collector on the same machine needs no secret."""
    file = tmp_path / "tidegate.yaml"
    file.write_text("{}")
    assert Role(telemetry_config(load(file, {}).settings)).of("")


async def test_without_the_role_nothing_dear_is_read() -> None:
    """Four requests of a kilobyte held the telemetry process up for half a minute."""
    guarded = app(tokens=("secret",))
    carried = {"authorization": "Bearer secret"}

    assert await post(guarded, b"{}", **AS_JSON) == 403
    assert await post(guarded, b"{}", **AS_JSON, **carried) == 200
    assert await post(guarded, bytes(MAX_WITHOUT_ROLE + 1)) == 413
    assert await post(guarded, bytes(MAX_WITHOUT_ROLE + 1), **carried) == 200
    assert await post(guarded, BODY) == 200


# ---- bounds


async def test_a_body_holds_its_budget_until_it_was_read() -> None:
    """It was given back before parsing, which costs most: any number of bodies were parsed at once."""
    slow = Slow()
    filled = app(slow, max_bytes=len(BODY))
    waiting = [asyncio.create_task(post(filled, BODY)) for _ in range(2)]
    while slow.taken < 2:
        await asyncio.sleep(0)

    assert await post(filled, BODY) == 429
    slow.go.set()
    assert await asyncio.gather(*waiting) == [200, 200]
    assert await post(filled, BODY) == 200


async def test_only_so_many_requests_are_under_way() -> None:
    """Bodies that do not come cost no budget, and a task each."""
    slow = Slow()
    full = app(slow)
    waiting = [asyncio.create_task(post(full, BODY)) for _ in range(MAX_REQUESTS)]
    while slow.taken < MAX_REQUESTS:
        await asyncio.sleep(0)

    assert await post(full, BODY) == 429
    slow.go.set()
    assert set(await asyncio.gather(*waiting)) == {200}
    assert await post(full, BODY) == 200


async def test_a_body_that_does_not_come_is_given_up() -> None:
    """A sender that sends its header and nothing else kept its place for ever."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/x-protobuf")]
    scope = {"type": "http", "path": "/v1/traces", "method": "POST", "headers": headers}
    await app()(scope, receive, send)

    assert sent[0]["status"] == 408


async def test_json_is_bounded_more_tightly() -> None:
    """It costs twenty times its bytes."""
    assert await post(app(), b" " * (4 * MIB + 1), **AS_JSON) == 413


async def test_json_bodies_are_read_one_after_the_other() -> None:
    """Each holds the interpreter: side by side none would end."""
    intake = Slow()
    intake.go.set()
    to = app(intake)
    async with to._one_json:
        waiting = asyncio.create_task(post(to, b"{}", **AS_JSON))
        for _ in range(20):
            await asyncio.sleep(0)
        assert intake.taken == 0

    assert await waiting == 200


def test_json_of_too_many_objects_is_refused_while_it_is_read() -> None:
    """Eight megabytes of `{}` took half a minute."""
    body = b'{"resourceSpans":[' + b",".join([b"{}"] * MAX_OBJECTS) + b"]}"
    with pytest.raises(ValueError, match=f"more than {MAX_OBJECTS} JSON objects"):
        to_protobuf(Signal.TRACES, body)


async def test_a_body_packed_tighter_than_spans_is_refused() -> None:
    """Eight kilobytes on the wire became eight megabytes to parse."""
    assert await post(app(), gzip.compress(bytes(8 * MIB)), **GZIP) == 413
    assert await post(app(), gzip.compress(bytes(MIB)), **GZIP) == 200


def test_a_tight_body_is_unpacked_no_further_than_the_ratio() -> None:
    """The memory is what the bound is for."""
    inflate, packed = Inflate("gzip", 16 * MIB), gzip.compress(bytes(15 * MIB))
    with pytest.raises(Refused, match=f"packed over {MAX_RATIO}:1"):
        inflate.feed(packed)
    assert inflate.size <= max(MIB, MAX_RATIO * len(packed)) + 1


# ---- parsing


async def test_empty_messages_are_counted_before_they_are_parsed() -> None:
    """Each of their two bytes costs twenty-five, and the parser cannot be interrupted."""
    intake = Intake(SpanReader((TargetBinding(),)), lambda *_: ACCEPTED)
    task = asyncio.create_task(intake.run(Recorder()))
    await asyncio.sleep(0)
    try:
        fits = await intake.offer(Signal.TRACES, b"\x0a\x00" * 60_000 + BODY, steers=True)
        refused = await intake.offer(Signal.TRACES, b"\x0a\x00" * (MAX_EMPTY + 1), steers=True)
        assert (fits.garbage, "ValueError" in refused.garbage) == ("", True)
    finally:
        task.cancel()
        await asyncio.wait((task,))


def request_of(resources: int, scopes: int) -> TraceRequest:
    """A payload without spans."""
    request = TraceRequest()
    for _ in range(resources):
        told = request.resource_spans.add()
        for _ in range(scopes):
            told.scope_spans.add()
    return request


@pytest.mark.parametrize(("resources", "scopes"), [(MAX_PARTS + 1, 0), (1, MAX_PARTS), (2, MAX_PARTS // 2)])
def test_parts_without_spans_are_bounded(resources: int, scopes: int) -> None:
    """Millions fit into one body, and nobody else had the loop while they were walked through."""
    reader, batch = SpanReader((TargetBinding(),)), Batch(Recorder(), 5.0, 0)
    with pytest.raises(ValueError, match="resources and scopes"):
        list(reader.read(request_of(resources, scopes), batch))


def test_parts_without_spans_let_others_have_the_loop() -> None:
    """It yielded after so many spans, and these have none."""
    reader, batch = SpanReader((TargetBinding(),)), Batch(Recorder(), 5.0, 0)
    assert list(reader.read(request_of(5, 1), batch, 4)) == [None, None]
