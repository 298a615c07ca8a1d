"""Answers as they pass: first token, chunks, usage and how they end, in every event shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.client.calls import Usage
from admission.client.stream import AnswerReader, outcome_of_status
from admission.vocabulary import Outcome


def _data(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _chat(**delta: Any) -> bytes:
    return _data({"choices": [{"index": 0, "delta": delta}]})


def _typed(event: dict[str, Any]) -> bytes:
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\n" + _data(event)


ROLE = _chat(role="assistant", content="")
DONE = b"data: [DONE]\n\n"
USAGE = _data(
    {
        "choices": [],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
    }
)
ANTHROPIC = [
    _typed(
        {"type": "message_start", "message": {"usage": {"input_tokens": 11, "cache_read_input_tokens": 4}}}
    ),
    _typed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    _typed({"type": "ping"}),
    *[
        _typed({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}})
        for _ in range(3)
    ],
    _typed({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}),
    _typed({"type": "message_stop"}),
]
RESPONSES = [
    _typed({"type": "response.created", "response": {"error": None, "usage": None}}),
    *[_typed({"type": "response.output_text.delta", "delta": "x"}) for _ in range(3)],
    _typed({"type": "response.output_text.done", "text": "xxx"}),
    _typed(
        {
            "type": "response.completed",
            "response": {
                "error": None,
                "usage": {
                    "input_tokens": 11,
                    "input_tokens_details": {"cached_tokens": 4},
                    "output_tokens": 3,
                },
            },
        }
    ),
]
STREAMS = {
    "chat": [ROLE, *[_chat(content="x")] * 3, USAGE, DONE],
    "completions": [*[_data({"choices": [{"text": "x"}]})] * 3, USAGE, DONE],
    "messages": ANTHROPIC,
    "responses": RESPONSES,
}


@pytest.mark.parametrize("name", STREAMS)
def test_each_shape_is_counted_and_its_usage_taken(name: str) -> None:
    """Three output chunks each; frames that carry no output may add a little, never the half."""
    reader = AnswerReader(events=True)
    chunks = sum(reader.feed(body) for body in STREAMS[name])
    assert reader.first_token
    assert 3 <= chunks <= 5
    assert reader.usage() == Usage(11, 4, 3)
    assert reader.error_outcome() is None


@pytest.mark.parametrize("name", STREAMS)
def test_events_split_anywhere_before_the_first_token(name: str) -> None:
    """Frames and messages of ASGI need not agree."""
    whole = b"".join(STREAMS[name])
    for size in (1, 7, 64):
        reader = AnswerReader(events=True)
        for at in range(0, len(whole), size):
            reader.feed(whole[at : at + size])
        assert reader.first_token


@pytest.mark.parametrize(
    "body",
    [
        ROLE,
        _chat(role="assistant"),
        _chat(content=None),
        b": keep-alive\n\n",
        b"\n",
        _data({"choices": []}),
        _data({"choices": [{"text": ""}]}),
        _typed({"type": "message_start", "message": {}}),
        _typed({"type": "response.in_progress"}),
        DONE,
    ],
)
def test_what_is_no_output_is_no_first_token(body: bytes) -> None:
    """A role-only chunk or a keep-alive comes before prefill is done."""
    reader = AnswerReader(events=True)
    assert reader.feed(body) == 0
    assert not reader.first_token


@pytest.mark.parametrize(
    "body",
    [
        _chat(reasoning_content="hm"),
        _chat(reasoning="hm"),
        _chat(tool_calls=[{"index": 0, "function": {"name": "f"}}]),
        _typed({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}),
        _typed({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        _typed({"type": "response.function_call_arguments.delta", "delta": "{"}),
        _data({"text": "x"}),
        _data({"token": {"text": "x"}}),
        b'data:{"choices":[{"delta":{"content":"x"}}]}\r\n\r\n',
    ],
)
def test_reasoning_and_tool_calls_are_first_tokens(body: bytes) -> None:
    """The engine works for them as for content."""
    reader = AnswerReader(events=True)
    assert reader.feed(body) == 1
    assert reader.first_token


def test_many_events_in_one_body_are_all_counted() -> None:
    """Servers that batch their writes."""
    reader = AnswerReader(events=True)
    assert reader.feed(ROLE + _chat(content="x") * 5) == 5
    assert reader.feed(_chat(content="x") * 4) == 4


def test_text_that_looks_like_an_event_is_not_counted() -> None:
    """Newlines in JSON are escaped, so an event can only begin a line."""
    reader = AnswerReader(events=True)
    reader.feed(_chat(content="x"))
    assert reader.feed(_chat(content='data: {"a": 1}\ndata: {')) == 1


def test_an_event_stream_with_only_an_error_503_is_busy() -> None:
    """vLLM's own limit answers 200 and an error event: never a fast success."""
    reader = AnswerReader(events=True)
    body = _data({"error": {"message": "full", "type": "Service Unavailable", "param": None, "code": 503}})
    assert reader.feed(body) == 0
    reader.feed(DONE)
    assert reader.error_outcome() is Outcome.BUSY


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ({"error": {"code": 500, "message": "dead"}}, Outcome.ERROR),
        ({"error": {"code": 400, "message": "no"}}, Outcome.INVALID),
        ({"error": "anything"}, Outcome.ERROR),
        ({"type": "error", "error": {"type": "overloaded_error"}}, Outcome.BUSY),
        ({"type": "error", "code": "server_error"}, Outcome.ERROR),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}, Outcome.BUSY),
    ],
)
def test_errors_after_the_first_token_are_found(error: dict[str, Any], outcome: Outcome) -> None:
    """An engine that dies mid-stream ends the stream in good form."""
    reader = AnswerReader(events=True)
    for body in (_chat(content="x"), _chat(content="x"), _data(error), DONE):
        reader.feed(body)
    assert reader.error_outcome() is outcome


def test_the_word_error_in_text_is_no_error() -> None:
    """Models talk about errors."""
    reader = AnswerReader(events=True)
    for body in (_chat(content='{"error": 1}'), _chat(content='"error"'), DONE):
        reader.feed(body)
    assert reader.error_outcome() is None


def test_usage_of_a_plain_answer() -> None:
    """Also when the answer is long and the word usage stands in its text."""
    answer = {
        "choices": [{"message": {"content": 'he said "usage": {"prompt_tokens": 99}'}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": None},
    }
    reader = AnswerReader(events=False)
    whole = json.dumps(answer).encode()
    for at in range(0, len(whole), 50):
        assert reader.feed(whole[at : at + 50]) == 0
    assert reader.usage() == Usage(5, 0, 6)
    assert not reader.first_token


def test_usage_null_is_stepped_over() -> None:
    """OpenAI sends `usage: null` in each chunk but one."""
    reader = AnswerReader(events=True)
    reader.feed(_chat(content="x"))
    reader.feed(USAGE)
    reader.feed(_data({"choices": [], "usage": None}))
    assert reader.usage() == Usage(11, 4, 3)


@given(bodies=st.lists(st.binary(max_size=80), max_size=8))
def test_any_bytes_are_survived(bodies: list[bytes]) -> None:
    """An answer that is not what its content type says is passed on all the same."""
    for events in (True, False):
        reader = AnswerReader(events=events)
        for body in bodies:
            try:
                reader.feed(body)
            except (ValueError, RecursionError):
                continue
        reader.usage()
        reader.error_outcome()


def test_compressed_answers_are_counted_by_message() -> None:
    """Nothing is unpacked for counting."""
    reader = AnswerReader(events=True, opaque=True)
    assert [reader.feed(body) for body in (b"", b"\x1f\x8b", b"zz")] == [0, 1, 1]
    assert reader.usage() == Usage()
    assert reader.error_outcome() is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.OK),
        (400, Outcome.INVALID),
        (404, Outcome.INVALID),
        (429, Outcome.BUSY),
        (499, Outcome.ABORTED),
        (500, Outcome.ERROR),
        (503, Outcome.BUSY),
        (529, Outcome.BUSY),
    ],
)
def test_status_lines(status: int, outcome: Outcome) -> None:
    """The engine's own 'not now' is back-pressure, not a fault and not a fast success."""
    assert outcome_of_status(status) is outcome
