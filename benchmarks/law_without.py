"""The law with one of its ingredients taken out: the code of the core replaced for the length of one run.

The product has no switches for this. What is a setting is left out by a policy's settings instead, see `law_variants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from admission.core import pace
from admission.core.budgets import Budgets
from admission.core.engine import Slots
from admission.core.law import Law
from admission.core.ledger import Ledger
from admission.core.limits.base import Load
from admission.core.pace import Pace, Streaming
from admission.core.prefill import Prefill
from admission.core.stillness import Stillness

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Patch:
    """Attributes of one class or module, and what stands in for them."""

    owner: Any
    replaced: Mapping[str, object]


def _answer(value: object) -> Callable[..., object]:
    """A function of anything that says always the same."""
    return lambda *_args, **_kwargs: value


def _recent_pace(stream: Streaming, pace_s: float) -> float:
    """What the stream makes of late, whatever it has had before."""
    return (pace_s + (stream.recent_s - pace_s) * stream.trust) / stream.slo_s


def _own_pace(stream: Streaming, _pace_s: float) -> float:
    """A young stream goes by the few steps that it has seen itself."""
    return (stream.elapsed_s + stream.left * stream.recent_s) / (stream.made + stream.left) / stream.slo_s


def _all_pending(_prefill: Prefill, ledger: Ledger, _now: float) -> float:
    """Of a prompt in work nothing counts as read."""
    return ledger.pending_prompt


_load = Law._load  # noqa: SLF001 - taken apart on purpose


def _load_of_now(law: Law, mode: Any, now: float) -> Load:
    load = _load(law, mode, now)
    load.lasting = None
    return load


def _never_cut() -> property:
    """A time of the last cut that is never set."""
    return property(lambda _pace: -inf, lambda _pace, _at: None)


_NO_PREFILL = Patch(Budgets, {"_fits_prefill": _answer(True)})
_NO_FORECAST = Patch(Budgets, {"hopeless": _answer(False)})

PATCHES: Mapping[str, tuple[Patch, ...]] = {
    "": (),
    "prefill": (_NO_PREFILL,),
    "forecast": (_NO_FORECAST,),
    "prefill and forecast": (_NO_PREFILL, _NO_FORECAST),
    "lasting": (Patch(Law, {"_load": _load_of_now}),),
    "whole answer": (Patch(Streaming, {"ratio": _recent_pace}),),
    "pace of all": (Patch(Streaming, {"ratio": _own_pace}),),
    "standstill": (Patch(Stillness, {"standing": _answer(False)}),),
    "uneven": (Patch(pace, {"UNEVEN": 1e9}),),
    "since the cut": (Patch(Pace, {"cut_at": _never_cut()}),),
    "KV forecast": (Patch(Budgets, {"_fits_kv": _answer(True)}),),
    "slots": (Patch(Budgets, {"_slots_full": _answer(False)}),),
    "learned slots": (Patch(Slots, {"on_scrape": _answer(None)}),),
    "stall hold": (Patch(Prefill, {"stalled": _answer(False)}),),
    "unread": (Patch(Prefill, {"unread": _all_pending}),),
    "ration": (Patch(Budgets, {"over_slo_rationed": _answer(False)}),),
}
"""By name. An empty one leaves the law whole."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """Inside, the core of this process lacks that ingredient; afterwards it is whole again, whatever happened.

    Raises:
        KeyError: nothing of that name can be taken out.
    """
    undo: list[Callable[[], None]] = []
    patches = PATCHES[name]
    try:
        for patch in patches:
            for attribute, value in patch.replaced.items():
                before = vars(patch.owner).get(attribute, _ABSENT)
                undo.append(partial(_put, patch.owner, attribute, before))
                setattr(patch.owner, attribute, value)
        yield
    finally:
        for step in reversed(undo):
            step()


def _put(owner: Any, attribute: str, value: object) -> None:
    if value is _ABSENT:
        delattr(owner, attribute)
    else:
        setattr(owner, attribute, value)
