"""Fits the constants of a step to recorded requests, through the engine model itself.

A duration that was measured, of a prefill or of an answer, is the sum of the costs of the steps in it, and linear in
the constants once it is known what those steps did. That, the model tells: run it with the constants so far, solve
for better ones, and again. A simplex search then goes after the quantiles that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from admission.simulation.calibrating.driving import Driven, Floats, Numbers, drive
from admission.simulation.calibrating.linear import Equations, open_ratios, solve
from admission.simulation.calibrating.measured import CalibrationError, Clock, Measured, Recording
from admission.simulation.calibrating.search import Simplex
from admission.simulation.engine import EngineConfig

LEAST_REQUESTS = 20
ROUNDS = 16
SEARCH_STEP = 0.1
EVALUATIONS = 120
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
CONSTANTS = ("base_s", "prefill_s_per_token", "decode_s_per_sequence", "kv_s_per_token", "overhead_s")
SMALLEST = (1e-5, 1e-9, 1e-9, 1e-13, 1e-5)
"""Below these a constant is nothing."""
AHEAD_GAIN = 0.05
"""How much smaller the error must be for scheduling ahead to be believed, when nobody says."""
LEAST_OVERHEAD_S = 1e-3
"""A shorter wait before the queue is none: it makes up for what the model leaves out."""

PHASE = 12**-0.5 / 0.05
"""The part of a step that an arrival finds left is even between 0 and 1: noise beside one of 5 % in all durations."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted engine, its error over what it was fitted to, and how far the data leave each constant open."""

    config: EngineConfig
    loss: float
    open: tuple[float, ...] = ()
    """See `linear.open_ratios`; in the order of CONSTANTS."""


def silent(done: int, total: int) -> None:
    """Tell nobody how far it is."""


class Fitter:
    """Fits to the outcomes of the first `count` requests; of the others it knows that they came.

    What the data leave open is as `usual` on GPUs, or not held by anything.

    Raises:
        CalibrationError: too few requests with times among them.
    """

    def __init__(
        self, recording: Recording, count: int, progress: Progress = silent, *, usual: bool = True
    ) -> None:
        self._recording = recording
        self._known = _Known.of(recording.requests[:count], recording.clock)
        self._progress = progress
        self._usual = usual
        self._done = self._total = 0
        if self._known.count < LEAST_REQUESTS:
            raise CalibrationError(
                f"{recording.name}: {self._known.count} requests with times to fit to; {LEAST_REQUESTS} are needed"
            )

    def fit(self, bounds: EngineConfig, evaluations: int = EVALUATIONS, ahead: bool | None = None) -> Fit:
        """Constants for an engine of these bounds; `ahead` None: whatever fits better.

        Raises:
            CalibrationError: a request of the recording can never fit in such an engine.
        """
        choices = (False, True) if ahead is None else (ahead,)
        self._done, self._total = 0, ROUNDS * len(choices) + evaluations
        start = _first_guess(bounds, self._known)
        best, *others = (self._solved(replace(start, ahead=choice)) for choice in choices)
        for other in others:
            if other.loss < best.loss * (1.0 - AHEAD_GAIN):
                best = other
        return self._searched(best, evaluations)

    def _drive(self, config: EngineConfig) -> Driven:
        self._done += 1
        self._progress(self._done, self._total)
        return drive(config, self._recording.requests, self._recording.engines)

    def _solved(self, config: EngineConfig) -> Fit:
        best = Fit(config, float("inf"))
        for _ in range(ROUNDS):
            driven = self._drive(config)
            equations, loss = self._known.equations(driven), self._known.loss(driven)
            if loss < best.loss:
                best = Fit(config, loss, tuple(open_ratios(equations, _costs(config)).tolist()))
            config = _with(
                config, 0.5 * (solve(equations, config.base_s, usual=self._usual) + _costs(config))
            )
        return best

    def _searched(self, start: Fit, evaluations: int) -> Fit:
        best = start
        if start.config.overhead_s < LEAST_OVERHEAD_S:
            best = start = replace(start, config=replace(start.config, overhead_s=0.0), loss=float("inf"))
        costs = _costs(start.config)
        free = [place for place, cost in enumerate(costs) if cost > SMALLEST[place]]

        def loss_at(point: Sequence[float]) -> float:
            nonlocal best
            moved = costs.copy()
            moved[free] = costs[free] * np.exp(point)
            config = _with(start.config, moved)
            loss = self._known.loss(self._drive(config))
            if loss < best.loss:
                best = replace(start, config=config, loss=loss)
            return loss

        Simplex(loss_at, max(1, evaluations)).minimise((0.0,) * len(free), SEARCH_STEP)
        return best


@dataclass(frozen=True, slots=True)
class _Known:
    """Which of the first requests have times, and these."""

    clock: Clock
    ttft_of: Numbers
    ttft_s: Floats
    decode_of: Numbers
    decode_s: Floats
    tokens: Floats

    @classmethod
    def of(cls, requests: Sequence[Measured], clock: Clock) -> _Known:
        ttft = [(number, one.ttft_s) for number, one in enumerate(requests) if one.ttft_s]
        decode = [(number, one) for number, one in enumerate(requests) if one.tpot_s]
        return cls(
            clock,
            np.array([number for number, _ in ttft], np.int64),
            np.array([seconds for _, seconds in ttft], float),
            np.array([number for number, _ in decode], np.int64),
            np.array([one.decode_s for _, one in decode], float),
            np.array([one.output_tokens - 1 for _, one in decode], float),
        )

    @property
    def count(self) -> int:
        return min(len(self.ttft_s), len(self.decode_s))

    def equations(self, driven: Driven) -> Equations:
        """One row for each measured TTFT and each measured answer."""
        prefills = driven.work_between(self.ttft_of, driven.entered, driven.first)
        answers = driven.work_between(self.decode_of, driven.first, driven.last)
        phase_s = np.zeros(len(prefills))
        if self.clock is Clock.ARRIVAL:
            # Of the step under way half is left, on average. What was left in this run would be noise in the rows,
            # which pulls costs down; like this the noise is in the durations, and does not.
            prefills += 0.5 * driven.work_between(self.ttft_of, driven.stepped, driven.entered)
            phase_s = (driven.entered - driven.stepped)[self.ttft_of] * PHASE
        overhead = np.full((len(prefills), 1), float(self.clock is Clock.ARRIVAL))
        rows = [np.hstack([prefills, overhead]), np.hstack([answers, np.zeros((len(answers), 1))])]
        scales = [np.hypot(driven.ttft(self.clock)[self.ttft_of], phase_s), driven.decode()[self.decode_of]]
        seconds = np.concatenate([self.ttft_s, self.decode_s])
        return Equations(np.vstack(rows), seconds, np.concatenate(scales))

    def loss(self, driven: Driven) -> float:
        """Mean error of TTFT and of TPOT: of their quantiles, and a quarter of that of each request."""
        ttft = driven.ttft(self.clock)[self.ttft_of]
        tpot = driven.decode()[self.decode_of] / self.tokens
        return sum(
            _off(np.quantile(simulated, QUANTILES), np.quantile(real, QUANTILES))
            + 0.25 * _off(simulated, real)
            for simulated, real in ((ttft, self.ttft_s), (tpot, self.decode_s / self.tokens))
        )


def _off(simulated: Floats, real: Floats) -> float:
    return float(np.abs(np.log(np.maximum(simulated, 1e-6) / real)).mean())


def _first_guess(bounds: EngineConfig, known: _Known) -> EngineConfig:
    """Half of an ordinary step for its base, and ratios that are common on GPUs for the others."""
    base_s = 0.5 * float(np.median(known.decode_s / known.tokens))
    return _with(bounds, np.array([base_s, 0.005 * base_s, 0.005 * base_s, 5e-6 * base_s, 0.0]))


def _costs(config: EngineConfig) -> Floats:
    return np.array([getattr(config, name) for name in CONSTANTS])


def _with(config: EngineConfig, costs: Floats) -> EngineConfig:
    base_s, prefill, decode, kv, overhead_s = (float(cost) for cost in costs)
    return replace(
        config,
        base_s=max(base_s, SMALLEST[0]),
        prefill_s_per_token=prefill,
        decode_s_per_sequence=decode,
        kv_s_per_token=kv,
        overhead_s=overhead_s,
    )
