"""What the loop does without dice: how deep cuts go too far, how far growth does, and what each ingredient is for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from admission.core.limits.aimd import AimdConfig
from admission.core.pace import LIVE_WINDOW_S
from admission.core.settings import ControllerConfig
from benchmarks.stability_loop import WITHOUT, Plant, cutting, growing

ELASTICITIES = (0.6, 0.8, 1.0)
ANSWERS_S = (2.0, 5.0, 10.0, 20.0, 40.0)
EXCESSES = (0.05, 0.1, 0.3, 0.8)
SHARES = (0.005, 0.02, 0.1)
LOW = 0.3
"""TPOT over the set point where growth begins, or a little over that of an idle engine."""
NEAR = 0.8
"""Of u*: there growth has arrived."""
LATE_S = 200.0
TYPICAL = Plant(elasticity=0.8, answer_s=15.0)


def plants(share: float = 0.01) -> list[Plant]:
    """All combinations of elasticity and answer."""
    return [Plant(elasticity=e, answer_s=s, share=share) for e in ELASTICITIES for s in ANSWERS_S]


def one_cut(config: AimdConfig) -> float:
    """TPOT over the set point after one cut that began over it, at worst: elasticity 1, any excess, all of it drained."""
    excesses = [no / 1000 for no in range(1, 3000)]
    return min((1 + each) * (1 - min(config.max_cut, config.cut_gain * each)) for each in excesses)


def undershoot(config: AimdConfig, excesses: Sequence[float], among: Sequence[Plant]) -> float:
    """How far cuts go below the set point, at worst; a share of it."""
    return max(cutting(plant, excess, config).undershoot for plant in among for excess in excesses)


def overshoot(config: AimdConfig, share: float, *, first: bool = False) -> float:
    """How far growth goes over the set point, at worst; a share of it."""
    return max(
        growing(plant, start_of(plant), config, first=first).overshoot
        for plant in plants(share)
        if plant.elasticity < 1
    )


def swing(config: AimdConfig, share: float) -> float:
    """How far the limit still moves once it has settled, at worst; a share of the set point."""
    late = [growing(plant, start_of(plant), config).since(LATE_S).limit for plant in plants(share)]
    return max(max(one) - min(one) for one in late)


def arrival_s(config: AimdConfig, plant: Plant) -> float:
    """Seconds of growth until the limit is near the set point; infinite: never."""
    trace = growing(plant, start_of(plant), config)
    return next(
        (at for at, limit in zip(trace.at_s, trace.limit, strict=True) if limit >= NEAR), float("inf")
    )


def start_of(plant: Plant) -> float:
    """Where growth begins."""
    return max(LOW, 1.0 - plant.elasticity + 0.03)


def constants() -> Iterator[str]:
    """The derived ones, of the classes' defaults."""
    law, tick_s = AimdConfig(), ControllerConfig().tick_s
    delay_s = LIVE_WINDOW_S / 2 + tick_s / 2
    slope = law.max_step_ratio / law.landing / tick_s
    room_s = math.log(1 / (1 - law.reentry)) / math.log(law.slow_start) * tick_s
    yield "| what | formula | value |"
    yield "|---|---|--:|"
    yield f"| delay of the measurement, d | LIVE_WINDOW_S / 2 + tick_s / 2 | {delay_s:.1f} s |"
    yield f"| condition that one cut stays at or over the set point | max_cut <= 1 - cut_gain | {law.max_cut:g} <= {1 - law.cut_gain:g} |"
    yield f"| TPOT over the set point after one cut, at worst | min over x of (1 + x)(1 - min(max_cut, cut_gain x)) | {one_cut(law):.3f} |"
    yield f"| excess from which a cut is the deepest | max_cut / cut_gain | {100 * law.max_cut / law.cut_gain:.0f} % |"
    yield f"| growth near the edge at most, in shares of L a second for each unit of room | max_step_ratio / landing | {slope:.2f} /s |"
    yield f"| its loop gain times delay at elasticity 1 (stable under π/2) | d max_step_ratio / landing | {slope * delay_s:.2f} |"
    yield f"| the same of cuts, were there no effect guard | d cut_gain / tick_s | {law.cut_gain * delay_s / tick_s:.2f} |"
    yield f"| growth at the outer edge of the dead zone, a second | max_step_ratio dead_zone / landing | {100 * law.max_step_ratio * law.dead_zone / law.landing:.1f} % |"
    yield f"| delay that slow-start re-entry bears at elasticity 1 | ln(1 / (1 - reentry)) / ln(slow_start) | {room_s:.1f} s |"
    yield f"| ticks from the floor to 50 times it by slow start | ln(50) / ln(slow_start) | {math.log(50) / math.log(law.slow_start):.0f} |"


def cuts() -> Iterator[str]:
    """How far cuts go below the set point."""
    heads = " | ".join(f"{100 * each:.0f} % slower" for each in EXCESSES)
    yield f"| | {heads} | at most, over the excess | typical, {100 * EXCESSES[2]:.0f} % | {100 * EXCESSES[0]:.0f} % for as long as anybody looks back |"
    yield "|---|" + "--:|" * (len(EXCESSES) + 3)
    for name in ("the law", "without the effect guard", "cut gain 2.0"):
        config = WITHOUT[name]
        each = [undershoot(config, (one,), plants()) for one in EXCESSES]
        most = max(one / excess for one, excess in zip(each, EXCESSES, strict=True))
        last = [undershoot(config, (EXCESSES[2],), (TYPICAL,)), lasting_undershoot(config)]
        yield _row(name, [*map(_percent, each), f"{most:.2f} x", *map(_percent, last)])


def lasting_undershoot(config: AimdConfig) -> float:
    """The same where the excess has lasted for all of every stream's life, as when enforcing begins in an overload."""
    return max(cutting(plant, EXCESSES[0], config, None).undershoot for plant in plants())


def growth() -> Iterator[str]:
    """How far growth goes over the set point, and whether anything cycles."""
    yield "| a mean request, over the limit | " + " | ".join(_percent(share) for share in SHARES) + " |"
    yield "|---|" + "--:|" * len(SHARES)
    yield _row(
        "over the set point, at worst: the first slow start", [_percent(_first(share)) for share in SHARES]
    )
    yield _row("over the set point, at worst: later growth", [_percent(_later(share)) for share in SHARES])
    yield _row(
        f"swing of the limit after {LATE_S:g} s, at worst",
        [_percent(swing(AimdConfig(), share)) for share in SHARES],
    )
    for name in (
        "the law",
        "without large steps far away",
        "without slow-start re-entry",
        "without large steps and re-entry",
    ):
        times = [
            arrival_s(WITHOUT[name], Plant(elasticity=0.8, answer_s=15.0, share=share)) for share in SHARES
        ]
        yield _row(f"s to {NEAR:g} u*, typical engine: {name}", [f"{one:.0f}" for one in times])


def _first(share: float) -> float:
    return overshoot(AimdConfig(), share, first=True)


def _later(share: float) -> float:
    return overshoot(AimdConfig(), share)


def _row(name: str, values: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(values)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
