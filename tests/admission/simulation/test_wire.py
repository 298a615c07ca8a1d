"""Request bodies in every shape, and the events that answer them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admission.simulation.standin.wire import Ask, BadRequestError, Voice, parse


def ask(document: Any, *, chat: bool = False, hidden: int | None = None, context: int = 1000) -> Ask:
    """Parse a JSON document."""
    return parse(json.dumps(document).encode(), chat=chat, hidden_output=hidden, context_tokens=context)


def events(text: str) -> list[dict[str, Any]]:
    """The JSON of each event."""
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


@pytest.mark.parametrize(
    ("prompt", "lengths"),
    [
        ("abcdefgh", (2,)),
        ("abcdefghi", (3,)),
        ("", (1,)),
        ([1, 2, 3], (3,)),
        (["abcd", "abcdefgh"], (1, 2)),
        ([[1, 2, 3], [4]], (3, 1)),
    ],
)
def test_prompt_shapes_have_their_length(prompt: Any, lengths: tuple[int, ...]) -> None:
    """Texts, lists of texts and token ids: each is one sequence of its own length."""
    assert ask({"prompt": prompt}).prompts == lengths


def test_n_answers_are_n_sequences() -> None:
    """Two prompts with n=3 are six sequences, and usage counts each prompt once."""
    found = ask({"prompt": ["abcd", "abcdefgh"], "n": 3, "max_tokens": 5})
    assert found.prompts == (1, 1, 1, 2, 2, 2)
    usage = json.loads(Voice(found, "id", "m").answer())["usage"]
    assert usage == {"prompt_tokens": 3, "completion_tokens": 30, "total_tokens": 33}


def test_chat_counts_texts_and_pictures() -> None:
    """A message may be a text or a list of parts; a picture has a fixed price."""
    parts = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [{"role": "system", "content": "abcd"}, {"role": "user", "content": parts}]
    assert ask({"messages": messages}, chat=True).prompts == (1 + 1 + 256,)


@pytest.mark.parametrize(
    ("limit", "hidden", "output", "reason"),
    [
        ({}, None, 16, "length"),
        ({"max_tokens": 40}, None, 40, "length"),
        ({"max_tokens": 40}, 25, 25, "stop"),
        ({"max_tokens": 40}, 60, 40, "length"),
        ({"max_completion_tokens": 7}, None, 7, "length"),
        ({}, 5000, 999, "length"),
    ],
)
def test_answer_length(limit: dict[str, int], hidden: int | None, output: int, reason: str) -> None:
    """The hidden length rules, max_tokens and the context cap it, and the finish reason tells which."""
    found = ask({"prompt": "abcd", **limit}, hidden=hidden)
    assert (found.output_tokens, found.finish_reason) == (output, reason)


@pytest.mark.parametrize(
    ("document", "chat", "says"),
    [
        ([], False, "not a JSON object"),
        ({}, False, "prompt must be"),
        ({"prompt": 5}, False, "prompt must be"),
        ({"prompt": []}, False, "prompt must be"),
        ({"messages": []}, True, "messages must be"),
        ({"messages": "hi"}, True, "messages must be"),
        ({"prompt": "a", "n": 0}, False, "n must be"),
        ({"prompt": "a", "max_tokens": "many"}, False, "max_tokens must be"),
        ({"prompt": "a", "n": 500}, False, "at most 128"),
        ({"prompt": "a", "max_tokens": 1000}, False, "maximum context length is 1000"),
        ({"prompt": "a" * 4004}, False, "maximum context length is 1000"),
    ],
)
def test_bad_bodies_are_refused_with_a_reason(document: Any, chat: bool, says: str) -> None:
    """What no engine would take is a 400 that says why."""
    with pytest.raises(BadRequestError, match=says):
        ask(document, chat=chat)


def test_garbage_is_refused() -> None:
    """Bytes that are not JSON."""
    with pytest.raises(BadRequestError, match="not JSON"):
        parse(b"\xff{", chat=False, hidden_output=None, context_tokens=10)


@pytest.mark.parametrize("chat", [False, True])
def test_events_are_openai_shaped(chat: bool) -> None:
    """Tokens, role chunk and usage parse as what an OpenAI client expects."""
    body = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    voice = Voice(ask({**body, "max_tokens": 3}, chat=chat), "id-1", "m")
    first, last = events(voice.tokens(0, 2, finished=False) + voice.tokens(0, 1, finished=True))
    assert (first["id"], first["model"]) == ("id-1", "m")
    choice = first["choices"][0]
    assert (choice["delta"]["content"] if chat else choice["text"]) == " tok tok"
    assert (choice["finish_reason"], last["choices"][0]["finish_reason"]) == (None, "length")
    (usage,) = events(voice.usage_event())
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    if chat:
        (role,) = events(voice.role(0))
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
