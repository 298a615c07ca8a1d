"""The middleware as a guest: refusals, switches, faults of its own, wrong settings."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from admission.client.asgi import AdmissionMiddleware
from admission.client.errors import SettingsError
from admission.v1.types_pb2 import Decision, Ticket
from admission.vocabulary import Outcome, Reason, Verdict
from tests.admission.client.host import CHAT, Caller, Engine, Guarded, chunk, say, start
from tests.admission.client.sidecar import decision, refuse


def _outcomes(guarded: Guarded) -> list[Outcome]:
    return [Outcome(finish.outcome) for finish in guarded.sidecar.finishes]


async def _engine_error(receive: Any, send: Any, status: int) -> None:
    await receive()
    await start(send, status, b"application/json")
    await say(send, b'{"error": {"code": 1}}', more=False)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.QUEUE_FULL, 429),
        (Reason.TTFT_FORECAST, 429),
        (Reason.WATERMARK_KV, 429),
        (Reason.OUTAGE, 503),
        (Reason.DRAINING, 503),
        (Reason.NEVER_FITS, 400),
        (Reason.UNAUTHORIZED, 401),
    ],
)
async def test_refusals_have_status_and_headers(reason: Reason, status: int) -> None:
    """Before the engine sees anything; permanent ones do not invite to come back."""
    guarded = Guarded(policy=refuse(reason, position=7, detail="KV usage 0.98 over critical 0.97"))
    caller = await guarded.post()
    assert caller.status == status
    assert guarded.engine.scopes == []
    headers = caller.headers
    assert headers["x-tidegate-reason"] == reason.name
    permanent = reason in {Reason.NEVER_FITS, Reason.UNAUTHORIZED}
    assert ("retry-after" in headers) is not permanent
    assert (headers.get("x-should-retry") == "false") is permanent
    assert (headers.get("x-tidegate-scope") == "replica") is (status == 503)
    assert headers["x-tidegate-position"] == "7"
    error = caller.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "KV usage 0.98 over critical 0.97" in error["message"]
    assert int(headers["content-length"]) == len(caller.body)


async def test_retry_after_is_whole_seconds_and_milliseconds() -> None:
    """SDKs read retry-after-ms first; people and proxies read whole seconds, never 0."""

    def policy(ticket: Ticket) -> Decision:
        answer = decision(ticket.no, Verdict.REJECTED, Reason.DEADLINE)
        answer.retry_after.FromMilliseconds(2300)
        answer.expected_wait.FromMilliseconds(1500)
        return answer

    headers = (await Guarded(policy=policy).post()).headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("3", "2300")
    assert headers["x-tidegate-expected-wait-ms"] == "1500"


async def test_anthropic_callers_get_their_own_error_shape() -> None:
    """Their SDK looks for type and message in another place."""
    caller = await Guarded(policy=refuse(Reason.OUTAGE)).post(path="/v1/messages")
    body = caller.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "overloaded_error"


async def test_known_callers_that_may_not_are_forbidden() -> None:
    """401 asks for credentials; who has shown some gets 403."""
    caller = await Guarded(policy=refuse(Reason.UNAUTHORIZED)).post(headers={"authorization": "Bearer x"})
    assert caller.status == 403


async def test_without_a_sidecar_requests_run() -> None:
    """Fail open, with the local limit, and said in the client's own counters."""
    guarded = Guarded(local_limit=2)
    guarded.carrier.down = True
    caller = await guarded.post()
    assert caller.status == 200
    assert guarded.stats["admitted.client"] == 1
    assert guarded.stats["attach_failed"] >= 1


async def test_without_a_sidecar_the_local_limit_rules() -> None:
    """A dead sidecar must not be a stampede."""
    hold = asyncio.Event()

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await hold.wait()
        await _engine_error(receive, send, 200)

    guarded = Guarded(Engine(script), local_limit=2)
    guarded.carrier.down = True
    tasks = [asyncio.create_task(guarded.post()) for _ in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert guarded.engine.running == 2
    hold.set()
    callers = await asyncio.gather(*tasks)
    assert sorted(caller.status for caller in callers) == [200, 200, 429]


async def test_off_by_setting_touches_nothing() -> None:
    """No stream, no reading of bodies."""
    guarded = Guarded(off=True)
    await guarded.post()
    assert guarded.carrier.streams == []
    assert len(guarded.engine.bodies) == 1


async def test_off_by_file_reaches_the_next_request(tmp_path: Path) -> None:
    """The switch that works when everything else is broken."""
    file = tmp_path / "off"
    guarded = Guarded(off_file=str(file), policy=refuse(Reason.OUTAGE))
    assert (await guarded.post()).status == 503
    file.touch()
    guarded.app.client._switch._look_at = 0.0  # half a second later
    assert (await guarded.post()).status == 200


async def test_a_fault_of_our_own_lets_the_request_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever we do wrong, the server keeps serving; it is counted."""
    guarded = Guarded()
    monkeypatch.setattr(guarded.app._tickets, "ticket", lambda *_: 1 / 0)
    caller = await guarded.post()
    assert caller.status == 200
    assert json.loads(guarded.engine.bodies[0]) == CHAT
    await guarded.post()
    assert guarded.app.client._counters.get("contained") == 2


async def test_a_fault_in_counting_does_not_touch_the_answer() -> None:
    """Bodies that are not what their content type says pass on."""

    async def script(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send, 200, b"text/event-stream")
        await say(send, b"data: {broken\n\n")
        await say(send, chunk({"content": "x"}))
        await say(send, b"", more=False)

    guarded = Guarded(Engine(script))
    caller = await guarded.post()
    await guarded.settle()
    assert caller.body.startswith(b"data: {broken")
    assert _outcomes(guarded) == [Outcome.OK]
    assert guarded.stats["contained.answer"] == 1


async def test_metrics_are_shown_only_where_asked_for() -> None:
    """Off by default; on its path the client's own counters, and only for GET."""
    guarded = Guarded(metrics_path="/tidegate/metrics")
    await guarded.post()
    caller = await guarded.call(Caller(b"", "/tidegate/metrics", "GET"))
    assert caller.status == 200
    assert 'tidegate_client_admitted_total{by="sidecar"} 1' in caller.body.decode()
    assert "tidegate_client_missed_total 0" in caller.body.decode()
    plain = Guarded()
    await plain.call(Caller(b"", "/tidegate/metrics", "GET"))
    assert len(plain.engine.scopes) == 1


async def test_bad_settings_fail_the_start_with_one_line() -> None:
    """Every problem at once, in the words of the environment."""
    guarded = AdmissionMiddleware(Engine(), address="nowhere", fail="maybe", colour="red")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await guarded({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"
    text = sent[0]["message"]
    assert "\n" not in text
    assert all(word in text for word in ("TIDEGATE_ADDRESS", "TIDEGATE_FAIL", "colour"))
    with pytest.raises(SettingsError):
        await guarded({"type": "http", "method": "GET", "path": "/"}, receive, send)


async def test_a_lost_sidecar_is_logged_where_the_root_shows_only_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM sets the root logger to ERROR; that nobody guards the engine must be seen all the same."""
    logger = logging.getLogger("tidegate.client")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.ERROR)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    guarded = Guarded()
    await guarded.post()
    guarded.carrier.streams[0].end()
    await guarded.settle()
    assert "lost the sidecar" in caplog.text
    await guarded.app.client.close()


async def test_closing_says_goodbye() -> None:
    """A half-close frees at the sidecar what is still held."""
    guarded = Guarded()
    await guarded.post()
    await guarded.app.client.close()
    assert guarded.carrier.streams[0].half_closed
