"""What outlives a restart: the limit, what was learned, and how much was held."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SavedState:
    """Plain numbers and lists, so that any text format can carry them. Tokens and seconds."""

    limit: int = 0
    prefill_rate: float | None = None
    tokens_per_chunk: float | None = None
    mean_cost: float | None = None
    held: int = 0
    held_tokens: int = 0
    outputs: dict[str, list[list[float]]] = field(default_factory=dict)
    """Recent output lengths by model, one list for each class in order of rank."""
    slots: int | None = None
    learned: bool = False
    """The limit was moved by the law: it is worth more than the configured start."""
