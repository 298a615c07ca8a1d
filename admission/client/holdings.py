"""The permits that the client holds."""

from __future__ import annotations

from collections.abc import Iterable

from admission.client.calls import Call, CallState
from admission.client.local import Load


class Holdings:
    """Held calls by number, their load, and which of them the sidecar no longer wants to hear of."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._disowned = 0
        self.load = Load()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def announceable_count(self) -> int:
        """Permits that the sidecar should know."""
        return len(self._calls) - self._disowned

    def announceable(self) -> list[Call]:
        """Those permits."""
        return [call for call in self._calls.values() if not call.disowned]

    def add(self, call: Call, now: float) -> None:
        """The call is admitted now."""
        call.state, call.admitted_at, call.newest_at = CallState.HELD, now, now
        self._calls[call.no] = call
        self.load.add(call.ticket)

    def remove(self, call: Call) -> None:
        """The call is over."""
        del self._calls[call.no]
        self.load.add(call.ticket, -1)
        self._disowned -= call.disowned

    def disown(self, numbers: Iterable[int]) -> int:
        """The sidecar had ended these already: they stay ours alone. Returns how many were held."""
        found = [call for no in numbers if (call := self._calls.get(no)) is not None and not call.disowned]
        for call in found:
            call.disowned = True
        self._disowned += len(found)
        return len(found)
