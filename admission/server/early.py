"""Refusals that the server gives in front of the core, and the modes that say whether it may refuse at all."""

from __future__ import annotations

from admission.core.model import Rejected, Ticket, Why
from admission.runtime.host import Host
from admission.vocabulary import Mode, Reason, Source

_RETRY_S = 1.0


class Early:
    """Every refusal is told to the host's listeners, so that it is answered, counted and shown like any other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._modes = {target: config.mode for target, config in host.configs.items()}

    def modes(self) -> dict[str, Mode]:
        """By target, as of the last `refresh`."""
        return self._modes

    def refresh(self) -> bool:
        """Look at the modes; returns whether one changed."""
        before = self._modes
        self._modes = {target: self._host.view(target).mode for target in self._host.targets}
        return self._modes != before

    def enforces(self, target: str) -> bool:
        """Whether the target refuses anything: in shadow and off nothing may be refused, by nobody."""
        return self._modes[target] is Mode.ENFORCE

    def overloaded(self, target: str, ticket: Ticket, late_s: float, bound_s: float) -> None:
        """The sidecar itself is too busy to decide in time."""
        detail = f"the sidecar is overloaded: {late_s * 1000:.0f} ms behind, bound {bound_s * 1000:.0f} ms"
        why = Why(detail, late_s, bound_s, "s", Source.OWN)
        self._host.tell(target, Rejected(ticket, Reason.DEGRADED, _RETRY_S, why))

    def session_full(self, target: str, ticket: Ticket, waiting: int, bound: int) -> None:
        """The session has as many open questions or permits as one may have."""
        why = Why(
            f"{waiting} acquires of this session, bound {bound}", waiting, bound, "acquires", Source.OWN
        )
        self._host.tell(target, Rejected(ticket, Reason.QUEUE_FULL, _RETRY_S, why))
