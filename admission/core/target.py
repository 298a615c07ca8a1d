"""The state of one target that the budgets and the law share."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.core.cost import Cost, CostModel
from admission.core.engine import EngineReadings, Slots, Untracked
from admission.core.gates import base as gates
from admission.core.gates.drain import Drain
from admission.core.gates.kv import KvWatermark
from admission.core.gates.vram import VramWatermark
from admission.core.ledger import Ledger, Permit
from admission.core.limits import base as limits
from admission.core.limits.base import Limit
from admission.core.model import Ticket, Why
from admission.core.pace import Pace
from admission.core.prefill import Prefill
from admission.core.queueing.queue import Queue
from admission.core.settings import ClassConfig, ControllerConfig
from admission.core.stats import Mean, Rate, SmoothedInTime
from admission.core.stillness import Stillness
from admission.vocabulary import PriorityClass, SignalKind

IN_USE_S = 60.0
"""A class counts as in use for this long after its last ticket."""


@dataclass(slots=True)
class Marks:
    """When something was last seen, in monotonic seconds."""

    admitted_at: float = float("-inf")
    first_token_at: float = float("-inf")
    progress_at: float = float("-inf")
    signal_at: float = float("-inf")
    started_at: float = 0.0
    class_at: list[float] = field(default_factory=lambda: [float("-inf")] * len(PriorityClass))


class Target:
    """Everything known about one protected engine."""

    def __init__(self, config: ControllerConfig, now: float) -> None:
        self.config = config
        self.ledger = Ledger()
        self.queue = Queue(config.ageing_s)
        self.set_orders()
        self.cost = CostModel(config.cost)
        self.prefill = Prefill(config.prefill)
        self.pace = Pace()
        self.stillness = Stillness()
        self.engine = EngineReadings()
        self.untracked = Untracked()
        self.slots = Slots()
        self.limit: Limit = limits.discovered()[config.limit.algorithm].build(config.limit)
        self.gates: dict[str, gates.Gate] = {
            name: kind.build(getattr(config, name)) for name, kind in gates.discovered().items()
        }
        self.charging = [gate for gate in self.gates.values() if gate.charges]
        self.timed = [gate for gate in self.gates.values() if gate.timed]
        self.mean_cost = Mean(512.0, 0.02)
        self.kv_scale = SmoothedInTime(5.0)
        self.finishes = Rate(2.0, now)
        self.drained = Rate(5.0, now)
        self.rooms: list[tuple[float, float]] = []
        self.set_rooms()
        self.marks = Marks(started_at=now)
        self.busy: Why | None = None
        self.ghosts = 0
        self.ghost_tokens = 0
        self.ghosts_until = float("-inf")
        self.refused_for_limit = False
        self.refused_for_prefill = False
        self.refused_for_other = False
        self.refused_room = 0.0
        self.blocked_at = [float("-inf")] * len(PriorityClass)
        """When one of the class last waited in the queue for room that others hold."""
        """Share of the limit that the most urgent class refused for it may use."""
        self.unseen_streams = 0
        """Streams in a row that ended well without a first token seen: nobody reports them."""

    @property
    def drain_gate(self) -> Drain:
        """The drain gate."""
        gate = self.gates["drain"]
        assert isinstance(gate, Drain)  # noqa: S101 - narrows a type, discovery made it
        return gate

    @property
    def kv_gate(self) -> KvWatermark:
        """The KV watermark."""
        gate = self.gates["kv"]
        assert isinstance(gate, KvWatermark)  # noqa: S101 - narrows a type, discovery made it
        return gate

    @property
    def vram_gate(self) -> VramWatermark:
        """The VRAM watermark."""
        gate = self.gates["vram"]
        assert isinstance(gate, VramWatermark)  # noqa: S101 - narrows a type, discovery made it
        return gate

    @property
    def idle(self) -> bool:
        """Nothing of ours that counts is on the engine."""
        return self.ledger.counted == 0

    @property
    def sees_streams(self) -> bool:
        """Do callers report first tokens?"""
        return self.unseen_streams < 3

    def blind(self, now: float) -> bool:
        """Nothing streams, or nobody tells: no first token for five seconds while something is in flight."""
        quiet_since = max(self.marks.first_token_at, self.marks.admitted_at - 5.0, self.marks.started_at)
        return not self.sees_streams or (len(self.ledger) > 0 and now - quiet_since > 5.0)

    def class_config(self, priority: PriorityClass) -> ClassConfig:
        """The settings of a class."""
        return self.config.classes[priority]

    def in_use(self, now: float) -> list[ClassConfig]:
        """Settings of the classes seen lately, of the most urgent one when none was."""
        used = [
            self.config.classes[rank] for rank in PriorityClass if now - self.marks.class_at[rank] <= IN_USE_S
        ]
        return used or [self.config.classes[PriorityClass.INTERACTIVE]]

    def ttft_slo_s(self, now: float) -> float:
        """The tightest TTFT SLO in use, which the prefill budget keeps; 10 s when no class has one."""
        return min((c.slo.ttft_s for c in self.in_use(now) if c.slo.ttft_s is not None), default=10.0)

    def tpot_slo_s(self, now: float) -> float:
        """The tightest TPOT SLO in use, for sources that do not know a request's class."""
        return min(c.slo.tpot_s for c in self.in_use(now))

    def untracked_count(self, now: float) -> float:
        """Requests on the engine that are not ours: measured, or remembered from before a restart, never both."""
        return max(self.untracked.count(now), self.ghosts if now < self.ghosts_until else 0)

    def untracked_tokens(self, now: float) -> int:
        """What they take of the limit."""
        ghosts = self.ghost_tokens if now < self.ghosts_until else 0
        return int(max(self.untracked.count(now) * self.mean_cost.value, ghosts))

    def kv_capacity(self, now: float) -> float | None:
        """The engine's KV capacity in tokens, None when it does not say."""
        return self.engine.value(SignalKind.KV_CAPACITY_TOKENS, now)

    @property
    def streaming(self) -> bool:
        """Is there more than one stream whose chunks are reported? One that stops alone says nothing of the engine."""
        return self.ledger.reported > 1

    def tokens(self, permit: Permit) -> float:
        """Output tokens of a permit so far."""
        return self.cost.tokens(permit.ticket.flow.model, permit.chunks)

    def set_rooms(self) -> None:
        """What each class may take of the limit and of the prefill budget: the rest is for the more urgent."""
        limit, prefill = 1.0 - self.config.limit_room, 1.0 - self.config.prefill_room
        self.rooms = [(limit**rank, prefill**rank) for rank in PriorityClass]

    def set_orders(self) -> None:
        """Who of each class goes first."""
        for priority, settings in self.config.classes.items():
            self.queue.serve(priority, settings.order)

    def expected_at_start(self, ticket: Ticket, cost: Cost) -> float:
        """KV tokens that a ticket not begun is expected to hold at its peak share."""
        return cost.prompt + cost.output * (self.config.kv_forecast.output_share if ticket.stream else 0.6)

    def expected_kv(self, permit: Permit) -> float:
        """KV tokens that a permit is expected to hold at its peak share."""
        return max(self.begun_kv(permit), self.expected_at_start(permit.ticket, permit.cost))

    def begun_kv(self, permit: Permit) -> float:
        """KV tokens that a permit holds once its prompt is read; in shadow, would hold."""
        course = permit.course
        made = self.tokens(permit) if course is None else course.tokens * max(1, permit.ticket.n)
        return permit.cost.prompt + made
