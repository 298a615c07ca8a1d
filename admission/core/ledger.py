"""Who is in flight, and the sums that the budgets are held against."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from admission.core.cost import Cost
from admission.core.model import Ticket, TicketId
from admission.vocabulary import PriorityClass


@dataclass(slots=True, eq=False)
class Course:
    """How a permit would go if the engine held only what enforcing admits. Tokens are those of one of its answers."""

    ends_after: float
    """How many it would put out: nobody knows before it does."""
    began_at: float | None = None
    tokens: float = 0.0
    marks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=6))
    """When, and how many tokens: once a second over the last five."""


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
    still_s: float = 0.0
    """How long the engine had stood in all when the first token came."""
    chunks_before: int = 1
    """How many chunks had come by then: more than the one when it was announced as begun already."""
    over_slo: bool = False
    reinstated: bool = False
    """Announced by its holder: when its first token came, or what it waited for, was not seen here."""
    marks: deque[tuple[float, int]] | None = None
    """When, less the time that the engine stood, and how many chunks: once a second over the last five."""
    late_s: float = 0.0
    """In shadow: how long after its grant it came to be counted, having waited so long as far as enforcing goes."""
    course: Course | None = None
    """In shadow, while more runs than enforcing would admit: what would become of it. None: what does."""

    @property
    def counted_at(self) -> float:
        """Since when it is held against the budgets."""
        return self.admitted_at + self.late_s

    def mark(self, at: float) -> None:
        """Remember how many chunks there were."""
        if self.marks is None:
            self.marks = deque(maxlen=6)
        self.marks.append((at, self.chunks))


class Ledger:
    """All permits of one target."""

    def __init__(self) -> None:
        self.permits: dict[TicketId, Permit] = {}
        self.beyond: dict[TicketId, Permit] = {}
        """Counted permits of shadow that would run still, though in reality they have ended."""
        self.exceeded = False
        """In shadow: a tenth more is really in flight than what is counted, and how it would go without that is known."""
        self.pending: dict[TicketId, Permit] = {}
        """Counted permits without a first token, oldest first."""
        self.used = 0
        self.used_really = 0
        self.pending_prompt = 0
        self.aside: dict[TicketId, int] = {}
        self.aside_prompt = 0
        """Prompt tokens without a first token that are not counted: in shadow the engine reads them too."""
        self.counted = 0
        self.counted_sequences = 0
        self.sequences = 0
        """Answers that the engine generates for us: n of a request count n."""
        self.reported = 0
        """Streams whose chunks somebody reports."""
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
        self.reported += permit.chunks > 0
        self.by_class[permit.ticket.priority] += 1
        self.over_slo += permit.over_slo
        if permit.counted:
            self._count(permit, 1)
        else:
            self._set_aside(permit)

    def count(self, permit: Permit) -> None:
        """Hold a permit against the budgets from now on."""
        if not permit.counted:
            permit.counted = True
            self._count(permit, 1)
            self.read(permit)

    def remove(self, id: TicketId, *, keep: bool = False) -> Permit:
        """Take a permit out. KeyError when it is not there. `keep`: it goes on being counted until `release`."""
        permit = self.permits.pop(id)
        self.used_really -= permit.cost.total
        self.sequences -= max(1, permit.ticket.n)
        self.reported -= permit.chunks > 0
        self.by_class[permit.ticket.priority] -= 1
        if keep:
            self.beyond[id] = permit
            return permit
        self.read(permit)
        self.in_time(permit)
        if permit.counted:
            self.prefilled(permit)
            self._count(permit, -1)
        return permit

    def read(self, permit: Permit) -> None:
        """The prompt of one that is not counted is done, or gone, or counted now."""
        self.aside_prompt -= self.aside.pop(permit.ticket.id, 0)

    def release(self, permit: Permit) -> None:
        """It would be over: the budgets hold nothing against it any more, whether it goes on in reality or not."""
        self.beyond.pop(permit.ticket.id, None)
        self.in_time(permit)
        self.prefilled(permit)
        permit.counted = False
        self._count(permit, -1)
        if permit.ticket.id in self.permits:
            self._set_aside(permit)

    def counts(self, permit: Permit) -> bool:
        """Do the budgets hold it?"""
        id = permit.ticket.id
        return permit.counted and permit in (self.permits.get(id), self.beyond.get(id))

    def counted_permits(self) -> Iterator[Permit]:
        """All that the budgets are held against."""
        yield from (permit for permit in self.permits.values() if permit.counted)
        yield from self.beyond.values()

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

    def _set_aside(self, permit: Permit) -> None:
        if permit.ticket.stream and permit.first_token_at is None:
            self.aside[permit.ticket.id] = permit.cost.prompt
            self.aside_prompt += permit.cost.prompt

    def _count(self, permit: Permit, sign: int) -> None:
        self.used += sign * permit.cost.total
        self.used_by_class[permit.ticket.priority] += sign * permit.cost.total
        self.counted += sign
        self.counted_sequences += sign * max(1, permit.ticket.n)
        self.kv_expected += sign * permit.kv_expected
        if sign > 0 and permit.first_token_at is None:
            self.pending[permit.ticket.id] = permit
            self.pending_prompt += permit.cost.prompt
