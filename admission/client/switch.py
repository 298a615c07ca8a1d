"""The local off switch: a setting, or a file that exists."""

from __future__ import annotations

from pathlib import Path

from admission.client.counters import Counters
from admission.client.settings import ClientSettings

LOOK_EVERY_S = 0.5


class Switch:
    """Looks at the file at most twice a second, so that asking is cheap. When it cannot look, the last answer stays."""

    def __init__(self, settings: ClientSettings, counters: Counters) -> None:
        self._counters = counters
        self._always = settings.off
        self._file = Path(settings.off_file) if settings.off_file else None
        self._off = settings.off
        self._look_at = float("-inf")

    @property
    def watched(self) -> bool:
        """True when a file can change the answer."""
        return self._file is not None and not self._always

    def off(self, now: float) -> bool:
        """Is the client switched off? `now` is monotonic seconds."""
        if self._file is not None and not self._always and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            try:
                self._off = self._file.exists()
            except OSError:
                self._counters.count("off_file_unread")
        return self._off
