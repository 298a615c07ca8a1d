"""The engines behind one target: who gets a request, who is down, how slow each is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from admission.simulation.engine import Engine, EngineConfig

Role = Literal["both", "prefill", "decode"]
Noise = Literal["none", "moe"]

MOE_SIGMA = 0.1
MOE_SPIKE_RATIO = 0.02
MOE_SPIKE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One engine process."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    name: str = ""
    """As readings name it; empty: m0, m1 and so on."""
    role: Role = "both"


class Node:
    """A member at work."""

    __slots__ = ("_factors", "_runs", "downs", "ends_at", "engine", "in_flight", "name", "role")

    def __init__(self, name: str, role: Role, engine: Engine, *, runs: bool = True) -> None:
        self.name = name
        self.role = role
        self.engine = engine
        self.in_flight = 0
        self.downs = 0
        """Mishaps that keep it down now."""
        self.ends_at = math.inf
        """When its step or run under way ends."""
        self._factors: list[float] = []
        self._runs = runs

    @property
    def up(self) -> bool:
        """Does it answer?"""
        return self.downs == 0

    def kick(self, now: float) -> None:
        """Begin a step if none is under way, and run on for as long as nothing can change."""
        engine = self.engine
        ends_at = engine.next_wakeup()
        if ends_at is None:
            ends_at = engine.begin(now)
            if self._runs and ends_at is not None:
                ends_at = engine.extend()
        self.ends_at = math.inf if ends_at is None else ends_at

    def slow_by(self, factor: float, now: float) -> None:
        """From the next step on this factor counts as well."""
        self._factors.append(factor)
        self._slow(now)

    def slow_no_more(self, factor: float, now: float) -> None:
        """From the next step on it does not."""
        self._factors.remove(factor)
        self._slow(now)

    def _slow(self, now: float) -> None:
        self.cut(now)
        self.engine.slow = math.prod(self._factors)

    def cut(self, now: float) -> None:
        """Let nothing be foreseen beyond the step of now."""
        ends_at = self.engine.cut(now)
        if ends_at is not None:
            self.ends_at = ends_at


class Fleet:
    """All members. A request goes to the one with the fewest in flight of those that are up and have the role."""

    def __init__(self, members: Iterable[Member], noise: Noise, seed: int, *, runs: bool = True) -> None:
        self.nodes = []
        for no, one in enumerate(members):
            engine = Engine(one.engine, step_noise(noise, f"{seed} step {no}"))
            self.nodes.append(Node(one.name or f"m{no}", one.role, engine, runs=runs))
        if len({node.name for node in self.nodes}) < len(self.nodes) or not self.nodes:
            raise ValueError("a world needs at least one member, and each its own name")
        roles = {node.role for node in self.nodes}
        if "both" not in roles and roles != {"prefill", "decode"}:
            raise ValueError("prefill members need decode members, and the other way round")

    def named(self, member: str) -> list[Node]:
        """The members that a disturbance is about.

        Raises:
            ValueError: there is no such member.
        """
        found = [node for node in self.nodes if member in ("", node.name)]
        if not found:
            known = ", ".join(node.name for node in self.nodes)
            raise ValueError(f"no member {member!r}; there are {known}")
        return found

    def for_prompt(self) -> Node | None:
        """Who takes a new request, None when all are down."""
        if len(self.nodes) == 1:
            return self.nodes[0] if not self.nodes[0].downs else None
        return self._least("decode")

    def for_answer(self) -> Node | None:
        """Who goes on with one that was prefilled elsewhere, None when all are down."""
        return self._least("prefill")

    def _least(self, but: Role) -> Node | None:
        able = (node for node in self.nodes if node.up and node.role != but)
        return min(able, key=lambda node: node.in_flight, default=None)


def step_noise(noise: Noise, seed: str) -> Callable[[], float] | None:
    """The factor on each step's duration, drawn once a step; None: always 1.

    Raises:
        ValueError: no such noise.
    """
    if noise == "none":
        return None
    if noise != "moe":
        raise ValueError(f"no step noise {noise!r}; there are none, moe")
    random = Random(seed)  # noqa: S311 - simulation

    def factor() -> float:
        # Experts are not loaded evenly: most steps differ a little, a few take three times as long.
        usual = random.lognormvariate(0.0, MOE_SIGMA)
        return usual * MOE_SPIKE if random.random() < MOE_SPIKE_RATIO else usual

    return factor
