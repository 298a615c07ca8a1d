"""Is decoding too slow? TPOT against its SLO, from streams in progress, finished requests, the scrape, and spans."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from admission.core.ledger import Permit
from admission.core.model import Why
from admission.core.stats import SmoothedInTime, low_quantile
from admission.vocabulary import PriorityClass, Source

LIVE_WINDOW_S = 5.0
FINISHED_WINDOW_S = 10.0
WIDEST_WINDOW_S = 30.0
MIN_STREAMS = 8
MIN_LEFT = 16.0
"""Tokens that a stream is expected to put out still, however long it is already."""
QUANTILE = 0.9
OF_LATE = 0.8
"""Share of the pace of late that a stream is judged by at least."""
UNEVEN, MOST_UNEVEN = 1.6, 0.67
"""Where the slow tenth takes over so many times what half of them take, it is not the load that makes them slow."""


class Excess(NamedTuple):
    """1 - TPOT/SLO and where it came from: under 0 is congestion."""

    value: float
    why: Why


class _Ended(NamedTuple):
    at: float
    began_at: float
    ratio: float
    tpot_s: float


class Streaming(NamedTuple):
    """How one stream in progress goes. Seconds and tokens, of one of its answers when it has several."""

    priority: PriorityClass
    slo_s: float
    recent_s: float
    """Its TPOT of late."""
    trust: float
    """How much of the window that was seen over, 0 to 1."""
    elapsed_s: float
    """Since its first token."""
    made: float
    left: float
    """Tokens that it is expected to put out still."""

    def ratio(self, pace_s: float) -> float:
        """Its TPOT at the end over its SLO, when the rest comes at the pace of late.

        A young stream has seen a few steps only, which a prefill beside it may have made slow: it takes the pace of all.
        """
        ahead_s = pace_s + (self.recent_s - pace_s) * self.trust
        at_end_s = (self.elapsed_s + self.left * ahead_s) / (self.made + self.left)
        # A long answer's past must not hide that the engine has become slow.
        return max(at_end_s, OF_LATE * ahead_s) / self.slo_s


def streaming(
    permit: Permit, tokens_per_chunk: float, slo_s: float, still_s: float, now: float
) -> Streaming | None:
    """A stream in progress, the time left out in which the engine stood (`still_s` of it so far); None: too little seen."""
    if permit.first_token_at is None or permit.last_chunk_at is None or not permit.chunks:
        # Without a chunk reported nobody counts them: silence then is no stall.
        return None
    # A stream that stands still counts up to now: it need not go on to be evidence.
    until = (permit.last_chunk_at if now - permit.last_chunk_at < 1.0 else now) - still_s
    began = permit.first_token_at - permit.still_s
    since, before = permit.marks[0] if permit.marks is not None else (began, permit.chunks_before)
    # A request for n answers streams n sequences: its pace is that of one of them.
    each = tokens_per_chunk / max(1, permit.ticket.n)
    tokens, elapsed_s = (permit.chunks - before) * each, until - since
    if elapsed_s <= 0 or (elapsed_s < 0.5 and tokens < 8):
        return None
    made = max(1.0, (permit.chunks - permit.chunks_before) * each)
    left = max(MIN_LEFT, permit.cost.output / max(1, permit.ticket.n) - (permit.chunks - 1) * each)
    trust = min(1.0, elapsed_s / LIVE_WINDOW_S)
    recent_s = elapsed_s / max(tokens, 1.0)
    return Streaming(permit.ticket.priority, slo_s, recent_s, trust, until - began, made, left)


class Pace:
    """Collects TPOT over SLO from every source, and answers once a second with the worst."""

    def __init__(self) -> None:
        self._finished: list[deque[_Ended]] = [deque(maxlen=512) for _ in PriorityClass]
        self._spans: deque[_Ended] = deque(maxlen=30)
        self._scraped = SmoothedInTime(2.5)
        self._scraped_at = float("-inf")
        self._generated: tuple[float, float, float] | None = None
        self.cut_at = float("-inf")
        """When the limit was last cut: requests begun before it have been punished already."""
        self._span_cut_at = float("-inf")
        self._own_at = float("-inf")
        """When a request of our own last told its pace."""
        self.lasting: float | None = None
        """1 - TPOT/SLO with all that ended lately, those that were punished already included."""
        self.watched = 0
        """Streams in progress that the last answer could look at."""

    def on_finished(self, permit: Permit, tpot_s: float, slo_s: float, now: float) -> None:
        """A request of ours ended."""
        self._own_at = now
        ended = _Ended(now, permit.admitted_at, tpot_s / slo_s, tpot_s)
        self._finished[permit.ticket.priority].append(ended)

    def on_span(self, tpot_s: float, slo_s: float, e2e_s: float, now: float) -> None:
        """A span told of a finished request."""
        self._spans.append(_Ended(now, now - e2e_s, tpot_s / slo_s, tpot_s))

    def on_generated(self, total: float, decoding: float, slo_s: float, now: float) -> None:
        """The engine's count of generated tokens: time times streams over tokens is the mean TPOT."""
        before, self._generated = self._generated, (now, total, decoding)
        if before is None or total <= before[1] or now <= before[0]:
            return
        # The lower of both ends: an interval that began or ended idle did not decode all the time.
        decoding = min(decoding, before[2])
        if decoding < 1:
            return
        # 0.9: a mean stands in for a quantile. Capped, so that one bad interval does not linger.
        ratio = decoding * (now - before[0]) / (total - before[1]) / (0.9 * slo_s)
        self._scraped.add(min(ratio, 2.0), now)
        self._scraped_at = now

    def lost_scrape(self) -> None:
        """A failed scrape: what it said before is forgotten, since a stale mean steers wrong."""
        self._generated = None
        self._scraped.forget()

    def excess(self, live: Iterable[Streaming], now: float) -> Excess | None:
        """The worst of what the sources say, of streams in progress and of those that ended."""
        per_class: list[list[float]] = [[] for _ in PriorityClass]
        streams = list(live)
        self.watched = len(streams)
        if streams:
            pace_s = low_quantile(sorted(stream.recent_s for stream in streams), 0.5)
            for stream in streams:
                per_class[stream.priority].append(stream.ratio(pace_s))
        self.lasting = self._lasting(per_class, now)
        own = self._own(per_class, now)
        if own is not None or now - self._own_at <= WIDEST_WINDOW_S:
            # With requests of our own to look at the coarser sources only add noise, also in the moments after a cut.
            return own
        answers = (self._from_scrape(now), self._from_spans(now))
        return min((answer for answer in answers if answer is not None), key=lambda e: e.value, default=None)

    def _lasting(self, live: list[list[float]], now: float) -> float | None:
        """The worst class; None with too few to tell."""
        worst: float | None = None
        for rank, ratios in enumerate(live):
            values = ratios + self._ended(self._finished[rank], now)
            if len(values) >= MIN_STREAMS:
                ratio = _slow(values)
                worst = ratio if worst is None else max(worst, ratio)
        return None if worst is None else 1.0 - worst

    def _own(self, live: list[list[float]], now: float) -> Excess | None:
        worst: tuple[float, int] | None = None
        pooled: list[float] = []
        for rank, ratios in enumerate(live):
            ended = self._recent(self._finished[rank], now, MIN_STREAMS - len(ratios))
            values = ratios + ended
            pooled += values
            if len(values) >= MIN_STREAMS:
                ratio = _slow(values)
                worst = max(worst or (ratio, len(values)), (ratio, len(values)))
        if worst is None and len(pooled) >= 2:
            worst = (_slow(pooled), len(pooled))
        if worst is None:
            return None
        return _excess(worst[0], Source.OWN, f"n={worst[1]}")

    def _ended(self, ended: deque[_Ended], now: float) -> list[float]:
        ratios = []
        for one in reversed(ended):
            if now - one.at > FINISHED_WINDOW_S:
                break
            ratios.append(one.ratio)
        return ratios

    def _recent(self, ended: deque[_Ended], now: float, wanted: int) -> list[float]:
        """Requests begun and finished within the window, and since the last cut; it widens while there are too few."""
        found = self._begun(ended, now, FINISHED_WINDOW_S)
        return found if len(found) >= wanted else self._begun(ended, now, WIDEST_WINDOW_S)

    def _begun(self, ended: deque[_Ended], now: float, within_s: float) -> list[float]:
        ratios = []
        for one in reversed(ended):
            if now - one.at > within_s:
                # Whoever ended before the window began before it too.
                break
            if one.began_at >= self.cut_at and now - one.began_at <= within_s:
                ratios.append(one.ratio)
        return ratios

    def _from_scrape(self, now: float) -> Excess | None:
        if self._scraped.value is None or now - self._scraped_at > LIVE_WINDOW_S:
            return None
        return _excess(self._scraped.value, Source.SCRAPE, "mean of the engine's token counter")

    def _from_spans(self, now: float) -> Excess | None:
        recent = [one for one in self._spans if now - one.at <= FINISHED_WINDOW_S]
        if len(recent) < 3:
            return None
        answer = _excess(
            low_quantile(sorted(one.ratio for one in recent), QUANTILE), Source.SPANS, f"n={len(recent)}"
        )
        return self._paced(answer, recent, now)

    def _paced(self, answer: Excess, recent: list[_Ended], now: float) -> Excess | None:
        """Finished requests tell of the past: they cut once per service time, not each second."""
        if answer.value >= 0:
            return answer
        median_s = low_quantile(sorted(one.at - one.began_at for one in recent), 0.5)
        if now - self._span_cut_at < min(5.0, 0.5 * median_s):
            return None
        self._span_cut_at = now
        return answer


def _excess(ratio: float, source: Source, detail: str) -> Excess:
    why = Why(f"TPOT is {ratio:.2f} of its SLO ({source}, {detail})", ratio, 1.0, "ratio", source)
    return Excess(1.0 - ratio, why)


def _slow(ratios: list[float]) -> float:
    """TPOT over SLO of the slow tenth, unless they are slow for a reason of their own: on a slower member of a pool, say.

    To cut until those few are in time would waste what the others could serve.
    """
    ordered = sorted(ratios)
    slow = low_quantile(ordered, QUANTILE)
    if low_quantile(ordered, MOST_UNEVEN) > 1.0:
        # Over a third of them: those are not a few.
        return slow
    return min(slow, UNEVEN * low_quantile(ordered, 0.5))
