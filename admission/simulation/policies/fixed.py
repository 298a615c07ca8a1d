"""A budget that stands still, in tokens or in requests: the product's core with its `fixed` limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from admission.core.budgets import Block, Budgets, Forecast
from admission.core.cost import Cost
from admission.core.gates.kv import KvConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Ticket
from admission.core.settings import ClassConfig, ControllerConfig, default_classes
from admission.core.slo import SloConfig
from admission.simulation.policies.base import policy
from admission.simulation.policies.tidegate import Tidegate
from admission.vocabulary import Mode, PriorityClass

UNLIMITED_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTokensConfig:
    """KV tokens of prompt and predicted output that may be in flight."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    limit_tokens: int = 100_000
    guards: bool = True
    """The product's other budgets and its forecast stay on; false: the limit is all there is, behind the same queue."""
    classes: dict[PriorityClass, ClassConfig] = field(default_factory=default_classes)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=dict)
    """Targets that replace those of the classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRequestsConfig:
    """Requests that may be in flight."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    limit_requests: int = 64
    guards: bool = True
    """The product's other budgets and its forecast stay on; false: the limit is all there is, behind the same queue."""
    classes: dict[PriorityClass, ClassConfig] = field(default_factory=default_classes)
    slos: dict[PriorityClass, SloConfig] = field(default_factory=dict)
    """Targets that replace those of the classes."""


@policy("fixed_tokens", FixedTokensConfig)
def fixed_tokens(config: FixedTokensConfig, seed: int, now: float) -> Tidegate:
    """The policy."""
    return _core(config, FixedConfig(limit_tokens=config.limit_tokens), seed, now)


@policy("fixed_requests", FixedRequestsConfig)
def fixed_requests(config: FixedRequestsConfig, seed: int, now: float) -> Tidegate:
    """The policy."""
    limit = FixedConfig(limit_tokens=UNLIMITED_TOKENS, limit_requests=config.limit_requests)
    return _core(config, limit, seed, now)


def _core(
    config: FixedTokensConfig | FixedRequestsConfig, limit: FixedConfig, seed: int, now: float
) -> Tidegate:
    classes = dict(config.classes)
    for priority, slo in config.slos.items():
        classes[priority] = replace(classes[priority], slo=slo)
    if config.guards:
        return Tidegate(ControllerConfig(mode=Mode.ENFORCE, limit=limit, classes=classes), seed, now)
    settings = ControllerConfig(mode=Mode.ENFORCE, limit=limit, classes=classes, kv=KvConfig(enabled=False))
    bare = Tidegate(settings, seed, now)
    bare.budgets = LimitAlone(bare.target, bare.recovery)
    return bare


class LimitAlone(Budgets):
    """The limit and nothing else: no forecast, no prefill budget, no slots, no KV."""

    def forecast(self, ticket: Ticket, cost: Cost, waited_s: float, now: float) -> Forecast | None:
        """Nothing is foreseen, so nothing is refused for it."""
        return None

    def block(
        self, ticket: Ticket, cost: Cost, forecast: Forecast | None, rank: int, now: float
    ) -> Block | None:
        """The limit, unless nothing runs."""
        if self._target.idle or self._recovery.closed or self._fits_limit(cost, rank, now):
            return None
        return Block.LIMIT
