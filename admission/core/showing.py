"""Copies of a controller's state: for people, and for the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.core.model import ClassView, View
from admission.core.saved import SavedState
from admission.vocabulary import PriorityClass, SignalKind

if TYPE_CHECKING:
    from admission.core.admitting import Admitting


def view(core: Admitting, now: float) -> View:
    """Everything that is shown of a target."""
    target = core.target
    excess = core.law.excess
    return View(
        mode=core.mode,
        limit_algorithm=target.limit.name,
        limit=target.limit.value,
        used=target.ledger.used,
        untracked=target.untracked_tokens(now),
        in_flight=len(target.ledger),
        queued=len(target.queue),
        prefill_budget=int(target.prefill.budget(target.ledger, now)),
        pending_prompt_tokens=target.ledger.pending_prompt,
        prefill_rate=target.prefill.rate,
        kv_usage_ratio=target.kv_gate.ratio,
        kv_capacity_tokens=_int(target.kv_capacity(now)),
        engine_running=_int(target.engine.value(SignalKind.RUNNING, now)),
        engine_waiting=_int(target.engine.value(SignalKind.WAITING, now)),
        engine_state=core.recovery.state,
        sight=core.law.sight(now).value,
        frozen=core.law.frozen,
        draining=target.drain_gate.draining,
        tokens_per_chunk=target.cost.tokens_per_chunk.value,
        tpot_ratio=None if excess is None else 1.0 - excess.value,
        slots=target.slots.learned if target.slots.learned is not None else target.slots.stated,
        classes=[_class_view(core, rank) for rank in PriorityClass],
        gates=[gate.view() for gate in target.gates.values()],
        vram=target.vram_gate.gpus(),
    )


def _class_view(core: Admitting, rank: PriorityClass) -> ClassView:
    queue = core.target.queue
    return ClassView(rank, core.target.ledger.by_class[rank], queue.count[rank], queue.prompt_tokens[rank])


def saved_state(core: Admitting, now: float) -> SavedState:
    """What should outlive a restart."""
    target = core.target
    return SavedState(
        limit=target.limit.good,
        mean_cost=target.mean_cost.value,
        prefill_rate=target.prefill.rate if target.prefill.trusted else None,
        tokens_per_chunk=target.cost.tokens_per_chunk.value if target.cost.tokens_per_chunk.count else None,
        held=len(target.ledger) + (target.ghosts if now < target.ghosts_until else 0),
        held_tokens=target.ledger.used_really + (target.ghost_tokens if now < target.ghosts_until else 0),
        outputs=target.cost.saved(),
        slots=target.slots.learned,
        learned=target.limit.value != core.initial_limit,
    )


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
