"""Requests made to hold up the server, or to get past admission by a fault of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission.client.request import read_json, read_multipart
from admission.client.skim import _Scan, skim
from admission.vocabulary import Mode
from tests.admission.client.host import CHAT, Caller, Guarded

MIB = 1024 * 1024
MODEL = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'


def _slices(body: bytes) -> int:
    """How often the reader gives way to the loop."""
    scan, slices = _Scan(body).run(), 0
    try:
        for _ in scan:
            slices += 1
    except ValueError:
        pass
    return slices


def test_only_the_first_bytes_of_a_multipart_body_are_looked_at() -> None:
    """64 KiB of unfinished headers once held the loop for two seconds."""
    assert read_multipart(b"-" * 4000 + MODEL).model == "whisper"
    assert read_multipart(b"-" * 4100 + MODEL).model == ""
    assert read_multipart(b'name="model"\r\n' * 4600).model == ""


@pytest.mark.parametrize(
    ("header", "model"),
    [
        (b'; name="model"\r\nContent-Type: text/plain', "whisper"),
        (b'; name="model"\r\nX: ' + b"y" * 600, ""),
        (b'; name="file"; filename="model"', ""),
        (b'; name="model_name"', ""),
    ],
)
def test_the_model_is_read_from_one_short_part_header(header: bytes, model: str) -> None:
    """Names that only end or begin alike are other fields."""
    assert read_multipart(b"--x\r\nA: form-data" + header + b"\r\n\r\nwhisper\r\n--x--").model == model


@pytest.mark.parametrize("value", [b"", b"w" * 300 + b"\r\n", b"never ended"])
def test_a_model_that_is_empty_long_or_cut_off_is_none(value: bytes) -> None:
    """Half a name would be the name of another model."""
    assert read_multipart(MODEL.replace(b"whisper\r\n", value)).model == ""


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"' + b"\\" * (4 * MIB) + b'"}',
        b'{"prompt":"' + b'\\"' * 20_000 + b'"}',
        b'{"n":' + b"1" * (4 * MIB) + b"}",
        b"{" + b" " * (4 * MIB) + b"}",
    ],
    ids=["backslashes", "escaped quotes", "digits", "spaces"],
)
def test_a_large_body_of_one_kind_of_byte_gives_way(body: bytes) -> None:
    """Four MiB of backslashes once took .7 s in one piece."""
    assert _slices(body) >= 10


@given(runs=st.lists(st.tuples(st.integers(0, 200), st.sampled_from('"a')), max_size=6))
@example(runs=[(64, '"')])
@example(runs=[(63, '"'), (575, '"')])
@example(runs=[(300_001, '"')])
def test_backslashes_do_not_hide_the_end_of_a_string(runs: list[tuple[int, str]]) -> None:
    """What follows a prompt full of them is read as the engine will read it."""
    text = "".join("\\" * count + mark for count, mark in runs)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').encode()
    body = b'{"prompt": "' + escaped + b'", "max_tokens": 7}'
    assert read_json(body).max_tokens == skim(body).max_tokens == 7


@pytest.mark.parametrize("length", ["9" * 5000, "1" + "0" * 18])
async def test_an_absurd_length_is_too_long(length: str) -> None:
    """Python refuses to read numbers of thousands of digits; the request once ran unmetered for it."""
    guarded = Guarded()
    await guarded.post(headers={"content-length": length})
    assert len(guarded.sidecar.tickets) == 1
    assert guarded.stats["unread_bodies.length"] == 1
    assert not any(name.startswith("contained") for name in guarded.stats)


@pytest.mark.parametrize("length", ["0" * 4400 + "2", "9" * 5000, "-1", ""])
async def test_no_length_gets_past_a_closed_policy(length: str) -> None:
    """Closed means closed."""
    guarded = Guarded(fail="closed")
    guarded.carrier.down = True
    caller = await guarded.call(Caller(b"{}", headers={"content-length": length}))
    assert caller.status == 503
    assert guarded.engine.scopes == []


def _fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fault of ours")


@pytest.mark.parametrize("broken", ["_facts", "_tickets.ticket"])
async def test_a_fault_in_reading_still_asks(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that we fail to measure takes the class's mean cost, as one that we do not read."""
    guarded = Guarded(target="gpu-a")
    owner, _, name = broken.rpartition(".")
    monkeypatch.setattr(guarded.app._tickets if owner else guarded.app, name, _fail)
    caller = await guarded.post()
    await guarded.settle()
    assert caller.status == 200
    ticket = guarded.sidecar.tickets[0]
    assert (ticket.endpoint, ticket.target) == ("/v1/chat/completions", "gpu-a")
    assert len(guarded.sidecar.finishes) == 1
    assert guarded.app.client._counters.get("contained") == 1


@pytest.mark.parametrize(("fail", "status"), [("open", 200), ("closed", 503)])
@pytest.mark.parametrize("deep", [True, False])
async def test_a_fault_in_asking_goes_by_the_fail_policy(
    fail: str, status: int, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who prefers no answer to an unguarded engine means our faults as well."""
    guarded = Guarded(fail=fail)
    await guarded.post()
    client = guarded.app.client
    monkeypatch.setattr(client._running().session if deep else client, "acquire" if deep else "ask", _fail)
    caller = await guarded.post()
    assert caller.status == status
    assert len(guarded.engine.bodies) == (2 if fail == "open" else 1)


async def test_a_fault_in_asking_refuses_nothing_in_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadow promises that."""
    guarded = Guarded(fail="closed")
    guarded.sidecar.mode = Mode.SHADOW
    await guarded.post()
    monkeypatch.setattr(guarded.app.client._running().session, "acquire", _fail)
    assert (await guarded.post(CHAT)).status == 200
