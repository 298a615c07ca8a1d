"""Says how well a fitted engine reproduces what was measured: quantiles real and simulated, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from admission.simulation.calibrating.driving import Driven, Floats, drive
from admission.simulation.calibrating.measured import Measured, Recording
from admission.simulation.engine import EngineConfig

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, real and simulated, in seconds; `error` is relative, positive where the simulation is slower."""

    measure: str
    real_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Relative error."""
        return self.simulated_s / self.real_s - 1.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures of one part of a recording; empty when none of its requests has times."""

    requests: int
    lines: tuple[Line, ...]


def judge(config: EngineConfig, recording: Recording, count: int) -> tuple[Accuracy, Accuracy]:
    """TTFT and TPOT of the first `count` requests and of the rest. All are simulated, in one run."""
    driven = drive(config, recording.requests, recording.engines)
    return (
        _accuracy(recording, driven, range(count)),
        _accuracy(recording, driven, range(count, len(recording.requests))),
    )


def _accuracy(recording: Recording, driven: Driven, part: range) -> Accuracy:
    requests = recording.requests
    ttft = [number for number in part if requests[number].ttft_s]
    tpot = [number for number in part if requests[number].tpot_s]
    simulated_tpot = driven.decode() / np.array([max(1, one.output_tokens - 1) for one in requests])
    lines = [
        *_lines("TTFT", _of(requests, ttft, "ttft_s"), driven.ttft(recording.clock)[ttft]),
        *_lines("TPOT", _of(requests, tpot, "tpot_s"), simulated_tpot[tpot]),
    ]
    return Accuracy(len(ttft), tuple(lines))


def _of(requests: tuple[Measured, ...], numbers: list[int], name: str) -> Floats:
    return np.array([getattr(requests[number], name) for number in numbers], float)


def _lines(measure: str, real: Floats, simulated: Floats) -> list[Line]:
    if not len(real):
        return []
    pairs = zip(QUANTILES, np.quantile(real, QUANTILES), np.quantile(simulated, QUANTILES), strict=True)
    return [Line(f"{measure} p{round(100 * q)}", float(a), float(b)) for q, a, b in pairs]
