"""What the middleware guards, and how it reads a request without consuming it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admission.client.routes import GUARDED
from tests.admission.client.host import CHAT, Caller, Guarded


async def test_a_streamed_request_is_admitted_counted_and_given_back() -> None:
    """The plain life: nothing of the request or the answer is changed."""
    guarded = Guarded()
    caller = await guarded.post()
    await guarded.settle()
    assert json.loads(guarded.engine.bodies[0]) == CHAT
    assert caller.body.count(b"data: ") == 6
    assert guarded.sidecar.held == set()
    finish = guarded.sidecar.finishes[0]
    assert (finish.outcome, finish.prompt_tokens, finish.cached_tokens, finish.output_tokens) == (1, 11, 4, 3)
    assert finish.HasField("ttft")
    assert guarded.sidecar.progress[finish.no] >= 3


async def test_the_ticket_says_what_the_request_says() -> None:
    """Model, lengths, counts, class, tenant, ids."""
    guarded = Guarded(tenant_header="x-team", target="gpu-a")
    headers = {
        "x-tidegate-class": "Batch",
        "x-team": "blue",
        "x-request-id": "r-1",
        "traceparent": "00-aa-bb-01",
    }
    await guarded.post({**CHAT, "max_tokens": 9, "n": 2}, headers=headers)
    ticket = guarded.sidecar.tickets[0]
    assert (ticket.model, ticket.max_tokens, ticket.n, ticket.stream, ticket.prompt_bytes) == (
        "m",
        9,
        2,
        True,
        5,
    )
    assert (ticket.priority_class, ticket.tenant, ticket.target) == ("batch", "blue", "gpu-a")
    assert (ticket.request_id, ticket.traceparent) == ("r-1", "00-aa-bb-01")
    assert ticket.endpoint == "/v1/chat/completions"


async def test_tenant_headers_are_ignored_unless_set() -> None:
    """A caller cannot name itself into another's share."""
    guarded = Guarded()
    await guarded.post(headers={"x-team": "blue", "authorization": "Bearer sk-1"})
    assert guarded.sidecar.tickets[0].tenant == ""


async def test_api_keys_leave_only_as_keyed_hashes() -> None:
    """The key itself is never sent; equal keys are one tenant (once served)."""
    guarded = Guarded(tenant_secret="pepper")
    for key in ("sk-1", "sk-2", "sk-1", "sk-1", "sk-2"):
        await guarded.post(headers={"authorization": f"Bearer {key}"})
    first, second, third = (ticket.tenant for ticket in guarded.sidecar.tickets[2:])
    assert first == second != third
    assert "sk-1" not in first


@pytest.mark.parametrize("path", sorted(GUARDED))
async def test_every_guarded_route_asks(path: str) -> None:
    """The allow-list, one by one."""
    guarded = Guarded()
    await guarded.post(path=path)
    assert guarded.sidecar.tickets[0].endpoint == path


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("POST", "/tokenize"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/chat/completions"),
        ("OPTIONS", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/responses/abc/cancel"),
    ],
)
async def test_everything_else_passes_untouched(method: str, path: str) -> None:
    """The very same objects reach the application: no overhead and no surprise."""
    seen: list[Any] = []

    async def engine(*args: Any) -> None:
        seen.extend(args)

    guarded = Guarded(engine)
    caller = Caller(b"", path, method)
    receive, send = caller.receive, caller.send
    await guarded.app(caller.scope, receive, send)
    assert seen[0] is caller.scope
    assert seen[1] is receive
    assert seen[2] is send
    assert guarded.carrier.streams == []


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_protocols_pass(kind: str) -> None:
    """They have no `method`, and are not ours."""
    guarded = Guarded()
    seen: list[str] = []

    async def engine(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    guarded.app.app = engine
    await guarded.app({"type": kind, "path": "/v1/chat/completions"}, None, None)  # type: ignore[arg-type]
    assert seen == [kind]


@pytest.mark.parametrize(
    ("path", "scope", "settings"),
    [
        ("/app/v1/completions", {"root_path": "/app"}, {}),
        ("/llm/v1/completions", {}, {"prefix": "/llm/"}),
        ("/app/llm/v1/completions", {"root_path": "/app"}, {"prefix": "/llm"}),
        ("/custom", {}, {"routes": "/custom, /other"}),
    ],
)
async def test_root_path_prefix_and_more_routes(path: str, scope: Any, settings: Any) -> None:
    """Ray Serve and mounted applications put paths in front."""
    guarded = Guarded(**settings)
    await guarded.call(Caller(b"{}", path, **scope))
    assert len(guarded.sidecar.tickets) == 1


async def test_a_body_in_parts_is_played_back() -> None:
    """The application sees the parts as they came."""
    text = json.dumps(CHAT).encode()
    guarded = Guarded()
    await guarded.call(Caller([text[:7], text[7:20], text[20:], b""]))
    assert json.loads(guarded.engine.bodies[0]) == CHAT
    assert guarded.sidecar.tickets[0].model == "m"


@pytest.mark.parametrize("with_length", [True, False])
async def test_bodies_over_the_bound_are_not_read_and_not_lost(with_length: bool) -> None:
    """8 MiB and more take the class's mean cost, whether the length is told or not."""
    parts = [b'{"model": "m", "x": "'] + [b"y" * 1_000_000] * 9 + [b'"}']
    headers = {"content-length": str(sum(map(len, parts)))} if with_length else {}
    guarded = Guarded()
    caller = Caller(list(parts), headers=headers)
    await guarded.call(caller)
    ticket = guarded.sidecar.tickets[0]
    assert (ticket.model, ticket.prompt_bytes, ticket.n) == ("", 0, 1)
    assert guarded.engine.bodies[0] == b"".join(parts)
    assert guarded.stats["unread_bodies.length"] == 1


async def test_a_body_just_under_the_bound_is_read() -> None:
    """The bound is 8 MiB, not less."""
    body = json.dumps({"model": "m", "prompt": "y" * (8 * 1024 * 1024 - 100)}).encode()
    guarded = Guarded()
    await guarded.call(Caller(body, headers={"content-length": str(len(body))}))
    assert guarded.sidecar.tickets[0].prompt_bytes == 8 * 1024 * 1024 - 100


async def test_multipart_takes_the_mean_cost() -> None:
    """Audio: only the model is read."""
    body = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--x--'
    guarded = Guarded()
    headers = {"content-type": "multipart/form-data; boundary=x"}
    await guarded.call(Caller([body, b"more"], "/v1/audio/transcriptions", headers=headers))
    ticket = guarded.sidecar.tickets[0]
    assert (ticket.model, ticket.prompt_bytes, ticket.max_tokens) == ("whisper", 0, 0)
    assert guarded.engine.bodies[0] == body + b"more"


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"model": ', b"\xff\xfe", b"[" * 100_000])
async def test_bad_bodies_reach_the_engine(body: bytes) -> None:
    """Whether a body is bad is the engine's to say."""
    guarded = Guarded()
    caller = await guarded.call(Caller(body))
    assert caller.status == 200
    assert guarded.engine.bodies == [body]
    assert guarded.stats["unread_bodies.not_json"] == 1
