"""Chatbot Arena's log under seven policies: what was measured, what the simulator makes of the same, and the figures of both."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import median

from admission.simulation.fate import Ending, Fate
from admission.simulation.policies import build
from admission.simulation.scenarios import scenario
from admission.simulation.scenarios.running import spec_of
from admission.simulation.sizes import Sizes
from admission.simulation.traces import Arrival, shipped
from admission.simulation.world import World

SCENARIO = "arena-as-measured"
TRACE = "arena_vtc_27clients_600s"
RESULTS = "arena_vtc_results_a10g_llama2-7b.csv.gz"
TTFT_S = 2.0
ENOUGH = 10
"""Requests that a client must have made for its share to say something."""

MEASURED: Mapping[str, str] = {
    "fcfs": "none",
    "vtc": "vtc:kv_capacity_tokens=10000",
    **{f"rpm{most}": f"rpm:per_minute={most}" for most in (5, 10, 15, 20, 30)},
}
"""The measured policies, and what each is called here."""


@dataclass(frozen=True, slots=True)
class Request:
    """What became of one request. Seconds; None: it was refused."""

    client: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    e2e_s: float | None

    @property
    def good(self) -> bool:
        """Its first token came within 2 s."""
        return self.ttft_s is not None and self.ttft_s < TTFT_S

    @property
    def tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.output_tokens

    @property
    def tpot_s(self) -> float | None:
        """Per token after the first."""
        if self.ttft_s is None or self.e2e_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to. A rate counts from the start until the last answer ended, as in the published figures."""

    served: int
    good: int
    until_s: float
    good_tokens: int
    ttft_p50_s: float
    ttft_p90_s: float
    tpot_p50_s: float
    good_by_size: tuple[float, ...]
    """Good over offered, the smallest quarter of the requests first."""
    worst_over_median: float
    """Good over offered of the worst client over that of the median one, of the clients with enough requests."""

    @property
    def requests_per_s(self) -> float:
        """First token within 2 s."""
        return self.good / self.until_s

    @property
    def tokens_per_s(self) -> float:
        """Prompts and answers of those."""
        return self.good_tokens / self.until_s


def measured() -> dict[str, list[Request]]:
    """What the artifact's files say, by policy."""
    packed = (files("admission.simulation") / "data" / RESULTS).read_bytes()
    rows: dict[str, list[Request]] = {}
    for row in csv.DictReader(io.StringIO(gzip.decompress(packed).decode())):
        refused = row["rejected"] == "1"
        request = Request(
            row["client"],
            float(row["arrival_s"]),
            int(row["prompt_tokens"]),
            int(row["output_tokens"]),
            None if refused else float(row["ttft_s"]),
            None if refused else float(row["e2e_s"]),
        )
        rows.setdefault(row["policy"], []).append(request)
    return rows


def simulated(policy: str, *, told: bool = False) -> list[Request]:
    """The same requests at the same instants; `told`: each says how long its answer will be, as the artifact's did."""
    one = scenario(SCENARIO)
    fates = _Fates()
    world = World(
        one.world(), lambda no: build(spec_of(policy), seed=no, now=0.0, slos=one.slo), fates, seed=0
    )
    world.run(_arrivals(told=told))
    return [_request(fate) for fate in fates.settled]


def figures(requests: Sequence[Request]) -> Figures:
    """Of a run, measured or simulated.

    Raises:
        ValueError: nothing was served.
    """
    served = [one for one in requests if one.ttft_s is not None]
    if not served:
        raise ValueError("nothing was served")
    good = [one for one in served if one.good]
    ttfts = sorted(one.ttft_s for one in served if one.ttft_s is not None)
    tpots = sorted(tpot_s for one in served if (tpot_s := one.tpot_s) is not None)
    return Figures(
        served=len(served),
        good=len(good),
        until_s=max(one.arrival_s + (one.e2e_s or 0.0) for one in served),
        good_tokens=sum(one.tokens for one in good),
        ttft_p50_s=_quantile(ttfts, 0.5),
        ttft_p90_s=_quantile(ttfts, 0.9),
        tpot_p50_s=_quantile(tpots, 0.5),
        good_by_size=_good_by_size(requests),
        worst_over_median=_worst_over_median(requests),
    )


class _Fates:
    """A judge that only remembers."""

    def __init__(self) -> None:
        self.settled: list[Fate] = []

    def settle(self, fate: Fate) -> bool:
        self.settled.append(fate)
        return fate.ending is Ending.SERVED


def _arrivals(*, told: bool) -> Iterator[Arrival]:
    for one in shipped(TRACE):
        yield replace(one, max_tokens=one.output_tokens) if told else one


def _request(fate: Fate) -> Request:
    served = fate.ending is Ending.SERVED
    return Request(
        fate.arrival.tenant,
        fate.arrival.at_s,
        fate.arrival.prompt_tokens,
        fate.arrival.output_tokens,
        fate.ttft_s if served else None,
        fate.e2e_s if served else None,
    )


def _good_by_size(requests: Sequence[Request]) -> tuple[float, ...]:
    sizes = Sizes()
    for one in requests:
        sizes.add(one.tokens, served=one.ttft_s is not None, good=one.good)
    return tuple(share or 0.0 for share in sizes.shares().good)


def _worst_over_median(requests: Sequence[Request]) -> float:
    offered = Counter(one.client for one in requests)
    good = Counter(one.client for one in requests if one.good)
    shares = [good[client] / count for client, count in offered.items() if count >= ENOUGH]
    middle = median(shares)
    return min(shares) / middle if middle else 0.0


def _quantile(ordered: Sequence[float], at: float) -> float:
    return ordered[int(at * (len(ordered) - 1))]
