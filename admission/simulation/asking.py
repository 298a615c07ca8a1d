"""What people type, made into values: load factors, seeds, windows and policies; one clear line when it cannot be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from admission.config.mistakes import Mistake
from admission.core.settings import ControllerConfig
from admission.core.slo import SloConfig
from admission.simulation import policies
from admission.simulation.policies import PolicySpec
from admission.vocabulary import PriorityClass

MOST_RUNS = 10_000
"""Runs of one command: more is a typing error."""
_MOST_FACTOR = 1_000.0


class AskedWronglyError(ValueError):
    """What was asked for makes no sense; the message says what and why, in one line."""


def number(text: str, what: str, *, most: float = math.inf) -> float:
    """A finite number over 0.

    Raises:
        AskedWronglyError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        raise AskedWronglyError(f"{what}: {text.strip()!r} is not a number") from None
    if not 0.0 < value <= most or not math.isfinite(value):
        bound = f" and at most {most:g}" if math.isfinite(most) else ""
        raise AskedWronglyError(f"{what}: must be over 0{bound}, not {text.strip()}")
    return value


def loads(text: str) -> tuple[float, ...]:
    """Factors on the rate from `0.5,1,2`, each once and in order.

    Raises:
        AskedWronglyError: one of them is not over 0, or missing.
    """
    if not all(part.strip() for part in text.split(",")):
        raise AskedWronglyError(f"--load: expected numbers with a comma between, not {text!r}")
    found = [number(part, "--load", most=_MOST_FACTOR) for part in _parts(text, "--load")]
    return tuple(dict.fromkeys(found))


def seeds(text: str) -> tuple[int, ...]:
    """Seeds from a count, `3` for 0, 1 and 2, or from a list such as `7,8`; `7,` is seed 7 alone.

    Raises:
        AskedWronglyError: not whole numbers, none of them, or a great many.
    """
    parts = _parts(text, "--seeds")
    if not all(part.strip().isdecimal() for part in parts):
        raise AskedWronglyError(f"--seeds: expected a count or a list such as 7,8,9, not {text!r}")
    found = [int(part) for part in parts]
    if "," not in text:
        count = found[0]
        if not 1 <= count <= MOST_RUNS:
            raise AskedWronglyError(f"--seeds: from 1 to {MOST_RUNS} of them, not {count}")
        found = list(range(count))
    return tuple(dict.fromkeys(found))


def window(text: str) -> tuple[float, float]:
    """START:LENGTH in seconds of the recording.

    Raises:
        AskedWronglyError: not two numbers, a negative start or an empty length.
    """
    start, colon, length = text.partition(":")
    try:
        pair = float(start), float(length)
    except ValueError:
        pair = (math.nan, math.nan)
    if not colon or not all(map(math.isfinite, pair)):
        raise AskedWronglyError(f"--window: expected START:LENGTH in seconds, such as 600:300, not {text!r}")
    if pair[0] < 0 or pair[1] <= 0:
        raise AskedWronglyError(f"--window: needs a start of at least 0 and a length over 0, not {text}")
    return pair


def words(text: str) -> tuple[str, dict[str, Any]]:
    """A name and its settings from `name:key=value,key=value`; a dot goes one level down, as in `limit.floor_tokens`.

    Raises:
        AskedWronglyError: a setting without `=`, or said twice.
    """
    name, _, rest = text.partition(":")
    settings: dict[str, Any] = {}
    for part in [part for part in rest.split(",") if part.strip()]:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise AskedWronglyError(f"--policy {text}: expected key=value, not {part!r}")
        _put(settings, key.strip().split("."), _scalar(value.strip()), f"--policy {text}")
    return name.strip(), settings


def bound(kind: Any, settings: Mapping[str, Any], what: str, base: object = None) -> Any:
    """The settings as an instance of a configuration class; what is left out comes from `base` or from the class.

    Raises:
        AskedWronglyError: an unknown key or a value that cannot be used; it lists the keys that exist.
    """
    if not settings:
        return kind() if base is None else base
    from admission.config.bind import WRONG, Binder  # noqa: PLC0415 - pydantic takes longer than most answers
    from admission.config.document import Document  # noqa: PLC0415

    if unknown := [key for key in settings if key not in _keys(kind)]:
        listed = ", ".join(_keys(kind)) or "no settings"
        raise AskedWronglyError(f"{what}: no setting {unknown[0]!r}; there are {listed}")
    binder = Binder(Document())
    made = binder.bind(kind, settings, (), base)
    if made is WRONG:
        raise AskedWronglyError(f"{what}: " + "; ".join(map(_told, binder.mistakes)))
    return made


def policy(
    text: str, own: ControllerConfig | None = None, slos: Mapping[PriorityClass, SloConfig] | None = None
) -> PolicySpec:
    """A policy from `name:key=value,...`.

    Args:
        text: as typed.
        own: the user's configuration: all of `tidegate`, and the classes of whatever else has classes.
        slos: targets of the classes, where the text does not say otherwise.

    Raises:
        AskedWronglyError: no such policy, or settings that it does not take.
    """
    name, settings = words(text)
    try:
        kind = policies.kind(name)
    except ValueError as error:
        raise AskedWronglyError(f"--policy: {error}") from error
    base = _steered(_owned(kind.default(), own), slos or {})
    return PolicySpec(name, bound(kind.config, settings, f"--policy {name}", base))


def _told(mistake: Mistake) -> str:
    """Without a place: it was no file."""
    given = f" = {mistake.value}" if mistake.value else ""
    return f"{mistake.path}{given}: {mistake.problem}" if mistake.path else mistake.problem


def _owned(base: Any, own: ControllerConfig | None) -> Any:
    if own is None:
        return base
    if isinstance(base, ControllerConfig):
        return dataclasses.replace(own, mode=base.mode)
    return dataclasses.replace(base, classes=own.classes) if "classes" in _keys(base) else base


def _steered(base: Any, slos: Mapping[PriorityClass, SloConfig]) -> Any:
    """With these targets, for those that have any."""
    if "classes" in _keys(base):
        classes = {
            rank: dataclasses.replace(one, slo=slos.get(rank, one.slo)) for rank, one in base.classes.items()
        }
        return dataclasses.replace(base, classes=classes)
    return dataclasses.replace(base, slos={**base.slos, **slos}) if "slos" in _keys(base) else base


def _keys(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _parts(text: str, what: str) -> list[str]:
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise AskedWronglyError(f"{what}: expected numbers, not {text!r}")
    return parts


def _put(settings: dict[str, Any], path: list[str], value: Any, what: str) -> None:
    *above, last = path
    for step in above:
        settings = settings.setdefault(step, {})
        if not isinstance(settings, dict):
            raise AskedWronglyError(f"{what}: {'.'.join(path)} goes below a plain value")
    if last in settings:
        raise AskedWronglyError(f"{what}: {'.'.join(path)} is there twice")
    settings[last] = value


def _scalar(text: str) -> Any:
    from admission.config.document import parse_scalar  # noqa: PLC0415

    try:
        return parse_scalar(text)
    except ValueError:
        return text
