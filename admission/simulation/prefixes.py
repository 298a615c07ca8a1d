"""The prefix cache of an engine model: which named prefixes it can serve, and who shares what it holds of them."""

from __future__ import annotations

from admission.simulation.sequences import Sequence


class Prefixes:
    """Warm until flushed; a flushed prefix is warm again once a request with it has been prefilled."""

    def __init__(self) -> None:
        self._flushed = False
        self._warm: set[str] = set()
        self._holders: dict[str, tuple[int, int]] = {}

    def flush(self) -> None:
        """Forget every named prefix. Who holds one goes on holding it."""
        self._flushed = True
        self._warm.clear()

    def is_warm(self, name: str) -> bool:
        """Can the cache serve this prefix?"""
        return not self._flushed or not name or name in self._warm

    def prefilled(self, name: str) -> None:
        """A request with this prefix has been prefilled: the cache has it."""
        if self._flushed and name:
            self._warm.add(name)

    def needs(self, sequence: Sequence) -> int:
        """KV tokens that admitting this sequence takes: its own, and the shared ones when nobody holds them yet."""
        shared = self.shared(sequence)
        if shared and sequence.prefix not in self._holders:
            return sequence.to_prefill
        return sequence.to_prefill - shared

    def shared(self, sequence: Sequence) -> int:
        """Tokens that this sequence would hold together with others."""
        return sequence.shared_tokens if self.is_warm(sequence.prefix) else 0

    def take(self, sequence: Sequence) -> None:
        """The sequence is admitted and holds its share."""
        count, tokens = self._holders.get(sequence.prefix, (0, sequence.shared))
        self._holders[sequence.prefix] = count + 1, tokens

    def give_back(self, sequence: Sequence) -> int:
        """The sequence left; returns the shared tokens that are free since nobody else holds them."""
        count, tokens = self._holders[sequence.prefix]
        if count > 1:
            self._holders[sequence.prefix] = count - 1, tokens
            return 0
        del self._holders[sequence.prefix]
        return tokens
