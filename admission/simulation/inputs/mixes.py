"""Synthetic traffic as users write it in a `mix.yaml`: components with a rate over time, lengths and callers each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import ClassVar

from admission.config.bind import Binder
from admission.config.document import Document, parse_document
from admission.config.load import read_text
from admission.config.mistakes import BadConfigurationError
from admission.simulation.inputs.arrival import DEFAULT_MAX_TOKENS, Arrival, TraceError
from admission.simulation.inputs.lengths import LengthsConfig, LengthSource
from admission.simulation.inputs.rates import FORBID, RatePoint, instants, pieces
from admission.simulation.inputs.shaping import Shares, merged
from admission.vocabulary import PriorityClass

_SHIPPED = files("admission.simulation") / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixConfig:
    """A prefix that prompts of a component have in common, such as a system prompt. It comes on top of their length."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    tokens: int
    hits: float = 1.0
    """Share of the requests that have it; the others have as many tokens of their own."""
    name: str = ""
    """Components that name the same one share it; left out: the component's own."""

    def __post_init__(self) -> None:
        """Raise ValueError for what is no length or no share."""
        if not 1 <= self.tokens <= 100_000_000:
            raise ValueError(f"tokens must be at least 1, not {self.tokens}")
        _share("hits", self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedConfig:
    """Earlier turns of a conversation in the engine's cache: all or nothing, so that hits are bimodal."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    ratio: float
    """Share of the prompt that a hit saves."""
    hits: float = 1.0
    """Share of the requests that hit."""

    def __post_init__(self) -> None:
        """Raise ValueError for what is no share."""
        _share("ratio", self.ratio)
        _share("hits", self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeConfig:
    """From this second on, prompts and answers are so many times as long; of several, the last one holds."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    at_s: float
    prompt: float = 1.0
    output: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for what is no time or no factor."""
        if not 0 <= self.at_s < math.inf:
            raise ValueError(f"at_s must not be negative, not {self.at_s}")
        for name, value in (("prompt", self.prompt), ("output", self.output)):
            if not 0 < value <= 1e4:
                raise ValueError(f"{name} must be over 0 and at most 10,000, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentConfig:
    """One kind of caller: how often, how long, who."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    rate_per_s: float
    lengths: LengthsConfig
    name: str = ""
    profile: tuple[RatePoint, ...] = ()
    """How the rate changes over time; left out: steady."""
    repeat_s: float | None = None
    """The profile begins again after this long."""
    cv: float = 1.0
    """Spread of the gaps over their mean: 0 even, 1 at random, more: in bursts."""
    from_s: float = 0.0
    until_s: float = math.inf
    changes: tuple[ChangeConfig, ...] = ()
    priority: PriorityClass = PriorityClass.INTERACTIVE
    tenants: Mapping[str, float] = field(default_factory=dict)
    """Names and their shares; left out: anonymous."""
    model: str = ""
    max_tokens: int | None = None
    """What callers ask for; answers are cut there. Left out: 2,048, or the answer where it is longer."""
    stream_ratio: float = 1.0
    """Share of the requests that stream."""
    prefix: PrefixConfig | None = None
    cached: CachedConfig | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what cannot be drawn."""
        if not 0 < self.rate_per_s <= 1e6:
            raise ValueError(f"rate_per_s must be over 0 and at most 1,000,000, not {self.rate_per_s}")
        if not 0 <= self.cv <= 100:
            raise ValueError(f"cv must be between 0 and 100, not {self.cv}")
        if not 0 <= self.from_s < self.until_s:
            raise ValueError(f"until_s must be after from_s ({self.from_s}), not {self.until_s}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        _share("stream_ratio", self.stream_ratio)
        self._check_profile()
        if self.tenants:
            _weights(self.tenants)
        if [change.at_s for change in self.changes] != sorted(change.at_s for change in self.changes):
            raise ValueError("changes must be in time order")

    def _check_profile(self) -> None:
        times = [point.at_s for point in self.profile]
        if times != sorted(set(times)):
            raise ValueError("profile must be in time order, each second once")
        if self.repeat_s is not None and not (times and times[-1] < self.repeat_s < math.inf):
            raise ValueError(f"repeat_s must be after the last point of a profile, not {self.repeat_s}")
        if times and self.repeat_s is None and self.profile[-1].to is not None:
            raise ValueError("profile must not end with a `to`: there is no next point and no repeat_s")
        if times and not any(point.factor or point.to for point in self.profile):
            raise ValueError("profile must have a factor over 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixConfig:
    """A mix of components over so many seconds; without `length_s` it goes on for as long as it is asked for."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID

    components: tuple[ComponentConfig, ...]
    length_s: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a mix of nothing."""
        if not self.components:
            raise ValueError("components must not be empty")
        if self.length_s is not None and not 0 < self.length_s < math.inf:
            raise ValueError(f"length_s must be positive, not {self.length_s}")

    def arrivals(self, seed: int = 0, length_s: float | None = None) -> Iterator[Arrival]:
        """The requests in time order, the same for the same seed; a component's are not changed by the others.

        Raises:
            TraceError: a trace that lengths are drawn from cannot be read.
        """
        end_s = min(each for each in (length_s, self.length_s, math.inf) if each is not None)
        parts = [
            _Component(config, f"{seed}/{number}", config.name or f"component{number}").arrivals(end_s)
            for number, config in enumerate(self.components)
        ]
        return merged(*parts)

    def scaled(self, factor: float) -> MixConfig:
        """The same mix at `factor` times its rates."""
        components = tuple(
            dataclasses.replace(component, rate_per_s=component.rate_per_s * factor)
            for component in self.components
        )
        return dataclasses.replace(self, components=components)


class _Component:
    """Draws one component's requests. Times, lengths and callers have generators of their own."""

    def __init__(self, config: ComponentConfig, seed: str, name: str) -> None:
        self._config = config
        self._times, self._sizes, self._who = (
            Random(f"{what}/{seed}")  # noqa: S311 - to be repeatable
            for what in ("times", "sizes", "who")
        )
        self._lengths: LengthSource = config.lengths.source()
        self._tenants = Shares(config.tenants) if config.tenants else None
        self._prefix = (config.prefix.name or name) if config.prefix else ""

    def arrivals(self, end_s: float) -> Iterator[Arrival]:
        """In time order, up to the end."""
        config = self._config
        rate = pieces(config.rate_per_s, config.profile, config.repeat_s)
        until_s = min(end_s, config.until_s) - config.from_s
        for at_s in takewhile(lambda at_s: at_s < until_s, instants(rate, config.cv, self._times)):
            yield self._arrival(config.from_s + at_s)

    def _arrival(self, at_s: float) -> Arrival:
        config, who = self._config, self._who
        own, output = self._drawn(at_s)
        common = config.prefix.tokens if config.prefix else 0
        has_prefix = config.prefix is not None and who.random() < config.prefix.hits
        later_turn = config.cached is not None and who.random() < config.cached.hits
        shared = common if has_prefix else 0
        cached = common + int(own * config.cached.ratio) if config.cached and later_turn else shared
        return Arrival(
            at_s,
            common + own,
            output,
            config.priority,
            self._tenants.at(who.random()) if self._tenants else "",
            "",
            config.model,
            config.max_tokens or max(DEFAULT_MAX_TOKENS, output),
            config.stream_ratio >= 1 or who.random() < config.stream_ratio,
            min(cached, common + own - 1),
            shared,
            self._prefix if has_prefix else "",
        )

    def _drawn(self, at_s: float) -> tuple[int, int]:
        prompt, output = self._lengths.draw(self._sizes)
        for change in reversed(self._config.changes):
            if change.at_s <= at_s:
                prompt, output = max(1, round(prompt * change.prompt)), max(1, round(output * change.output))
                break
        return prompt, min(output, self._config.max_tokens or output)


def load_mix(path: Path) -> MixConfig:
    """Read a mix from YAML or JSON.

    Raises:
        TraceError: it cannot be read, or is no mix; one line for each mistake, with file, line and key.
    """
    try:
        document = parse_document(read_text(path), path.name)
        return bind_mix(document)
    except BadConfigurationError as error:
        raise TraceError(str(error)) from error


def shipped_mix(name: str) -> MixConfig:
    """A mix that comes with the package.

    Raises:
        TraceError: there is no such mix; names those that there are.
    """
    if name not in shipped_mixes():
        raise TraceError(f"no shipped mix {name!r}: there are {', '.join(shipped_mixes())}")
    text = (_SHIPPED / f"mix_{name}.yaml").read_text(encoding="utf-8")
    return bind_mix(parse_document(text, f"mix_{name}.yaml"))


def shipped_mixes() -> list[str]:
    """The mixes that come with the package."""
    found = (each.name for each in _SHIPPED.iterdir())
    return sorted(
        name.removeprefix("mix_").removesuffix(".yaml") for name in found if name.startswith("mix_")
    )


def bind_mix(document: Document) -> MixConfig:
    """A document that was read already, as a mix. BadConfigurationError: every mistake found."""
    binder = Binder(_with_our_words(document))
    mix: MixConfig = binder.bind(MixConfig, document.value, ())
    if binder.mistakes:
        raise BadConfigurationError(binder.mistakes)
    return mix


def _with_our_words(document: Document) -> Document:
    """Users write `class`, which is no name for a field, and the name of a shape for lengths that need no more."""
    components = document.value.get("components")
    for number, component in enumerate(components if isinstance(components, list) else ()):
        if not isinstance(component, dict):
            continue
        if "class" in component:
            component["priority"] = component.pop("class")
            # Messages go on naming it as the user did.
            origin = document.origins[("components", number, "class")]
            document.origins[("components", number, "priority")] = origin
        if isinstance(component.get("lengths"), str):
            component["lengths"] = {"shape": component["lengths"]}
    return document


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, not {value}")


def _weights(tenants: Mapping[str, float]) -> None:
    try:
        Shares(tenants)
    except ValueError as error:
        raise ValueError(f"tenants: {error}") from error
