"""Has this been seen before? A set with a time to live and a bound."""

from __future__ import annotations

from collections.abc import Hashable


class Seen:
    """Remembers for `ttl_s` to twice that, at most `capacity` keys.

    Two generations of hashes: senders repeat batches after lost replies, and a set that forgets one key at a time
    costs more than it saves.
    """

    def __init__(self, *, ttl_s: float = 150.0, capacity: int = 131_072) -> None:
        self._ttl_s = ttl_s
        self._half = max(1, capacity // 2)
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._turned_at = float("-inf")

    def __len__(self) -> int:
        """Keys remembered."""
        return len(self._new) + len(self._old)

    def add(self, key: Hashable, now: float) -> bool:
        """Whether the key is new."""
        if now - self._turned_at >= self._ttl_s or len(self._new) >= self._half:
            self._turn(now)
        mark = hash(key)
        if mark in self._new or mark in self._old:
            return False
        self._new.add(mark)
        return True

    def _turn(self, now: float) -> None:
        stale = now - self._turned_at >= 2 * self._ttl_s
        self._old = set() if stale else self._new
        self._new = set()
        self._turned_at = now
