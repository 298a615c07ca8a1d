"""Which mode rules a ticket, as far as the sidecar has told."""

from __future__ import annotations

from collections.abc import Mapping

from admission.v1.types_pb2 import Ticket
from admission.vocabulary import Mode

_MAX_MODELS = 1024


class Modes:
    """Modes by target, and the targets of models as seen in decisions (bounded)."""

    def __init__(self) -> None:
        self._modes: dict[str, Mode] = {}
        self._targets: dict[str, str] = {}
        self.all_off = False

    def update(self, modes: Mapping[str, int]) -> bool:
        """Takes what a message says. Returns True when anything changed; numbers of a later release are left out."""
        known = {target: Mode(value) for target, value in modes.items() if value in Mode.__members__.values()}
        changed = any(self._modes.get(target) is not mode for target, mode in known.items())
        self._modes.update(known)
        self.all_off = bool(self._modes) and all(mode is Mode.OFF for mode in self._modes.values())
        return changed

    def learn(self, model: str, target: str) -> None:
        """A decision named the target of a model."""
        if model in self._targets or len(self._targets) < _MAX_MODELS:
            self._targets[model] = target

    def of(self, ticket: Ticket) -> Mode | None:
        """The mode for a ticket, None when not known."""
        modes = self._modes
        target = ticket.target or self._targets.get(ticket.model, "")
        if target or len(modes) != 1:
            return modes.get(target)
        return next(iter(modes.values()))

    def text(self) -> str:
        """All modes in one line."""
        return ", ".join(f"{target}: {mode.name.lower()}" for target, mode in sorted(self._modes.items()))
