"""Reads an answer as it passes: when the first token came, how many chunks, how it ended, which usage it states."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from admission.client.calls import Usage
from admission.vocabulary import Outcome

_TAIL_MESSAGES = 4
_TAIL_BYTES = 64 * 1024
_MAX_LINE = 1024 * 1024
_USAGE_BYTES = 4096
_DECODER = json.JSONDecoder()
_DATA, _DELTA_EVENT, _ANTHROPIC = b"\ndata: {", b".delta\n", b"\nevent: content_block_delta"
_BUSY_CODES = frozenset({"429", "503", "529", "overloaded_error", "rate_limit_error", "rate_limit_exceeded"})


class AnswerReader:
    """One answer. `feed` is given each body and returns how many output chunks it held.

    Until the first token every event is looked into; after it, events are only counted.
    """

    def __init__(self, *, events: bool, opaque: bool = False) -> None:
        self.first_token = False
        self._events, self._opaque = events, opaque
        self._marker = _DATA
        self._head = _DATA[1:]
        self._line = b""
        self._named = False
        self._input = Usage()
        self._error: Any = None
        self._tail: deque[bytes] = deque(maxlen=_TAIL_MESSAGES)

    def feed(self, body: bytes) -> int:
        """Takes a body of the answer, returns the number of output chunks in it."""
        if self._opaque:
            self.first_token = self.first_token or bool(body)
            return 1 if body else 0
        self._tail.append(body)
        if not self._events:
            return 0
        if self.first_token:
            return body.count(self._marker) + body.startswith(self._head)
        return self._look(body)

    def _look(self, body: bytes) -> int:
        """Line by line until output is seen; the rest of the body is counted."""
        data = self._line + body
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end].rstrip(b"\r")
            start = end + 1
            if line.startswith(b"event:"):
                self._named = True
            elif line.startswith(b"data:") and self._event(line[5:].strip(), line):
                self.first_token, self._line = True, b""
                return 1 + data.count(self._marker, start - 1)
        self._line = data[start:]
        if len(self._line) > _MAX_LINE:
            self.first_token, self._line = True, b""
        return 0

    def _event(self, payload: bytes, line: bytes) -> bool:
        if not payload.startswith(b"{"):
            return False
        event = json.loads(payload)
        self._error = _error_of(event) or self._error
        if str(event.get("type", "")) == "message_start":
            self._input = _usage(event.get("message", {}).get("usage"))
        if not has_output(event):
            return False
        self._choose_marker(str(event.get("type", "")), line)
        return True

    def _choose_marker(self, kind: str, line: bytes) -> None:
        if kind.startswith("content_block") and self._named:
            self._marker = _ANTHROPIC
        elif kind.endswith(".delta") and self._named:
            self._marker = self._head = _DELTA_EVENT
            return
        elif line.startswith(b"data:{"):
            self._marker = b"\ndata:{"
        self._head = self._marker[1:]

    def usage(self) -> Usage:
        """What the end of the answer says about tokens; zeros when it says nothing."""
        if self._opaque:
            return Usage()
        tail = b"".join(self._tail)[-_TAIL_BYTES:]
        at = len(tail)
        while (at := tail.rfind(b'"usage":', 0, at)) >= 0:
            found = _usage(_object_at(tail, at + 8))
            if found.prompt_tokens or found.output_tokens:
                found.prompt_tokens = found.prompt_tokens or self._input.prompt_tokens
                found.cached_tokens = found.cached_tokens or self._input.cached_tokens
                return found
        return self._input

    def error_outcome(self) -> Outcome | None:
        """How an event stream that reported an error ended; None when it reported none."""
        if not self._events or self._opaque:
            return None
        error = self._error
        tail = b"".join(self._tail)
        if error is None and (b'"error"' in tail or b"response.failed" in tail):
            for line in tail[-_TAIL_BYTES:].split(b"\n"):
                error = (_error_of(_object_at(line, 5)) if line.startswith(b"data:") else None) or error
        return None if error is None else _outcome_of_error(error)


def outcome_of_status(status: int) -> Outcome:
    """What a status line says about an admitted request."""
    if status in {429, 503, 529}:
        return Outcome.BUSY
    if status == 499:
        return Outcome.ABORTED
    if status >= 500:
        return Outcome.ERROR
    return Outcome.INVALID if status >= 400 else Outcome.OK


def has_output(event: dict[str, Any]) -> bool:
    """Does this event carry output: content, reasoning or a tool call, not just a role?"""
    choices = event.get("choices")
    if isinstance(choices, list):
        return any(_choice_has_output(choice) for choice in choices if isinstance(choice, dict))
    kind = event.get("type")
    if isinstance(kind, str):
        return _typed_has_output(kind, event)
    return bool(event.get("text") or event.get("token") or event.get("generated_text"))


def _choice_has_output(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(value for name, value in delta.items() if name != "role")
    return bool(choice.get("text") or choice.get("token_ids"))


def _typed_has_output(kind: str, event: dict[str, Any]) -> bool:
    if kind == "content_block_start":
        block = event.get("content_block")
        return isinstance(block, dict) and block.get("type") in {"tool_use", "server_tool_use"}
    if kind == "content_block_delta":
        delta = event.get("delta")
        return isinstance(delta, dict) and any(value for name, value in delta.items() if name != "type")
    return kind.endswith(".delta") and bool(event.get("delta"))


def _object_at(data: bytes, at: int) -> Any:
    """The JSON value that starts at an offset, None when there is none (or it is longer than a usage is)."""
    text = data[at : at + _USAGE_BYTES].decode("utf-8", "replace").lstrip()
    try:
        return _DECODER.raw_decode(text)[0]
    except ValueError:
        return None


def _usage(value: Any) -> Usage:
    if not isinstance(value, dict):
        return Usage()
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    cached = (
        details.get("cached_tokens") if isinstance(details, dict) else value.get("cache_read_input_tokens")
    )
    return Usage(
        _count(value.get("prompt_tokens") or value.get("input_tokens")),
        _count(cached),
        _count(value.get("completion_tokens") or value.get("output_tokens")),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0


def _error_of(event: Any) -> Any:
    """The error that an event reports, None when it reports none."""
    if not isinstance(event, dict):
        return None
    if event.get("error"):
        return event["error"]
    kind = event.get("type") or event.get("object")
    if kind == "error":
        return event
    if kind == "response.failed":
        response = event.get("response")
        return (response.get("error") if isinstance(response, dict) else None) or event
    return None


def _outcome_of_error(error: Any) -> Outcome:
    if not isinstance(error, dict):
        return Outcome.ERROR
    names = {str(error.get("code")), str(error.get("type")), str(error.get("status_code"))}
    if names & _BUSY_CODES:
        return Outcome.BUSY
    code = str(error.get("code"))
    return Outcome.INVALID if code.isdigit() and 400 <= int(code) < 500 else Outcome.ERROR
