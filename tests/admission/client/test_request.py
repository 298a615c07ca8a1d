"""Every request shape of the guarded routes, measured without keeping its text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.client.request import Facts, read_json, read_multipart
from admission.client.skim import skim, skim_json

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
SHAPES: dict[str, tuple[dict[str, Any], Facts]] = {
    "chat": (CHAT, Facts("m", False, 0, 1, 5)),
    "chat streamed": ({**CHAT, "stream": True, "max_tokens": 7}, Facts("m", True, 7, 1, 5)),
    "chat, newer length": ({**CHAT, "max_completion_tokens": 9, "max_tokens": 7}, Facts("m", False, 9, 1, 5)),
    "chat, n > 1": ({**CHAT, "n": 4}, Facts("m", False, 0, 4, 5)),
    "chat, null length": ({**CHAT, "max_tokens": None, "n": None}, Facts("m", False, 0, 1, 5)),
    "chat with parts": (
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}, IMAGE]}]},
        Facts("m", False, 0, 1, 5),
    ),
    "chat with tools": (
        {**CHAT, "tools": [{"type": "function", "function": {"name": "get", "description": "abc"}}]},
        Facts("m", False, 0, 1, 11),
    ),
    "completion": ({"model": "m", "prompt": "hello", "max_tokens": 3}, Facts("m", False, 3, 1, 5)),
    "completion, best_of": (
        {"model": "m", "prompt": "hello", "n": 2, "best_of": 5},
        Facts("m", False, 0, 5, 5),
    ),
    "completion, prompt list": (
        {"model": "m", "prompt": ["hello", "you"], "n": 2},
        Facts("m", False, 0, 4, 8),
    ),
    "completion, token ids": ({"model": "m", "prompt": [1, 2, 3]}, Facts("m", False, 0, 1, 0, 3)),
    "completion, token id lists": ({"model": "m", "prompt": [[1, 2], [3]]}, Facts("m", False, 0, 2, 0, 3)),
    "responses": (
        {"model": "m", "input": "hello", "instructions": "be", "max_output_tokens": 8, "stream": True},
        Facts("m", True, 8, 1, 7),
    ),
    "responses, items": (
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]},
        Facts("m", False, 0, 1, 5),
    ),
    "messages": (
        {"model": "m", "system": "be", "max_tokens": 6, "messages": [{"role": "user", "content": "hello"}]},
        Facts("m", False, 6, 1, 7),
    ),
    "messages, image": (
        {
            "model": "m",
            "max_tokens": 6,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "base64", "data": "A" * 999}}],
                }
            ],
        },
        Facts("m", False, 6, 1, 0),
    ),
    "embeddings": ({"model": "m", "input": "hello"}, Facts("m", False, 0, 1, 5)),
    "embeddings, list": ({"model": "m", "input": ["hello", "you", "!"]}, Facts("m", False, 0, 3, 9)),
    "embeddings, token id lists": (
        {"model": "m", "input": [[1, 2], [3, 4, 5]]},
        Facts("m", False, 0, 2, 0, 5),
    ),
    "score": ({"model": "m", "text_1": "ab", "text_2": ["hello", "you"]}, Facts("m", False, 0, 2, 12)),
    "rerank": ({"model": "m", "query": "ab", "documents": ["hello", "you"]}, Facts("m", False, 0, 2, 12)),
    "generate (SGLang)": (
        {"text": "hello", "sampling_params": {"max_new_tokens": 5}, "stream": True},
        Facts("", True, 5, 1, 5),
    ),
    "generate (vLLM ids)": (
        {"model": "m", "token_ids": [1, 2, 3, 4], "sampling_params": {"max_tokens": 5, "n": 2}},
        Facts("m", False, 5, 2, 0, 4),
    ),
    "wrong types": (
        {"model": 7, "max_tokens": "many", "n": True, "stream": "yes", "messages": 5},
        Facts("", False, 0, 1, 0),
    ),
    "negative and huge": (
        {"model": "m" * 999, "max_tokens": -4, "n": 10**30},
        Facts("m" * 256, False, 0, 1, 0),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_is_read(name: str) -> None:
    """The cost of a ticket is only as true as its figures."""
    body, expected = SHAPES[name]
    assert read_json(json.dumps(body).encode()) == expected


@pytest.mark.parametrize("name", SHAPES)
def test_a_large_body_is_read_the_same_in_slices(name: str) -> None:
    """Above 256 KiB another reader is used; it must not see another request."""
    body, expected = SHAPES[name]
    for text in (json.dumps(body), json.dumps(body, indent=2), json.dumps(body, separators=(",", ":"))):
        assert skim(text.encode()) == expected


def test_lone_surrogates_do_not_get_past_admission() -> None:
    """A name that cannot be sent would let the request through as a contained fault."""
    facts = read_json(b'{"model": "m\\ud800", "prompt": "\\udfff"}')
    assert facts.model == "m?"
    assert facts.prompt_bytes == 3


def test_text_is_counted_in_bytes() -> None:
    """A byte-per-token ratio is learned: characters would make it depend on the script."""
    body = json.dumps({"prompt": "中文é"}, ensure_ascii=False).encode()
    assert read_json(body).prompt_bytes == skim(body).prompt_bytes == 8


_TEXT = st.text(alphabet="abc xyz,:{}[]", max_size=12)
_CONTENT = st.one_of(
    _TEXT,
    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": _TEXT}), max_size=3),
    st.lists(
        st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.dictionaries(_TEXT, _TEXT)})
    ),
)
_BODY = st.fixed_dictionaries(
    {},
    optional={
        "model": _TEXT,
        "stream": st.booleans(),
        "max_tokens": st.integers(-3, 5000),
        "n": st.integers(0, 8),
        "temperature": st.floats(0, 2),
        "messages": st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": _CONTENT})),
        "prompt": st.one_of(
            _TEXT,
            st.lists(_TEXT),
            st.lists(st.integers(0, 99)),
            st.lists(st.lists(st.integers(0, 9), min_size=1)),
        ),
        "documents": st.lists(st.one_of(_TEXT, st.fixed_dictionaries({"text": _TEXT}))),
        "query": _TEXT,
        "metadata": st.dictionaries(_TEXT, st.one_of(_TEXT, st.integers(), st.none(), st.lists(_TEXT))),
        "stop": st.lists(_TEXT),
    },
)


@given(body=_BODY)
@settings(max_examples=300, deadline=None)
def test_both_readers_agree(body: dict[str, Any]) -> None:
    """Any body without escapes gives the same facts either way."""
    text = json.dumps(body, ensure_ascii=False).encode()
    assert skim(text) == read_json(text)


@given(body=st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_value_error(body: bytes) -> None:
    """Bad bodies are the engine's to refuse; here they are one typed fault."""
    for reader in (read_json, skim):
        try:
            reader(body)
        except ValueError:
            continue


@pytest.mark.parametrize("body", [b"", b"[1]", b'"x"', b"{", b'{"a": "b', b'{"prompt": [1, 2', b"null"])
def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    """By name."""
    with pytest.raises(ValueError, match=r".*"):
        read_json(body)
    with pytest.raises(ValueError, match=r".*"):
        skim(body)


def test_escapes_do_not_end_a_string() -> None:
    """Code and JSON inside prompts are full of escaped quotes."""
    text = 'say \\ "no" \\" {"prompt": [1,2]} \\\\'
    body = json.dumps({"model": "m", "prompt": text, "max_tokens": 3}).encode()
    facts = skim(body)
    assert (facts.model, facts.max_tokens, facts.prompt_tokens) == ("m", 3, 0)
    assert facts.prompt_bytes >= len(text)


async def test_a_large_body_gives_way_to_the_loop() -> None:
    """8 MiB of small messages would hold the loop for 70 ms in one piece."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": 'a"b'}] * 20_000}).encode()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    facts = await skim_json(body)
    task.cancel()
    assert facts.prompt_bytes == 20_000 * 4
    assert turns > 50


def test_a_body_of_very_many_parts_is_measured_by_its_beginning() -> None:
    """150,000 messages would cost a second of the server's processor; a good guess costs a tenth."""
    messages = [{"role": "user", "content": "hello"}] * 150_000
    body = json.dumps({"messages": messages, "model": "m", "max_tokens": 7, "stream": True}).encode()
    facts = skim(body)
    assert (facts.model, facts.max_tokens, facts.stream) == ("m", 7, True)
    assert facts.prompt_bytes == pytest.approx(750_000, rel=0.02)


def test_multipart_tells_model_and_stream() -> None:
    """Of an audio upload only the small fields in front are looked at."""
    start = (
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
        b'--x\r\nContent-Disposition: form-data; name="stream"\r\nContent-Type: text/plain\r\n\r\ntrue\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
    )
    assert read_multipart(start) == Facts("whisper", True)
    assert read_multipart(b"\x00\xff") == Facts()
