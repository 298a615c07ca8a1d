"""What a request's body says about its size: model, lengths, counts. Text is measured, never kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_MAX_NAME = 256
_MAX_COUNT = 2**31 - 1
MEDIA = frozenset(
    "image_url input_audio audio_url video_url image audio video file file_data source data url b64_json "
    "image_embeds prompt_embeds role type id detail".split()
)
TEXT = frozenset(
    "messages prompt input inputs instructions system tools functions text query queries documents "
    "text_1 text_2 data_1 data_2 items suffix chat_history message texts".split()
)
TOKEN_IDS = ("prompt", "input", "inputs", "input_ids", "prompt_token_ids", "token_ids")
_SEQUENCES = ("prompt", "input", "inputs", "text", "input_ids", "texts")
NESTED = ("sampling_params", "parameters")
LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens")
_MULTIPART_BYTES = 4096
_PART_HEADER_BYTES = 512


@dataclass(slots=True)
class Facts:
    """A request as its ticket sees it. Zero means unknown."""

    model: str = ""
    stream: bool = False
    max_tokens: int = 0
    n: int = 1
    prompt_bytes: int = 0
    prompt_tokens: int = 0


@dataclass(slots=True)
class Shape:
    """A JSON body reduced to its scalars and, per top-level field, text bytes, token ids and list items."""

    scalars: dict[str, Any] = field(default_factory=dict)
    text: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    """Length of the field's list of strings or lists; lists of objects count only for documents."""


def read_json(body: bytes) -> Facts:
    """Facts from a JSON body. Raises ValueError when it is not a JSON object."""
    data = json.loads(body)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - wrong content, not a wrong type in our code
    return facts_of(_shape_of(data))


def read_multipart(start: bytes) -> Facts:
    """Model and stream flag from the first 4 KiB of a multipart body; its size says nothing."""
    look = start[:_MULTIPART_BYTES]
    model = _part(look, b"model").decode("utf-8", "replace").strip()
    return Facts(model=model, stream=_part(look, b"stream").lower() in {b"true", b"1"})


def _part(look: bytes, name: bytes) -> bytes:
    """The value of a form field, up to 256 bytes; empty when it is not there. Linear: the caller chose the bytes."""
    label = b'name="' + name + b'"'
    at = look.find(label)
    while at > 0 and look[at - 1] not in b" ;\t":  # the end of another word, such as filename=
        at = look.find(label, at + len(label))
    if at < 0:
        return b""
    head = look.find(b"\r\n\r\n", at, at + _PART_HEADER_BYTES)
    end = look.find(b"\r\n", head + 4, head + 4 + _MAX_NAME + 2)
    return look[head + 4 : end] if 0 <= head < end else b""


def facts_of(shape: Shape) -> Facts:
    """The ticket's figures: sequences are prompts x max(n, best_of), pairs count their query each time."""
    scalars = shape.scalars
    model = scalars.get("model")
    prompts = max([1, *(shape.items.get(name, 0) for name in _SEQUENCES)])
    documents = max(shape.items.get(name, 0) for name in ("documents", "text_2", "data_2", "items"))
    total = sum(shape.text.values())
    if documents > 1:
        total += (documents - 1) * sum(shape.text.get(name, 0) for name in ("query", "text_1", "data_1"))
    choices = max(1, _whole(scalars.get("n")), _whole(scalars.get("best_of")))
    return Facts(
        model=_clean(model[:_MAX_NAME]) if isinstance(model, str) else "",
        stream=scalars.get("stream") is True,
        max_tokens=next((size for name in LENGTHS if (size := _whole(scalars.get(name)))), 0),
        n=min(_MAX_COUNT, max(prompts, documents) * choices),
        prompt_bytes=min(_MAX_COUNT, total),
        prompt_tokens=min(_MAX_COUNT, sum(shape.tokens.values())),
    )


def _shape_of(data: dict[str, Any]) -> Shape:
    shape = Shape()
    for name, value in data.items():
        if isinstance(value, (list, dict)):
            _measure(shape, name, value)
        elif isinstance(value, str) and name in TEXT:
            shape.text[name] = text_bytes(value)
        else:
            shape.scalars[name] = value
    return shape


def _measure(shape: Shape, name: str, value: list[Any] | dict[str, Any]) -> None:
    if name in NESTED and isinstance(value, dict):
        shape.scalars.update({k: v for k, v in value.items() if k in {*LENGTHS, "n", "best_of"}})
        return
    if isinstance(value, list) and value:
        if name in TOKEN_IDS and _measure_ids(shape, name, value):
            return
        if isinstance(value[0], (str, list)) or name in {"documents", "items"}:
            shape.items[name] = len(value)
    if name in TEXT:
        shape.text[name] = text_bytes(value)


def _measure_ids(shape: Shape, name: str, value: list[Any]) -> bool:
    if isinstance(value[0], int):
        shape.tokens[name] = len(value)
        return True
    if isinstance(value[0], list) and (not value[0] or isinstance(value[0][0], int)):
        shape.tokens[name] = sum(len(ids) for ids in value if isinstance(ids, list))
        shape.items[name] = len(value)
        return True
    return False


def text_bytes(value: Any) -> int:
    """UTF-8 bytes of all strings in a JSON value, without media and without the words of the format."""
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if not item.startswith("data:"):
                total += len(item) if item.isascii() else len(item.encode("utf-8", "surrogatepass"))
        elif isinstance(item, dict):
            stack += [inner for name, inner in item.items() if name not in MEDIA]
        elif isinstance(item, list):
            stack += item
    return total


def _clean(name: str) -> str:
    """Without lone surrogates, which JSON can write and protobuf cannot."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


def _whole(value: Any) -> int:
    """A positive whole number, else 0 (the engine will refuse what is neither)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 1 <= value <= _MAX_COUNT else 0
