"""What a step of the engine takes, learned from watching it: how fast would it be under another load?"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log

TAU_S = 3.0
"""A prompt is told of when its first token comes, after it was read: over this long both agree."""
KEPT_S = 600.0
"""How long a load that does not come again keeps its weight."""
AVERAGED_S = 60.0
"""Over so long what was seen at one load is averaged: prompts come in lumps, which would pass for a load of their own."""
MOST_S = 10.0
"""No load weighs more than this, or the one that lasts would drown what all others have told."""
NEXT_LOAD = 1.25
"""So many times the KV is another load."""
BASE_S = 0.015
"""A bare step: the time to read the weights from memory and to launch it, 8 to 25 ms on servers in use."""
READING_SHARE = 0.85
"""Of the time in which nothing but a prompt is read: the rest takes the step that reads it."""
PRIOR_WEIGHS = (10.0, 0.02, 0.1)
"""Of bare steps, KV and prompts, over what was seen: how long a step takes that does nothing is seldom seen, the rest is."""
ENOUGH_S = 3.0
ROUNDS = 30
MOST_PREFILL = 0.9
"""Of the time: an engine that does nothing but read prompts would never make a token."""


@dataclass(slots=True)
class _Seen:
    """What the engine did per second at one load, on average: steps, KV tokens read in them, prompt tokens."""

    weight_s: float = 0.0
    uses: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


class Plant:
    """Time = base * steps + per_kv * (KV tokens read in them) + per_prompt * (prompt tokens): least squares, none negative.

    Linear in the three as continuous batching is: a step reads the KV of all that decode, and a share of the prompts.
    """

    def __init__(self, prefill_rate: float) -> None:
        self._recent = [0.0, 0.0, 0.0, 0.0]
        self._loads: dict[int, _Seen] = {}
        self._watched_s = 0.0
        self._fitted: list[float] | None = None
        self.prefill_rate = prefill_rate
        """Prompt tokens per second that it reads with little else to do, as measured or as thought."""

    @property
    def known(self) -> bool:
        """Watched for long enough to tell anything."""
        return self._watched_s >= ENOUGH_S

    def watch(self, seconds: float, steps: float, kv_tokens: float, prompt_tokens: float) -> None:
        """Take in what so many seconds were used for.

        Args:
            seconds: of which something decoded all the time.
            steps: tokens that each stream got.
            kv_tokens: what the streams held meanwhile.
            prompt_tokens: of the prompts that were done.
        """
        kept = exp(-seconds / TAU_S)
        now = (seconds, steps, steps * kv_tokens, prompt_tokens)
        self._recent = [old * kept + new for old, new in zip(self._recent, now, strict=True)]
        self._watched_s += seconds
        for one in self._loads.values():
            one.weight_s *= exp(-seconds / KEPT_S)
        seen = self._loads.setdefault(round(log(max(kv_tokens, 1.0)) / log(NEXT_LOAD)), _Seen())
        seen.weight_s = min(seen.weight_s + seconds, AVERAGED_S)
        share = min(1.0, seconds / seen.weight_s)
        uses = [use / self._recent[0] for use in self._recent[1:]]
        seen.uses = [old + (new - old) * share for old, new in zip(seen.uses, uses, strict=True)]
        self._fitted = None

    def pace_s(self, kv_tokens: float, prompt_rate: float) -> float:
        """Seconds for a token of every stream, with so many tokens of KV held and prompt tokens read per second."""
        base, per_kv, per_prompt = self._fit()
        return (base + per_kv * kv_tokens) / (1.0 - min(MOST_PREFILL, per_prompt * prompt_rate))

    def _fit(self) -> list[float]:
        if self._fitted is None:
            self._fitted = self._solve()
        return self._fitted

    def _solve(self) -> list[float]:
        """Coordinate descent, each kept from falling below 0; scaled so that the prior is about shares of the time."""
        rows = [(min(one.weight_s, MOST_S), one.uses) for one in self._loads.values()]
        total_s = sum(weight for weight, _ in rows)
        means = [max(sum(weight * uses[i] for weight, uses in rows) / total_s, 1e-9) for i in range(3)]
        scaled = [
            (weight, [use / mean for use, mean in zip(uses, means, strict=True)]) for weight, uses in rows
        ]
        products = [sum(weight * uses[i] for weight, uses in scaled) for i in range(3)]
        squares = [
            [sum(weight * uses[i] * uses[j] for weight, uses in scaled) for j in range(3)] for i in range(3)
        ]
        prior = self._prior(means)
        shares = list(prior)
        for _ in range(ROUNDS):
            for i in range(3):
                weight = PRIOR_WEIGHS[i] * total_s
                others = sum(squares[i][j] * shares[j] for j in range(3) if j != i)
                shares[i] = max(0.0, (products[i] - others + weight * prior[i]) / (squares[i][i] + weight))
        return [share / mean for share, mean in zip(shares, means, strict=True)]

    def _prior(self, means: list[float]) -> list[float]:
        """Shares of the time that go to bare steps, KV and prompts, before anything tells them apart."""
        base = min(BASE_S * means[0], 1.0)
        prompts = min(READING_SHARE * means[2] / self.prefill_rate, MOST_PREFILL)
        return [base, max(0.0, 1.0 - prompts - base), prompts]
