"""Measures a large JSON body in small slices, because `json.loads` would hold the event loop for 10 to 80 ms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator

from admission.client.request import LENGTHS, MEDIA, NESTED, TEXT, TOKEN_IDS, Facts, Shape, facts_of

_STRUCTURE = re.compile(rb'["{}\[\]]')
_SPACE = re.compile(rb"\s*")
_SCALAR = re.compile(rb"\s*:\s*(-?[0-9]+(?:\.[0-9]+)?|true|false)")
_NUMBER_STARTS = frozenset(b"-0123456789")
_SLICE_STEPS = 1500
_SLICE_BYTES = 256 * 1024
_MAX_PARTS = 150_000
_TAIL_BYTES = 4096
_TAIL_SCALAR = re.compile(
    rb'"(model|stream|n|best_of|max_tokens|max_completion_tokens|max_output_tokens)"\s*:\s*'
    rb'(?:"([^"\\]{1,256})"|(-?[0-9]+|true|false))'
)
_SHORT = 512
_DOCUMENTS = frozenset({"documents", "items"})


async def skim_json(body: bytes) -> Facts:
    """Facts of a large JSON body, giving way to the loop about every millisecond. ValueError: not a JSON object."""
    scan = _Scan(body).run()
    while True:
        try:
            next(scan)
        except StopIteration as done:
            return facts_of(done.value)
        await asyncio.sleep(0)


def skim(body: bytes) -> Facts:
    """The same without giving way."""
    scan = _Scan(body).run()
    while True:
        try:
            next(scan)
        except StopIteration as done:
            return facts_of(done.value)


class _Scan:
    """Hops from quote to bracket; strings are skipped by `find`, lists of numbers by counting commas."""

    def __init__(self, body: bytes) -> None:
        self._body, self._shape = body, Shape()
        self._kinds: list[int] = []
        self._keys: list[str] = []
        self._skips: list[bool] = []
        self._top = ""
        self._escapes = 0

    def run(self) -> Generator[None, None, Shape]:
        at, steps, parts = 0, 0, 0
        while at < len(self._body):
            found = _STRUCTURE.search(self._body, at, at + _SLICE_BYTES)
            if found is None:
                at += _SLICE_BYTES
                yield
                continue
            at = found.start()
            mark = self._body[at]
            if not self._kinds and mark != 0x7B:
                raise ValueError("not a JSON object")
            if mark == 0x22:
                start, end = at + 1, self._quote(at + 1)
                if self._body[end - 1] == 0x5C:
                    end = yield from self._unescaped(start, end)
                self._string(start, end)
                at = end + 1
            elif mark in b"{[":
                at = self._open(at, mark)
            else:
                self._close()
                at += 1
                if not self._kinds:
                    return self._shape
            steps += 1
            parts += 1
            if parts >= _MAX_PARTS:
                return self._guess_rest(at)
            if steps % _SLICE_STEPS == 0:
                yield
        raise ValueError("the JSON object does not end")

    def _guess_rest(self, at: int) -> Shape:
        """A body of very many small parts would cost a second: the rest is taken to be like what was seen."""
        ratio = len(self._body) / at
        for sizes in (self._shape.text, self._shape.tokens, self._shape.items):
            for name in sizes:
                sizes[name] = round(sizes[name] * ratio)
        for found in _TAIL_SCALAR.finditer(self._body, max(at, len(self._body) - _TAIL_BYTES)):
            key, text, literal = found.groups()
            value = text.decode("utf-8", "replace") if text is not None else _value_of(literal)
            self._shape.scalars.setdefault(key.decode(), value)
        return self._shape

    def _quote(self, at: int) -> int:
        end = self._body.find(b'"', at)
        if end < 0:
            raise ValueError("a string does not end")
        return end

    def _unescaped(self, start: int, end: int) -> Generator[None, None, int]:
        """The quote that ends the string from `start`; `end` is its first that may."""
        while self._body[end - 1] == 0x5C and (yield from self._escaped(start, end)):
            end = self._quote(end + 1)
            self._escapes += 1
            if self._escapes % _SLICE_STEPS == 0:
                yield
        return end

    def _escaped(self, start: int, end: int) -> Generator[None, None, bool]:
        """Is the quote at `end` of the string from `start` escaped: do backslashes of an odd number precede it?"""
        back, window = end, 64
        while back > start:
            piece = self._body[max(start, back - window) : back]
            rest = len(piece.rstrip(b"\\"))
            back -= len(piece) - rest
            if rest:
                break
            window = min(window * 8, _SLICE_BYTES)
            if window == _SLICE_BYTES:
                yield
        return (end - back) % 2 == 1

    def _string(self, start: int, end: int) -> None:
        depth = len(self._kinds)
        if self._kinds[-1] == 0x7B and self._is_key(end + 1):
            self._key(self._body[start : min(end, start + _SHORT)].decode("utf-8", "replace"), depth, end + 1)
        elif depth == 1:
            self._top_value(start, end)
        else:
            if depth == 2 and self._kinds[-1] == 0x5B:
                self._count_item()
            media = self._skips[-1] or (self._kinds[-1] == 0x7B and self._keys[-1] in MEDIA)
            if self._top in TEXT and not media and not self._body.startswith(b"data:", start):
                self._shape.text[self._top] = self._shape.text.get(self._top, 0) + end - start

    def _is_key(self, at: int) -> bool:
        space = _SPACE.match(self._body, at)
        return space is not None and self._body.startswith(b":", space.end())

    def _key(self, name: str, depth: int, at: int) -> None:
        self._keys[-1] = name
        if depth == 1:
            self._top = name
        if depth == 1 or (depth == 2 and self._top in NESTED and name in {*LENGTHS, "n", "best_of"}):
            scalar = _SCALAR.match(self._body, at)
            if scalar is not None:
                self._shape.scalars[name] = _value_of(scalar.group(1))

    def _top_value(self, start: int, end: int) -> None:
        if self._top in TEXT:
            self._shape.text[self._top] = 0 if self._body.startswith(b"data:", start) else end - start
        else:
            short = self._body[start : min(end, start + _SHORT)]
            self._shape.scalars[self._top] = short.decode("utf-8", "replace")

    def _count_item(self) -> None:
        self._shape.items[self._top] = self._shape.items.get(self._top, 0) + 1

    def _open(self, at: int, mark: int) -> int:
        """Enters an object or list, or hops over a list of numbers; returns where to go on."""
        depth = len(self._kinds)
        if depth == 2 and self._kinds[-1] == 0x5B and (mark == 0x5B or self._top in _DOCUMENTS):
            self._count_item()
        if mark == 0x5B:
            space = _SPACE.match(self._body, at + 1)
            first = space.end() if space is not None else at + 1
            if self._body[first : first + 1] and self._body[first] in _NUMBER_STARTS:
                return self._numbers(first, depth)
        media = depth > 1 and (self._skips[-1] or (self._kinds[-1] == 0x7B and self._keys[-1] in MEDIA))
        self._kinds.append(mark)
        self._keys.append("")
        self._skips.append(media)
        return at + 1

    def _numbers(self, first: int, depth: int) -> int:
        end = self._body.find(b"]", first)
        if end < 0:
            raise ValueError("a list does not end")
        if self._top in TOKEN_IDS and depth <= 2:
            known = self._shape.tokens.get(self._top, 0)
            self._shape.tokens[self._top] = known + self._body.count(b",", first, end) + 1
        return end + 1

    def _close(self) -> None:
        self._kinds.pop()
        self._keys.pop()
        self._skips.pop()


def _value_of(literal: bytes) -> bool | int | float:
    if literal in {b"true", b"false"}:
        return literal == b"true"
    return float(literal[:64]) if b"." in literal else int(literal[:20])
