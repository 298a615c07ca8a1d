"""Who is in flight, and the sums that the budgets are held against."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId
from admission.vocabulary import PriorityClass


@dataclass(slots=True, eq=False)
class Permit:
    """One admitted ticket. Tokens and monotonic seconds."""

    ticket: Ticket
    cost: Cost
    admitted_at: float
    waited_s: float
    ahead: int
    """Prompt tokens without a first token when this one was admitted, its own included."""
    counted: bool
    """Held against the budgets. Not so in shadow, for a ticket that enforce would have refused."""
    first_token_at: float | None = None
    last_chunk_at: float | None = None
    chunks: int = 0
    kv_expected: float = 0.0
    over_slo: bool = False
    reinstated: bool = False
    """Announced by its holder: when its first token came, or what it waited for, was not seen here."""
    marks: deque[tuple[float, int]] | None = None
    """When and how many chunks, once a second over the last five."""

    def mark(self, at: float) -> None:
        """Remember how many chunks there were."""
        if self.marks is None:
            self.marks = deque(maxlen=6)
        self.marks.append((at, self.chunks))


class Ledger:
    """All permits of one target."""

    def __init__(self) -> None:
        self.permits: dict[TicketId, Permit] = {}
        self.pending: dict[TicketId, Permit] = {}
        """Counted permits without a first token, oldest first."""
        self.used = 0
        self.used_really = 0
        self.pending_prompt = 0
        self.counted = 0
        self.sequences = 0
        """Answers that the engine generates for us: n of a request count n."""
        self.kv_expected = 0.0
        self.over_slo = 0
        self.by_class = [0] * len(PriorityClass)
        self.used_by_class = [0] * len(PriorityClass)

    def __len__(self) -> int:
        return len(self.permits)

    def add(self, permit: Permit) -> None:
        """Enter a new permit."""
        self.permits[permit.ticket.id] = permit
        self.used_really += permit.cost.total
        self.sequences += max(1, permit.ticket.n)
        self.by_class[permit.ticket.priority] += 1
        self.over_slo += permit.over_slo
        if permit.counted:
            self._count(permit, 1)

    def count(self, permit: Permit) -> None:
        """Hold a permit against the budgets from now on."""
        if not permit.counted:
            permit.counted = True
            self._count(permit, 1)

    def remove(self, id: TicketId) -> Permit:
        """Take a permit out. KeyError when it is not there."""
        permit = self.permits.pop(id)
        self.used_really -= permit.cost.total
        self.sequences -= max(1, permit.ticket.n)
        self.by_class[permit.ticket.priority] -= 1
        self.in_time(permit)
        if permit.counted:
            self.prefilled(permit)
            self._count(permit, -1)
        return permit

    def prefilled(self, permit: Permit) -> None:
        """Its prompt is done (or gone): it leaves the pending ones."""
        if self.pending.pop(permit.ticket.id, None) is not None:
            self.pending_prompt -= permit.cost.prompt

    def in_time(self, permit: Permit) -> None:
        """Its first token came (or never will): the next that misses its SLO anyhow may run."""
        self.over_slo -= permit.over_slo
        permit.over_slo = False

    def order_pending(self) -> None:
        """Oldest first again, after permits were entered out of turn."""
        self.pending = dict(sorted(self.pending.items(), key=lambda item: item[1].admitted_at))

    def expect_kv(self, permit: Permit, tokens: float) -> None:
        """Set how much KV a permit is expected to hold."""
        if permit.counted:
            self.kv_expected += tokens - permit.kv_expected
        permit.kv_expected = tokens

    def _count(self, permit: Permit, sign: int) -> None:
        self.used += sign * permit.cost.total
        self.used_by_class[permit.ticket.priority] += sign * permit.cost.total
        self.counted += sign
        self.kv_expected += sign * permit.kv_expected
        if sign > 0 and permit.first_token_at is None:
            self.pending[permit.ticket.id] = permit
            self.pending_prompt += permit.cost.prompt
