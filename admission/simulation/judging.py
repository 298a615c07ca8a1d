"""The one verdict over requests, real or simulated: what was good of what was offered, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from admission.core.slo import BACKGROUND_SLO, INTERACTIVE_SLO, SloConfig
from admission.simulation.fate import Ending, Fate
from admission.simulation.histogram import Histogram
from admission.simulation.recovery import Recovery
from admission.simulation.sizes import Sizes
from admission.simulation.tally import Row, Tally, first_token_or_wait_s
from admission.vocabulary import PriorityClass

__all__ = ["Ending", "Fate", "Judge", "Report", "Row"]

_K = TypeVar("_K")
OTHER = "other"
ANONYMOUS = "anonymous"
TENANTS_SHOWN = 50
TENANTS_KEPT = 1_024
"""Tenants counted one by one, so that the fullest can be shown; those first seen later count as `OTHER`."""
REASONS_KEPT = 64
DEFAULT_SLOS = {
    PriorityClass.INTERACTIVE: INTERACTIVE_SLO,
    PriorityClass.BATCH: BACKGROUND_SLO,
    PriorityClass.INTERNAL: BACKGROUND_SLO,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Row):
    """What a run came to. Offered are all logical requests whose callers meant to stay."""

    endings: dict[str, int]
    """Logical requests by how they ended, those of leavers included."""
    refusals: dict[str, int]
    """Refused attempts by reason."""
    attempts: int
    ttft_p99_quiet_s: float | None
    """Of the accepted of classes with a TTFT target whose last attempt began outside [-2, +5] s of every disturbance."""
    ttft_over_target_p99_quiet_ratio: float | None
    """Of the same, each held against the target for the length of its own prompt."""
    served_share_by_size_quartile: tuple[float | None, ...]
    """Served over offered, the smallest quarter of the requests (prompt plus answer) first."""
    good_share_by_size_quartile: tuple[float | None, ...]
    recovery_s: tuple[float | None, ...]
    """Per disturbance, from its end until goodput was back at 90 %; None: not within the run, or nothing before it."""
    disturbances: tuple[tuple[float, float], ...]
    limit_variation_ratio: float | None
    """Standard deviation over mean of the limit in the judged span; None when nobody watched it."""
    per_class: tuple[Row, ...]
    per_tenant: tuple[Row, ...]
    """The tenants with most offered requests first, then `other`; empty when no request named one."""

    def of_class(self, priority: PriorityClass) -> Row | None:
        """The row of a class; None when it offered nothing."""
        return next((row for row in self.per_class if row.name == priority.label), None)

    def as_json(self) -> dict[str, Any]:
        """All figures and the ratios made of them, under stable names with units."""
        return (
            asdict(self)
            | _ratios(self)
            | {
                "disturbances": [[_finite(edge) for edge in span] for span in self.disturbances],
                "per_class": [asdict(row) | _ratios(row) for row in self.per_class],
                "per_tenant": [asdict(row) | _ratios(row) for row in self.per_tenant],
            }
        )


class Judge:
    """Takes the fates of requests as they settle, in any order, and says what they came to.

    Args:
        slos: what good means for a class; a class not named has the product's default.
        from_s: arrivals before it are warm-up and do not count.
        until_s: arrivals from it on do not count.
        disturbances: (from, until) of each, in seconds, in time order.

    Raises:
        ValueError: an empty span, or a disturbance that ends before it begins.
    """

    def __init__(
        self,
        slos: Mapping[PriorityClass, SloConfig] | None = None,
        *,
        from_s: float = 0.0,
        until_s: float = math.inf,
        disturbances: Sequence[tuple[float, float]] = (),
    ) -> None:
        if not from_s < until_s:
            raise ValueError(f"nothing to judge from {from_s} until {until_s} s")
        if wrong := [span for span in disturbances if not span[0] <= span[1]]:
            raise ValueError(f"a disturbance ends before it begins: {wrong[0]}")
        self.from_s = from_s
        self.until_s = until_s
        self.slos: dict[PriorityClass, SloConfig] = DEFAULT_SLOS | dict(slos or {})
        self.disturbances = tuple(disturbances)
        self._tallies: dict[tuple[PriorityClass, str], Tally] = {}
        self._tenants: set[str] = set()
        self._endings: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._attempts = 0
        self._sizes = Sizes()
        self._quiet = Histogram()
        self._quiet_over_target = Histogram()
        self._recovery = Recovery(self.disturbances, from_s)

    def good(self, fate: Fate) -> bool:
        """Served whole, within the TTFT of its prompt's length and the TPOT of its class; a leaver never is."""
        if fate.ending is not Ending.SERVED or fate.leaves:
            return False
        slo = self.slos[fate.arrival.priority]
        return slo.met(fate.arrival.prompt_tokens, fate.ttft_s, fate.tpot_s) is True

    def settle(self, fate: Fate) -> bool:
        """Count a request that arrived in the judged span; returns whether it was good, wherever it arrived."""
        good = self.good(fate)
        if self.from_s <= fate.arrival.at_s < self.until_s:
            self._count(fate)
            if not (fate.leaves or fate.ending is Ending.LEFT):
                self._offer(fate, good=good)
        return good

    def _count(self, fate: Fate) -> None:
        ending = fate.ending.value
        self._endings[ending] = self._endings.get(ending, 0) + 1
        self._attempts += fate.attempts
        refused = fate.refused
        if not refused and fate.ending is Ending.REFUSED:
            refused = (fate.reason,)
        for reason in refused:
            known = reason in self._refusals or len(self._refusals) < REASONS_KEPT
            label = reason if known else OTHER
            self._refusals[label] = self._refusals.get(label, 0) + 1

    def _offer(self, fate: Fate, *, good: bool) -> None:
        arrival = fate.arrival
        self._tally(arrival.priority, arrival.tenant).add(fate, good=good)
        self._sizes.add(fate.tokens, served=fate.ending is Ending.SERVED, good=good)
        if self.disturbances:
            self._recovery.add(arrival.at_s, good=good)
        if fate.admitted and self._recovery.is_quiet(max(arrival.at_s, fate.began_at_s)):
            self._hold(fate)

    def _hold(self, fate: Fate) -> None:
        ttft_s = first_token_or_wait_s(fate)
        target_s = self.slos[fate.arrival.priority].ttft_for(fate.arrival.prompt_tokens)
        if ttft_s is not None and target_s is not None:
            self._quiet.add(ttft_s)
            self._quiet_over_target.add(ttft_s / target_s)

    def _tally(self, priority: PriorityClass, tenant: str) -> Tally:
        tally = self._tallies.get((priority, tenant))
        if tally is None:
            if tenant not in self._tenants and len(self._tenants) >= TENANTS_KEPT:
                tenant = OTHER
            self._tenants.add(tenant)
            tally = self._tallies.setdefault((priority, tenant), Tally())
        return tally

    def report(self, limit_variation_ratio: float | None = None) -> Report:
        """The verdict over what has settled so far."""
        row = _merged(self._tallies.values()).row("all")
        shares = self._sizes.shares()
        return Report(
            **{field.name: getattr(row, field.name) for field in fields(row)},
            endings=dict(sorted(self._endings.items())),
            refusals=dict(sorted(self._refusals.items())),
            attempts=self._attempts,
            ttft_p99_quiet_s=self._quiet.quantile(0.99),
            ttft_over_target_p99_quiet_ratio=self._quiet_over_target.quantile(0.99),
            served_share_by_size_quartile=shares.served,
            good_share_by_size_quartile=shares.good,
            recovery_s=self._recovery.after_s(),
            disturbances=self.disturbances,
            limit_variation_ratio=limit_variation_ratio,
            per_class=self._class_rows(),
            per_tenant=self._tenant_rows(),
        )

    def _class_rows(self) -> tuple[Row, ...]:
        groups = _grouped((priority, tally) for (priority, _), tally in self._tallies.items())
        return tuple(groups[priority].row(priority.label) for priority in sorted(groups))

    def _tenant_rows(self) -> tuple[Row, ...]:
        if not any(self._tenants):
            return ()
        groups = _grouped((tenant, tally) for (_, tenant), tally in self._tallies.items())
        rest = [groups.pop(OTHER)] if OTHER in groups else []
        named = [(name or ANONYMOUS, tally) for name, tally in groups.items()]
        named.sort(key=lambda pair: (-pair[1].offered.requests, pair[0]))
        rows = [tally.row(name) for name, tally in named[:TENANTS_SHOWN]]
        rest += [tally for _, tally in named[TENANTS_SHOWN:]]
        return tuple(rows + ([_merged(rest).row(OTHER)] if rest else []))


def _merged(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total


def _grouped(pairs: Iterable[tuple[_K, Tally]]) -> dict[_K, Tally]:
    groups: dict[_K, Tally] = {}
    for key, tally in pairs:
        groups.setdefault(key, Tally()).merge(tally)
    return groups


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ratios(row: Row) -> dict[str, float | None]:
    return {
        "goodput_requests_ratio": row.goodput_requests_ratio,
        "goodput_tokens_ratio": row.goodput_tokens_ratio,
        "accepted_within_slo_ratio": row.accepted_within_slo_ratio,
        "served_within_slo_ratio": row.served_within_slo_ratio,
    }
