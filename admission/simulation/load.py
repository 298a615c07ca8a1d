"""Open-loop load: requests leave at the moments of a trace, whatever the server does, and are judged by their SLO."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from http import HTTPStatus
from random import Random

from admission.core.slo import INTERACTIVE_SLO, SloConfig
from admission.simulation.exchange import Attempt, Request, exchange
from admission.simulation.judging import Ending, Fate, Judge, Report
from admission.simulation.traces import Arrival
from admission.vocabulary import PriorityClass

_BACKOFF_S = (1.0, 2.0, 4.0)


class Retry(StrEnum):
    """What a caller does that was refused, failed, or lost patience."""

    NONE = "none"
    BACKOFF = "backoff"
    """Up to three more tries after 1, 2 and 4 s (+-50 %), later if Retry-After says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadConfig:
    """Where the load goes and how its callers behave."""

    host: str = "127.0.0.1"
    port: int = 8000
    model: str = "standin"
    chat: bool = False
    max_tokens: int | None = 2048
    """Sent in the body; the trace's true length goes in a header that only the stand-in reads."""
    exact_output: bool = False
    """Ask for the trace's length with max_tokens and ignore_eos instead: for a real engine."""
    word: str = " tok"
    """What a prompt is made of: one token of the server's tokenizer."""
    headers: tuple[tuple[str, str], ...] = ()
    slo: SloConfig = INTERACTIVE_SLO
    patience_s: float = 10.0
    leave_ratio: float = 0.0
    """Share of callers that leave after a few chunks."""
    retry: Retry = Retry.NONE
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """One logical request: its trace entry and its attempts."""

    arrival: Arrival
    leaves: bool
    attempts: list[Attempt] = field(default_factory=list)
    late_s: float = 0.0
    """How late this client sent it: its own fault, not the server's."""

    @property
    def last(self) -> Attempt | None:
        """The attempt that settled it."""
        return self.attempts[-1] if self.attempts else None

    def fate(self) -> Fate:
        """What the verdict needs of it. An answer that began with 200 was let in, whatever came of it."""
        last = self.last or Attempt(0.0, Ending.OPEN)
        return Fate(
            self.arrival,
            last.ending,
            last.reason,
            attempts=len(self.attempts),
            began_at_s=self.arrival.at_s,
            admitted=last.status == HTTPStatus.OK,
            ttft_s=last.ttft_s,
            tpot_s=last.tpot_s,
            e2e_s=last.ended_at - last.began_at,
            refused=tuple(one.reason for one in self.attempts if one.ending is Ending.REFUSED),
            leaves=self.leaves,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport(Report):
    """The verdict over a load that was really sent."""

    seconds: float
    """How long it has been going on."""
    late_max_s: float
    """The most that this client was late with a request: its own fault, not the server's."""


class Load:
    """Sends a trace. `outcomes` grows while it runs, so that a display can look at any time.

    Args:
        config: target and callers.
        arrivals: the trace, in time order.
    """

    def __init__(self, config: LoadConfig, arrivals: Sequence[Arrival]) -> None:
        self.config = config
        self.arrivals = arrivals
        self.outcomes: list[Outcome] = []
        self.in_flight = 0
        self.began_at = 0.0
        self._random = Random(config.seed)  # noqa: S311 - behaviour of simulated callers

    async def run(self, extra_s: float = 30.0) -> LoadReport:
        """Send everything, wait up to `extra_s` for what is still under way, then cut it and report."""
        self.began_at = time.monotonic()
        tasks: set[asyncio.Task[None]] = set()
        try:
            for arrival in self.arrivals:
                await asyncio.sleep(max(0.0, self.began_at + arrival.at_s - time.monotonic()))
                outcome = Outcome(arrival, self._random.random() < self.config.leave_ratio)
                outcome.late_s = time.monotonic() - self.began_at - arrival.at_s
                self.outcomes.append(outcome)
                tasks.add(task := asyncio.create_task(self._caller(outcome)))
                task.add_done_callback(tasks.discard)
            if tasks:
                await asyncio.wait(tasks, timeout=extra_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self.report()

    def report(self) -> LoadReport:
        """Judge what has happened so far; a request under way counts as offered and not yet good."""
        return judge(self.outcomes, self.config.slo, time.monotonic() - self.began_at)

    async def _caller(self, outcome: Outcome) -> None:
        request = self._request(outcome)
        for pause_s in (*self._pauses(), None):
            self.in_flight += 1
            try:
                attempt = await exchange(self.config.host, self.config.port, request)
            finally:
                self.in_flight -= 1
            outcome.attempts.append(attempt)
            if pause_s is None or attempt.ending in (Ending.SERVED, Ending.LEFT, Ending.INVALID):
                return
            await asyncio.sleep(max(pause_s, attempt.retry_after_s or 0.0))

    def _pauses(self) -> Iterable[float]:
        if self.config.retry is Retry.NONE:
            return ()
        return tuple(pause * self._random.uniform(0.5, 1.5) for pause in _BACKOFF_S)

    def _request(self, outcome: Outcome) -> Request:
        config, arrival = self.config, outcome.arrival
        wish = arrival.output_tokens if config.exact_output else config.max_tokens
        headers = (*config.headers, ("x-standin-output-tokens", str(arrival.output_tokens)))
        return Request(
            path="/v1/chat/completions" if config.chat else "/v1/completions",
            body=body(config, arrival.prompt_tokens, wish),
            headers=config.headers if config.exact_output else headers,
            patience_s=config.patience_s,
            leave_after_chunks=self._random.randint(1, 8) if outcome.leaves else 0,
        )


def body(config: LoadConfig, prompt_tokens: int, max_tokens: int | None) -> bytes:
    """A request body whose prompt the stand-in counts as `prompt_tokens`."""
    text = config.word.encode() * prompt_tokens
    said = b'"messages":[{"role":"user","content":"%b"}]' if config.chat else b'"prompt":"%b"'
    limit = b"" if max_tokens is None else b',"max_tokens":%d' % max_tokens
    if config.exact_output:
        limit += b',"ignore_eos":true'
    options = b',"stream":true,"stream_options":{"include_usage":true}'
    return b'{"model":"%b",%b%b%b}' % (config.model.encode(), said % text, limit, options)


def judge(outcomes: Sequence[Outcome], slo: SloConfig, seconds: float) -> LoadReport:
    """The verdict over requests that were really sent; one under way is offered and not yet good.

    Args:
        outcomes: what became of them so far.
        slo: what good means, whatever their class.
        seconds: how long the load went on.
    """
    judge = Judge(dict.fromkeys(PriorityClass, slo))
    for outcome in outcomes:
        judge.settle(outcome.fate())
    report = judge.report()
    return LoadReport(
        **{one.name: getattr(report, one.name) for one in fields(report)},
        seconds=seconds,
        late_max_s=max((outcome.late_s for outcome in outcomes), default=0.0),
    )
