"""The OpenAI shapes: a request body becomes an Ask, tokens become events and answers.

The stand-in has no tokenizer: four bytes of text are one token, a list of token ids is as long as it is.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

BYTES_PER_TOKEN = 4
PICTURE_WORDS = 256
DEFAULT_OUTPUT_WORDS = {False: 16, True: 128}
OUTPUT_HEADER = b"x-standin-output-tokens"
"""The true length of the answer, hidden from whoever reads only the body."""

_WORD = " tok"
MAX_SEQUENCES = 128


class BadRequestError(ValueError):
    """A body that no engine would take; answered with 400."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for. One prompt may be asked for `n` answers."""

    chat: bool
    model: str
    prompts: tuple[int, ...]
    """Prompt lengths in tokens, one per sequence."""
    n: int
    output_tokens: int
    max_tokens: int | None
    finish_reason: str
    stream: bool
    include_usage: bool
    temperature: float | None
    top_p: float | None


def parse(body: bytes, *, chat: bool, hidden_output: int | None, context_tokens: int) -> Ask:
    """Read a request body.

    Args:
        body: JSON as it came.
        chat: the route was /v1/chat/completions.
        hidden_output: the answer's true length when the caller gave one.
        context_tokens: longest prompt plus answer.

    Raises:
        BadRequestError: with a line for the caller.
    """
    document = _document(body)
    prompts = _chat_prompt(document.get("messages")) if chat else _prompts(document.get("prompt"))
    n = _count(document, "n") or 1
    limit = _count(document, "max_completion_tokens") or _count(document, "max_tokens")
    if len(prompts) * n > MAX_SEQUENCES:
        raise BadRequestError(f"at most {MAX_SEQUENCES} sequences a request")
    room = context_tokens - max(prompts)
    if room < (limit or 1):
        raise BadRequestError(
            f"This model's maximum context length is {context_tokens} tokens. However, you requested "
            f"{max(prompts) + (limit or 1)} tokens"
        )
    wished = hidden_output or limit or DEFAULT_OUTPUT_WORDS[chat]
    output = min(wished, limit or room, room)
    options = document.get("stream_options") or {}
    return Ask(
        chat=chat,
        model=str(document.get("model", "")),
        prompts=tuple(prompt for prompt in prompts for _ in range(n)),
        n=n,
        output_tokens=output,
        max_tokens=limit,
        finish_reason="length" if hidden_output is None or output < wished else "stop",
        stream=bool(document.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        temperature=_number(document, "temperature"),
        top_p=_number(document, "top_p"),
    )


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequestError("the body is not a JSON object")
    return document


def _count(document: dict[str, Any], key: str) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequestError(f"{key} must be a positive integer")
    return value


def _number(document: dict[str, Any], key: str) -> float | None:
    value = document.get(key)
    return float(value) if isinstance(value, int | float) else None


def text_tokens(text: str) -> int:
    """Length of a text in tokens, at least 1."""
    return max(1, -(-len(text.encode()) // BYTES_PER_TOKEN))


def _prompts(prompt: Any) -> list[int]:
    match prompt:
        case str():
            return [text_tokens(prompt)]
        case [int(), *_]:
            return [len(prompt)]
        case [str() | list(), *_]:
            return [length for item in prompt for length in _prompts(item)]
        case _:
            raise BadRequestError("prompt must be a text, a list of texts, or lists of token ids")


def _chat_prompt(messages: Any) -> list[int]:
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise BadRequestError("messages must be a list of objects and not empty")
    return [sum(_content_tokens(message.get("content")) for message in messages)]


def _content_tokens(content: Any) -> int:
    if isinstance(content, list):
        return sum(_part_tokens(part) for part in content)
    return text_tokens(content) if isinstance(content, str) else 1


def _part_tokens(part: Any) -> int:
    text = part.get("text") if isinstance(part, dict) else None
    return text_tokens(text) if isinstance(text, str) else PICTURE_WORDS


class Voice:
    """Writes one request's events and answer. Built once a request, since most of an event never changes."""

    def __init__(self, ask: Ask, id: str, model: str) -> None:
        self._ask = ask
        kind = "chat.completion" if ask.chat else "text_completion"
        head = {"id": id, "object": kind, "created": int(time.time()), "model": model}
        self._head = head
        if ask.chat:
            head = {**head, "object": "chat.completion.chunk"}
        self._open = f"data: {json.dumps(head, separators=(',', ':'))[:-1]},"

    def role(self, index: int) -> str:
        """The chunk that only names the role: it carries no token."""
        delta = '{"role":"assistant","content":""}'
        return f'{self._open}"choices":[{{"index":{index},"delta":{delta},"finish_reason":null}}]}}\n\n'

    def tokens(self, index: int, count: int, finished: bool) -> str:
        """One event with `count` tokens."""
        text = _WORD * count
        said = f'"delta":{{"content":"{text}"}}' if self._ask.chat else f'"text":"{text}","logprobs":null'
        reason = f'"{self._ask.finish_reason}"' if finished else "null"
        return f'{self._open}"choices":[{{"index":{index},{said},"finish_reason":{reason}}}]}}\n\n'

    def usage_event(self) -> str:
        """The last event before [DONE] when usage was asked for."""
        return f'{self._open}"choices":[],"usage":{json.dumps(self._usage())}}}\n\n'

    def answer(self) -> bytes:
        """The whole answer of a request that does not stream."""
        text = _WORD * self._ask.output_tokens
        said = {"message": {"role": "assistant", "content": text}} if self._ask.chat else {"text": text}
        choices = [
            {"index": index, **said, "logprobs": None, "finish_reason": self._ask.finish_reason}
            for index in range(len(self._ask.prompts))
        ]
        return json.dumps({**self._head, "choices": choices, "usage": self._usage()}).encode()

    def _usage(self) -> dict[str, int]:
        prompt = sum(self._ask.prompts) // self._ask.n
        output = self._ask.output_tokens * len(self._ask.prompts)
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def error_body(message: str, kind: str, code: int) -> bytes:
    """An error in vLLM's shape."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()
