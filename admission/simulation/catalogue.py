"""Every name that a simulation can be asked for by, with a line about each."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from importlib.resources import files
from typing import Any

from admission.simulation.engines import CALIBRATIONS
from admission.simulation.inputs.mixes import shipped_mixes
from admission.simulation.policies.base import discovered
from admission.simulation.scenarios import scenarios
from admission.simulation.traces import shipped_names


def catalogue() -> dict[str, dict[str, str]]:
    """By kind: engines, policies, mixes, traces, scenarios."""
    return {
        "engines": {name: f"{one.model}, {one.hardware}" for name, one in CALIBRATIONS.items()},
        "policies": {name: settings(one.config, one.default()) for name, one in discovered().items()},
        "mixes": {name: _remark(name) for name in shipped_mixes()},
        "traces": dict.fromkeys(shipped_names(), "recorded; --trace takes the name too"),
        "scenarios": {name: one.about for name, one in scenarios().items()},
    }


def settings(kind: Any, base: Any) -> str:
    """What a policy may be told, with the values in `base`, its defaults, that can be shown in a word."""
    shown = []
    for field in fields(kind):
        default = getattr(base, field.name)
        if isinstance(default, Enum):
            default = default.name.lower()
        plain = isinstance(default, int | float | str)
        shown.append(f"{field.name}={default}" if plain else field.name)
    return ", ".join(shown) or "no settings"


def _remark(mix: str) -> str:
    """The comment that the file opens with."""
    text = (files("admission.simulation") / "data" / f"mix_{mix}.yaml").read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("#").strip()
